//! Brokers whose filters other pods change so often that their transactions conflict again and again. They write apart from
//! the others, a little in each turn, so that only they wait.

use std::collections::HashSet;
use std::sync::Arc;

use super::Writer;
use crate::broker::Broker;
use crate::store::backlog::{BacklogJob as _, Lane};
use crate::store::{Job, StoreContext};

/// Brokers that write apart in one turn of the writer. The turn ends with the first of them that conflicts.
const APART_MAX: usize = 4;
/// Conflicts after which such a broker waits for its next turn.
const CONFLICTS_APART: u32 = 2;

/// The fate of a batch whose transaction conflicts again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Contention {
    /// Brokers that conflict are written apart.
    Splits,
    PutsBack,
    Refuses,
}

impl Contention {
    pub(super) fn conflicts_max(self) -> u32 {
        match self {
            Self::Splits | Self::Refuses => super::CONFLICTS,
            Self::PutsBack => CONFLICTS_APART,
        }
    }
}

impl Writer<'_> {
    pub(in crate::store) fn write(&mut self, batch: Vec<Job>) {
        let (together, apart) = self.split_apart(batch);
        self.write_together(together, Contention::Splits);
        self.write_apart(apart);
    }

    fn split_apart(&self, batch: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
        let apart: HashSet<u64> = apart(self.shared, &batch).collect();
        if apart.is_empty() {
            return (batch, Vec::new());
        }
        batch.into_iter().partition(|job| broker_of(job).is_none_or(|broker| !apart.contains(&broker)))
    }

    fn write_apart(&mut self, jobs: Vec<Job>) {
        let mut by_broker: Vec<(u64, Vec<Job>)> = Vec::new();
        for job in jobs {
            let broker = broker_of(&job).unwrap_or_default();
            match by_broker.iter_mut().find(|(known, _)| *known == broker) {
                Some((_, jobs)) => jobs.push(job),
                None => by_broker.push((broker, vec![job])),
            }
        }
        let mut left = APART_MAX;
        for (_, mut jobs) in by_broker {
            let broker: Option<Arc<Broker>> = jobs.iter().find_map(Job::broker).cloned();
            if let Some(broker) = broker.filter(|_| left > 0) {
                let rest = jobs.split_off(broker.streams.conflicts.jobs_apart().min(jobs.len()));
                let has_conflicted = !self.write_together(jobs, Contention::PutsBack);
                broker.streams.conflicts.note_apart(has_conflicted);
                left = if has_conflicted { 0 } else { left - 1 };
                jobs = rest;
            }
            self.unfinished.extend(jobs);
        }
    }

    /// The brokers of these jobs miss the next transaction, so that the attempts of these cost others less.
    pub(super) fn put_off(&mut self, jobs: Vec<Job>) {
        let share = self.commit_times.budget().share;
        let brokers: HashSet<u64> = jobs.iter().filter_map(broker_of).collect();
        brokers.into_iter().for_each(|broker| self.backlog.owe(broker, share));
        self.unfinished.extend(jobs);
    }
}

pub(super) fn has_apart(shared: &StoreContext, batch: &[Job]) -> bool {
    apart(shared, batch).next().is_some()
}

fn apart(shared: &StoreContext, batch: &[Job]) -> impl Iterator<Item = u64> {
    let now_ms = shared.clock.now();
    let brokers = batch.iter().filter(|job| job.lane() != Lane::Checkpoint).filter_map(Job::broker);
    brokers.filter(move |broker| broker.streams.conflicts.is_apart(now_ms)).map(|broker| broker.id)
}

