//! Behaviour of the writer while a shared store does not answer, such as a cluster that cannot be reached.
//!
//! The writer stays at its pending commit, because an abandoned commit may still happen. Meanwhile it refuses new
//! publishes and CONNECTs, as with a full disk, and holds the jobs that must not be lost, until the store answers. Jobs
//! of the pending commit are in doubt, so they get no answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use millrace_layers::LayerError;
use millrace_mqtt::QoS;
use millrace_storage::{StoreError, block_on};

use super::queue::{QueuedWork as _, TakenWork};
use super::writer::{Why, Writer};
use super::{Job, PublisherKey, Write};
use crate::connection_id::ConnectionId;
use crate::jobs::IdWrite;
use crate::region::Notices as _;

/// A store that has not answered for this long is unavailable.
const PATIENCE: Duration = Duration::from_secs(3);
/// A shorter wait while the store is unavailable: once it is back, it answers at once.
const PATIENCE_IN_OUTAGE: Duration = Duration::from_millis(200);
/// How often waiting jobs are refused while the store is unavailable.
const TURN: Duration = Duration::from_millis(20);
/// How long a process that ends waits for the store.
const FAREWELL_MS: u64 = 5_000;

#[derive(Default)]
pub(super) struct Outage {
    is_unavailable: bool,
    held: Vec<Job>,
    /// Confirmations of refusals, as [`Write::Confirmed`] has them: one for each connection, because an outage may be long.
    confirmed: HashMap<(PublisherKey, Option<ConnectionId>), Option<u32>>,
    /// In milliseconds of the process.
    gives_up_at: Option<u64>,
}

impl Outage {
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty() || !self.confirmed.is_empty()
    }

    pub(super) fn take_held(&mut self) -> Vec<Job> {
        let mut held = std::mem::take(&mut self.held);
        let confirmed = std::mem::take(&mut self.confirmed).into_iter();
        held.extend(confirmed.map(|((publisher, connection), count)| Job {
            write: Write::Confirmed { publisher, connection, count },
            ack: None,
        }));
        held
    }

    /// Returns true if the confirmation was merged with an earlier one.
    fn hold_confirmed(
        &mut self,
        publisher: PublisherKey,
        connection: Option<ConnectionId>,
        count: Option<u32>,
    ) -> bool {
        match self.confirmed.entry((publisher, connection)) {
            Entry::Occupied(mut earlier) => {
                let sum = earlier.get().zip(count).map(|(earlier, count)| earlier.saturating_add(count));
                earlier.insert(sum);
                true
            }
            Entry::Vacant(none) => {
                none.insert(count);
                false
            }
        }
    }

    pub(super) fn is_unavailable(&self) -> bool {
        self.is_unavailable
    }
}

impl Writer<'_> {
    /// If the store's answer is late, refuses or holds all new jobs until it comes. Jobs of the pending transaction get no answer
    /// meanwhile, because the transaction may commit.
    pub(super) fn wait<T>(
        &mut self,
        asked: impl Future<Output = Result<T, LayerError>>,
    ) -> Result<T, LayerError> {
        self.wait_with(asked, || 0)
    }

    /// `conflicts` grows with each attempt that the store has answered.
    pub(super) fn wait_with<T>(
        &mut self,
        asked: impl Future<Output = Result<T, LayerError>>,
        conflicts: impl Fn() -> u32,
    ) -> Result<T, LayerError> {
        if !self.shared.is_shared {
            // A local disk reports its errors; a slow one is waited for.
            return block_on(asked);
        }
        let mut asked = pin!(asked);
        let mut patience = if self.outage.is_unavailable { PATIENCE_IN_OUTAGE } else { PATIENCE };
        let mut seen = conflicts();
        loop {
            if let Some(answer) = self.shared.clock.block_on_for(asked.as_mut(), patience) {
                match &answer {
                    Ok(_) | Err(LayerError::Contended(_)) if self.outage.is_unavailable => {
                        self.outage.is_unavailable = false;
                        tracing::info!("the store answers again");
                    }
                    Err(LayerError::Store(StoreError::Unavailable(_))) => self.outage.is_unavailable = true,
                    _ => {}
                }
                return answer;
            }
            if std::mem::replace(&mut seen, conflicts()) != seen {
                continue;
            }
            if !self.outage.is_unavailable {
                self.outage.is_unavailable = true;
                tracing::error!(
                    "the store does not answer; messages to store are refused, live delivery continues"
                );
            }
            self.turn_away(Duration::ZERO)?;
            patience = TURN;
        }
    }

    /// Asks the store only if it was unavailable.
    pub(super) fn store_answers(&mut self) -> bool {
        if !self.outage.is_unavailable {
            return true;
        }
        let shared = self.shared;
        let asked = shared.layers.run(async |tx| Ok(tx.read_version().await?));
        self.wait(asked).is_ok()
    }

    pub(super) fn turn_away(&mut self, wait: Duration) -> Result<(), LayerError> {
        match self.shared.writes.take(wait) {
            TakenWork::Work(jobs) => {
                for job in jobs {
                    let (broker, bytes) = (job.broker().cloned(), job.size());
                    let is_over = match job.write {
                        Write::Publish(_)
                        | Write::Attach(_)
                        | Write::Subscribe(_)
                        | Write::Unsubscribe(_)
                        | Write::Purge(_)
                        | Write::Checkpoint(_) => {
                            self.refuse_job(job, Why::Passing);
                            true
                        }
                        Write::Confirmed { publisher, connection, count } => {
                            self.outage.hold_confirmed(publisher, connection, count)
                        }
                        // Other pods send these without a limit. Once the store answers, it says what they announced.
                        Write::Grown(broker, _) => {
                            self.shared.missed(Some(broker.id));
                            true
                        }
                        Write::Shared(shared) if shared.is_of_others() => {
                            shared.grown.iter().for_each(|(broker, _)| self.shared.missed(Some(*broker)));
                            true
                        }
                        Write::Notices => {
                            self.notices_read_at = 0;
                            true
                        }
                        _ => {
                            self.outage.held.push(job);
                            false
                        }
                    };
                    if is_over {
                        self.shared.writes.done(broker.as_deref(), bytes);
                    }
                }
            }
            TakenWork::Nothing => {}
            TakenWork::Closed => {
                let now_ms = self.shared.clock.now();
                if now_ms >= *self.outage.gives_up_at.get_or_insert(now_ms + FAREWELL_MS) {
                    return Err(StoreError::Unavailable("it did not answer before the end".into()).into());
                }
            }
        }
        self.send_now();
        Ok(())
    }
}

