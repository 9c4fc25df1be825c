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
        let (reads_at, memory_lags) = (self.reads_at(batch), self.taken_back.memory_lags());
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
                let is_retry = attempt.number > 1;
                let applier = Applier::new(&tx, shared, is_retry).with_memory_that_lags(memory_lags);
                body(&applier).await?;
                applier.finish()?;
                let has_order = applier.applied().last_number > 0;
                let number = attempts.push(applier.into_applied());
                marks.set(is_marked || has_order);
                if marks.get() {
                    let last = last.filter(|_| !attempt.maybe_committed);
                    layer_pods::put_marker(&tx, &shared.owner, number, last)?;
                }
                work_us.set(shared.clock.micros() - began_us);
                Ok::<_, LayerError>(None)
            }
        });
        let result = self.wait(run);
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
