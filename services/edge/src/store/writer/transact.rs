//! One transaction of the writer, whose outcome is always known in the end: the commit marker decides after a lost answer.

use std::cell::Cell;

use millrace_layers::once::Attempts;
use millrace_layers::{LayerError, pods as layer_pods};
use millrace_storage::{Attempt, StoreError, StoreVersion, Transaction, Versionstamp};

use super::refusals::{is_unknown, known};
use super::{RETRY, Writer};
use crate::store::apply::{Applied, Applier};
use crate::store::bugs::{WriterBug, has_bug};
use crate::store::{Job, StoreContext};

impl Writer<'_> {
    /// Runs `body` until it has committed exactly once. If an attempt's outcome is unknown, the commit marker decides, which
    /// replaces that of the transaction before (`marked`).
    /// An error means that nothing was committed, except [`StoreError::CommitUnknown`]: the process ends before the
    /// store has answered. After a number of conflicts it gives up.
    pub(in crate::store) fn transact(
        &mut self,
        batch: &[Job],
        conflicts_max: u32,
        body: &impl AsyncFn(&Applier<'_>) -> Result<(), LayerError>,
    ) -> Result<(Applied, Option<Versionstamp>), LayerError> {
        let shared = self.shared;
        let attempts = self.marks.attempts();
        let is_marked = shared.is_shared || batch.iter().any(|job| !job.is_repeatable());
        let (work_us, marks) = (Cell::new(0), Cell::new(false));
        let attempted = Cell::new(Attempt { number: 1, conflicts: 0, maybe_committed: false });
        let last = self.marked.take();
        let began_us = shared.clock.micros();
        let (reads_at, state) = (self.reads_at(batch), self.state());
        let run = shared.layers.database().run_committed(|tx, attempt| {
            let (attempts, attempted, work_us, marks) = (&attempts, &attempted, &work_us, &marks);
            async move {
                shared.transactions.note_attempt(attempted.replace(attempt), attempt);
                if attempt.maybe_committed
                    && let Some(stamp) = find(attempts, &tx, shared).await?
                {
                    return Ok(Some(stamp));
                }
                if attempt.conflicts >= conflicts_max {
                    return Err(LayerError::Contended(attempt.conflicts));
                }
                if let Some(version) = reads_at.filter(|_| attempt.number == 1) {
                    tx.set_read_version(version);
                }
                let began_us = shared.clock.micros();
                let applier = Applier::new(&tx, shared, attempt.number > 1);
                let applier = applier.after_conflicts(attempt.conflicts).in_state(state);
                body(&applier).await?;
                applier.finish()?;
                let changes_memory = applier.applied().changes_memory();
                let number = attempts.push(applier.into_applied());
                marks.set(is_marked || changes_memory);
                if marks.get() {
                    let last = last.filter(|_| !attempt.maybe_committed);
                    layer_pods::put_marker(&tx, &shared.owner, number, last)?;
                }
                work_us.set(shared.clock.micros() - began_us);
                Ok::<_, LayerError>(None)
            }
        });
        let result = self.wait_with(run, || attempted.get().conflicts);
        let newest = result.as_ref().ok().and_then(|(_, committed)| committed.versionstamp);
        let has_asked = reads_at.is_none() || attempted.get().number > 1;
        self.read_versions.note(batch, newest, has_asked, shared.clock.micros());
        shared.transactions.note_end(&result);
        self.note_times(work_us.get(), (newest.is_some() && !batch.is_empty()).then_some(began_us));
        let stamp = match result {
            Ok((earlier, committed)) => earlier.or(committed.versionstamp),
            Err(error) if attempted.get().maybe_committed || is_unknown(&error) => {
                let committed = if marks.get() { self.resolve(batch, &attempts)? } else { None };
                let Some(stamp) = committed else { return Err(known(error)) };
                Some(stamp)
            }
            Err(error) => {
                self.marked = last;
                return Err(error);
            }
        };
        if stamp.is_some() {
            shared.transactions.seconds.note(shared.clock.micros().saturating_sub(began_us));
        }
        self.marked = if marks.get() { stamp } else { last };
        Ok((attempts.into_committed().unwrap_or_default(), stamp))
    }

    fn note_times(&mut self, work_us: u64, began_us: Option<u64>) {
        self.work_us = work_us;
        self.commit_times.note(work_us / 1_000);
        if let Some(began_us) = began_us {
            self.commit_times.note_commit((self.shared.clock.micros() - began_us).saturating_sub(work_us));
        }
    }

    fn reads_at(&mut self, batch: &[Job]) -> Option<StoreVersion> {
        let StoreContext { clock, is_shared, .. } = self.shared;
        is_shared.then(|| self.read_versions.for_jobs(batch, clock.micros(), clock.now())).flatten()
    }

    /// Finds out whether one of these attempts was committed, however long the store does not answer. Meanwhile nothing
    /// that depends on them continues, and new jobs are refused.
    ///
    /// A missing marker proves nothing until a later transaction of this pod has committed: an engine that failed still
    /// reads its earlier state, and may restore the commit when it reopens its journal.
    ///
    /// # Errors
    /// [`StoreError::CommitUnknown`] if the process ends first.
    fn resolve(
        &mut self,
        batch: &[Job],
        attempts: &Attempts<Applied>,
    ) -> Result<Option<Versionstamp>, LayerError> {
        if has_bug(WriterBug::ForgetsDoubt) {
            return Ok(None);
        }
        tracing::warn!(
            "it is not known whether a transaction was committed; writes wait until the store answers"
        );
        self.taken_back.begin_doubt(batch);
        let found = self.ask_for_marker(attempts);
        self.taken_back.end_doubt();
        found
    }

    fn ask_for_marker(&mut self, attempts: &Attempts<Applied>) -> Result<Option<Versionstamp>, LayerError> {
        let shared = self.shared;
        loop {
            let asked = shared.layers.run(async |tx| {
                let found = attempts.find(&tx, &shared.owner).await?;
                if found.is_none() {
                    layer_pods::put_marker(&tx, &shared.owner, u128::MAX, None)?;
                }
                Ok(found)
            });
            if let Ok(found) = self.wait(asked) {
                return Ok(found);
            }
            self.turn_away(RETRY).map_err(|_| LayerError::Store(StoreError::CommitUnknown))?;
        }
    }
}