impl Job {
    /// Whether the job may run twice, apart from appending messages: a transaction that appends has a commit marker anyway. A
    /// CONNECT with a will may not, because the second run would publish the will of its own connection. Packet ids of group
    /// messages may not: if the second run is refused, the group gives a message that the session has to another member. A
    /// QoS 2 message may not, because its stored packet id would make it look like a duplicate.
    pub(super) fn is_repeatable(&self) -> bool {
        match &self.write {
            Write::Publish(publish) => publish.fence.is_none() || publish.message.qos() < QoS::ExactlyOnce,
            Write::Attach(attach) => attach.will.is_none(),
            Write::Ids(ids) => !matches!(&ids.write, IdWrite::Reserve(reserve) if !reserve.taken.is_empty()),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::StoreContext;

    #[test]
    fn notices_of_other_pods_take_no_memory_while_the_store_does_not_answer() {
        let (shared, id) = StoreContext::with_broker(true);
        let group = shared.group(id, "one", "t");
        let broker = shared.open("default").unwrap().unwrap();
        shared.member(id, "one", "t");
        let mut writer = Writer::new(&shared);
        writer.claims.grew(group);
        writer.serve_groups();
        assert_eq!(shared.claimed(group), []);
        shared.append_many(group, 1);
        for number in 0..1_000 {
            // Other topics in between, because equal notices in a row are one.
            shared.grown(&broker, &Arc::from(number.to_string()));
            shared.grown(&broker, &Arc::from("t"));
            shared.unclaimed(group);
            shared.look();
            writer.turn_away(Duration::ZERO).unwrap();
        }
        assert!(!writer.outage.holds(), "{} notices are held", writer.outage.held.len());
        assert!(shared.upkeep.missed.lock().unwrap().contains(&Some(id)));
        writer.tick(1_000);
        assert!(writer.claims.knows(group, shared.claimed(group)[0]));
    }

    #[test]
    fn confirmations_of_one_connection_are_held_as_one() {
        let mut outage = Outage::default();
        let publisher = PublisherKey { broker: 1, publisher: 7 };
        let connection = |generation| Some(ConnectionId { core: 0, slot: 0, generation });
        let mut merged = Vec::new();
        for (of, count) in [
            (connection(1), Some(1)),
            (connection(1), Some(2)),
            (connection(2), Some(1)),
            (connection(2), None),
            (connection(2), Some(1)),
            (None, Some(4)),
        ] {
            merged.push(outage.hold_confirmed(publisher, of, count));
        }
        assert_eq!(merged, [false, true, false, true, true, false]);
        let held = outage.take_held().into_iter().map(|job| match job.write {
            Write::Confirmed { connection, count, .. } => (connection.map(|of| of.generation), count),
            _ => panic!("another job"),
        });
        let mut held: Vec<_> = held.collect();
        held.sort_unstable();
        assert_eq!(held, [(None, Some(4)), (Some(1), Some(3)), (Some(2), None)]);
        assert!(!outage.holds());
    }
}