fn broker_of(job: &Job) -> Option<u64> {
    match job.lane() {
        Lane::Broker(broker) | Lane::Barrier(broker) => Some(broker),
        Lane::Checkpoint => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use bytes::Bytes;
    use millrace_layers::BrokerId;
    use millrace_layers::sessions::{self, SessionId};
    use millrace_layers::subscriptions::{self, StoredOptions};
    use millrace_mqtt::{PacketId, Properties, QoS};
    use millrace_router::Target;
    use millrace_session::Message;
    use millrace_storage::{Database, block_on};

    use super::*;
    use crate::connection_id::ConnectionId;
    use crate::jobs::{PublishAck, PublishWrite, Write};
    use crate::mailbox::Mail;
    use crate::routes::Routes;
    use crate::store::queue::TakenWork;
    use crate::store::testing_engine::ScriptedEngine;

    /// A session of another pod whose every SUBSCRIBE is the first to its filter.
    struct Churn {
        store: millrace_layers::Store,
        broker: BrokerId,
        epoch: u64,
        filters: AtomicU64,
    }

    impl Churn {
        fn begin(store: Database, broker: BrokerId) -> Self {
            let store = millrace_layers::Store::new(store);
            let attached = store.run(async |tx| {
                let (owner, will, details) = (Bytes::from_static(b"other pod"), None, None);
                let attach = sessions::Attach { owner, clean: true, expiry_s: 9, now_ms: 1, will, details };
                sessions::attach(&tx, SessionId { broker, client: b"c" }, attach).await
            });
            let epoch = block_on(attached).unwrap().epoch;
            Self { store, broker, epoch, filters: AtomicU64::new(0) }
        }

        fn subscribe(&self) {
            let filter = format!("+/{}", self.filters.fetch_add(1, Ordering::Relaxed));
            let subscribed = self.store.run(async |tx| {
                let session = SessionId { broker: self.broker, client: b"c" };
                let owned = sessions::fence(&tx, session, self.epoch).await?;
                let options = StoredOptions { bits: 1, identifier: 0 };
                subscriptions::subscribe(&owned, filter.as_bytes(), options).await
            });
            block_on(subscribed).unwrap();
        }
    }

    fn publish(broker: &Arc<Broker>) -> Job {
        let message = Arc::new(Message::new("x".into(), QoS::AtLeastOnce, false, Properties::EMPTY, b"x", 0));
        let publish = PublishWrite {
            reserved: broker.reserve_retained(&message),
            message,
            routes: Arc::new(Routes::new(broker.clone(), "x".into())),
            from: None,
            publisher: 1,
            retains: false,
            waits_for_commit: false,
            fence: None,
            skip_if: None,
            queued_us: 0,
        };
        let ack = PublishAck {
            broker: broker.id,
            connection: ConnectionId { core: 0, slot: 1, generation: 1 },
            session: Target { core: 0, slot: 1, generation: 1 },
            qos: QoS::AtLeastOnce,
            packet_id: PacketId::MIN,
            keeps_id: false,
            waits_for_commit: false,
            publisher: 1,
            holds_back: false,
        };
        Job { write: Write::Publish(publish), ack: Some(ack) }
    }

    /// How many messages of each broker were acknowledged.
    fn acknowledged(shared: &StoreContext, brokers: [&Arc<Broker>; 2]) -> [usize; 2] {
        let mut mail = Vec::new();
        shared.mailboxes[0].take(&mut mail);
        let acks: Vec<PublishAck> = mail
            .into_iter()
            .filter_map(|mail| match mail {
                Mail::Stored { acks, stored: true } => Some(acks),
                _ => None,
            })
            .flatten()
            .collect();
        brokers.map(|broker| acks.iter().filter(|ack| ack.broker == broker.id).count())
    }

    #[test]
    fn a_broker_whose_filters_change_all_the_time_delays_no_other() {
        let (engine, database) = ScriptedEngine::new();
        let (shared, _) = StoreContext::with_broker_on(database, true);
        let open = |name: &str| {
            block_on(shared.layers.ensure_broker(name.as_bytes())).unwrap();
            let broker = shared.open(name).unwrap().unwrap();
            broker.stay_open();
            broker
        };
        let (bad, good) = (open("bad"), open("good"));
        let churn = Churn::begin(engine.store.clone(), bad.id);
        let (commits, changes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let (counted, is_on) = (commits.clone(), changes.clone());
        let churn = Mutex::new(churn);
        engine.before_each_commit(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            if is_on.load(Ordering::Relaxed) {
                churn.lock().unwrap().subscribe();
            }
        });
        let mut writer = Writer::new(&shared);
        let write_both = |writer: &mut Writer<'_>| {
            let before = commits.load(Ordering::Relaxed);
            let _ = writer.step(TakenWork::Work(vec![publish(&bad), publish(&good)]));
            (acknowledged(&shared, [&bad, &good]), commits.load(Ordering::Relaxed) - before)
        };
        let (acks, first) = write_both(&mut writer);
        assert_eq!(acks, [0, 1]);
        assert!(first <= 5, "{first} commits");
        for _ in 0..10 {
            let (acks, commits) = write_both(&mut writer);
            assert_eq!(acks, [0, 1]);
            assert!(commits <= 3, "{commits} commits");
        }
        assert!(!writer.outage.is_unavailable());
        changes.store(false, Ordering::Relaxed);
        let mut late = 0;
        for _ in 0..10 {
            let _ = writer.step(TakenWork::Nothing);
            late += acknowledged(&shared, [&bad, &good])[0];
        }
        assert_eq!(late, 11, "no message is lost or refused");
    }
}