/// The versionstamp of the attempt that the commit marker names.
async fn find(
    attempts: &Attempts<Applied>,
    tx: &Transaction,
    shared: &StoreContext,
) -> Result<Option<Versionstamp>, LayerError> {
    if has_bug(WriterBug::RepeatsUnknown) {
        return Ok(None);
    }
    attempts.find(tx, &shared.owner).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use millrace_layers::sessions::{self, KeepWill, SessionId};
    use millrace_layers::subscriptions::{self, StoredOptions};
    use millrace_mqtt::topic::Filter;
    use millrace_mqtt::{Properties, QoS};
    use millrace_router::{Subscription, Target};
    use millrace_session::Message;

    use super::*;
    use crate::broker::Broker;
    use crate::connection_id::ConnectionId;
    use crate::jobs::{AttachWrite, AttachedSession, DetachWrite, Write};
    use crate::mailbox::Mail;
    use crate::store::testing_engine::{Fate, ScriptedEngine};
    use crate::store::{duties, record};

    struct Process {
        engine: ScriptedEngine,
        shared: StoreContext,
        broker: Arc<Broker>,
        epoch: u64,
    }

    impl Process {
        /// A process alone with its store, and a session that has the only subscription to `f`.
        fn start(will: Option<Message>) -> Self {
            let (engine, database) = ScriptedEngine::new();
            let (shared, id) = StoreContext::with_broker_on(database, false);
            let will = will.map(|will| {
                let body = record::encode_will(&will, false).into();
                sessions::PendingWill { delay_s: 0, body }
            });
            let epoch = shared.run(&async |tx| {
                let session = SessionId { broker: id, client: b"c" };
                let (owner, details) = (Bytes::copy_from_slice(&shared.owner), None);
                let attach = sessions::Attach {
                    owner,
                    clean: true,
                    expiry_s: 9,
                    now_ms: 1,
                    will: will.clone(),
                    details,
                };
                let epoch = sessions::attach(tx, session, attach).await?.epoch;
                let owned = sessions::fence(tx, session, epoch).await?;
                let options = StoredOptions { bits: 1, identifier: 0 };
                subscriptions::subscribe(&owned, b"f", options).await?;
                Ok(epoch)
            });
            let broker = shared.open("default").unwrap().unwrap();
            Self { engine, shared, broker, epoch }
        }

        /// Writes a job while the engine fails. When the engine has opened its journal again, the job's transaction is in it.
        fn write_with_failed_fsync(&self, write: Write) {
            let mut writer = Writer::new(&self.shared);
            let failure = Fate::Fails(StoreError::Io("the disk failed".into()));
            self.engine.then([Fate::Breaks, failure, Fate::Recovered]);
            writer.write(vec![Job { write, ack: None }]);
            for second in 1..4 {
                writer.tick(1_000 * second);
                duties::step(&mut writer);
                writer.send_now();
            }
        }
    }

    #[test]
    fn a_will_reaches_subscribers_when_the_journal_brings_its_transaction_back() {
        let will = Message::new("t".into(), QoS::AtMostOnce, false, Properties::EMPTY, b"gone", 0);
        let process = Process::start(Some(will));
        let target = Target { core: 0, slot: 1, generation: 1 };
        let (qos, no_local, retain_as_published) = (QoS::AtMostOnce, false, false);
        let (persistent, identifier) = (false, 0);
        let watcher = Subscription { target, qos, no_local, retain_as_published, persistent, identifier };
        let filter = Filter { share: None, filter: "t" };
        process.broker.router.edit(|edit| edit.subscribe(filter, watcher));
        let (client, epoch) = ("c".into(), process.epoch);
        let attached = AttachedSession { client, epoch, expiry_s: 9, ..AttachedSession::default() };
        let detach = DetachWrite::unused(process.broker.clone(), attached, 2);
        let detach = DetachWrite { keep_will: KeepWill::Yes, ..detach };
        process.write_with_failed_fsync(Write::Detach(Box::new(detach)));
        let mut mail = Vec::new();
        process.shared.mailboxes[0].take(&mut mail);
        let wills = mail.iter().filter(|mail| matches!(mail, Mail::Publish { .. }));
        assert_eq!(wills.count(), 1);
    }

    #[test]
    fn a_filter_that_has_ended_gets_no_messages_when_the_journal_brings_its_end_back() {
        let process = Process::start(None);
        let streams = || process.broker.streams.matches("f").streams.len();
        assert_eq!(streams(), 1);
        let attach = AttachWrite {
            broker: process.broker.clone(),
            client: "c".into(),
            connection: ConnectionId { core: 0, slot: 1, generation: 1 },
            clean: true,
            expiry_s: 0,
            will: None,
            by_password: false,
            user: None,
            is_visitor: false,
            asked: None,
            ask_at: 0,
            asker: std::sync::Weak::new(),
        };
        process.write_with_failed_fsync(Write::Attach(Box::new(attach)));
        assert_eq!(streams(), 0);
    }
}
