//! The commit thread: takes the queued transactions as one group (one version), checks each, writes
//! and syncs once, publishes a snapshot with the writes, and only then reports to all, so that
//! everybody reads what was reported, while the next group gathers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    EngineState,
    backend::{Backend, Readiness},
    counters::{Written, micros},
    overlay::{CommitMemory, Overlay},
    request::CommitRequest,
};
use crate::{
    clock::instant,
    error::StoreError,
    version::{StoreVersion, Versionstamp},
};

/// Time between two attempts to recover from a failure, and between two checks for free space.
const RECOVER_EVERY: Duration = Duration::from_secs(1);

/// Time after the last commit until the backend is asked to free memory.
const FREE_EVERY: Duration = Duration::from_secs(1);

const BEHIND_PAUSE: Duration = Duration::from_millis(2);

pub(super) struct Committer<B: Backend> {
    shared: Arc<EngineState<B>>,
    known: CommitMemory,
    version: StoreVersion,
    failure: Option<CommitFailure>,
    /// The backend refused a write for lack of space; it is asked again even without new
    /// transactions, because it may be making room.
    short: bool,
    unfreed: bool,
}

struct CommitFailure {
    error: StoreError,
    retry_at: Instant,
}

impl<B: Backend> Committer<B> {
    pub(super) fn new(shared: Arc<EngineState<B>>) -> Self {
        let version = shared.snapshots.current().version;
        Self {
            shared,
            known: CommitMemory::new(version),
            version,
            failure: None,
            short: false,
            unfreed: false,
        }
    }

    pub(super) fn run(mut self) {
        let shared = self.shared.clone();
        let _end = End(&shared);
        while let Some(group) = shared.queue.take_group(self.patience()) {
            match &self.failure {
                Some(failure) => {
                    shared.refuse(group, &failure.error);
                    if instant() >= failure.retry_at {
                        self.recover();
                    }
                }
                None => self.take(group),
            }
        }
    }

    fn patience(&self) -> Option<Duration> {
        let is_asked_again = self.short || self.failure.is_some();
        is_asked_again.then_some(RECOVER_EVERY).or(self.unfreed.then_some(FREE_EVERY))
    }

    /// Commits a group as soon as the backend accepts it, or refuses it. An empty group lets the
    /// backend free memory.
    fn take(&mut self, group: Vec<CommitRequest>) {
        let mut stalled = false;
        loop {
            let readiness = self.shared.backend.readiness();
            self.short = matches!(readiness, Readiness::Low(_) | Readiness::Refuse(_));
            match readiness {
                Readiness::Ready if group.is_empty() => {
                    if self.unfreed {
                        // The current view may be the last view of an old version, so a new one
                        // replaces it.
                        self.publish();
                        self.shared.backend.idle();
                        self.unfreed = self.shared.backend.free();
                    }
                    return;
                }
                Readiness::Ready => return self.commit(group),
                Readiness::Behind => {
                    self.shared.counters.stalls.add(u64::from(!stalled));
                    stalled = true;
                    self.wait_for_backend();
                }
                Readiness::Low(error) => {
                    let (accepted, rest): (Vec<_>, _) =
                        group.into_iter().partition(|request| request.frees_space);
                    self.shared.refuse(rest, &error);
                    if accepted.is_empty() {
                        // Merged tables are deleted once no snapshot uses them, so a new view
                        // replaces the current one.
                        self.publish();
                        self.shared.backend.free();
                        return;
                    }
                    return self.commit(accepted);
                }
                Readiness::Refuse(error) => return self.shared.refuse(group, &error),
                Readiness::Failed(error) => {
                    self.shared.refuse(group, &error);
                    return self.fail(error);
                }
            }
        }
    }

    fn wait_for_backend(&mut self) {
        let began = instant();
        self.shared.queue.pause(BEHIND_PAUSE);
        self.shared.counters.stall_micros.add(micros(began.elapsed()));
    }

    fn commit(&mut self, group: Vec<CommitRequest>) {
        let began = instant();
        self.version += 1;
        let mut accepted = Vec::with_capacity(group.len());
        let snapshot = self.shared.snapshots.current();
        let mut overlay = Overlay::new(&snapshot.view, self.version);
        let mut group = group.into_iter();
        while let Some(request) = group.next() {
            if let Err(error) = self.known.check(&request) {
                self.shared.refuse([request], &error);
                continue;
            }
            // `GROUP_MAX` keeps the number of a transaction within 16 bits.
            let number = u16::try_from(accepted.len()).unwrap_or(u16::MAX);
            let stamp = Versionstamp::new(self.version, number);
            accepted.push((stamp, request.done));
            self.known.wrote(self.version, &request.write_conflicts);
            // A failed overlay may be incomplete, so nothing of the group is written.
            if let Err(error) = overlay.add(request.mutations, stamp, &mut self.known) {
                self.known.undo();
                self.version -= 1;
                self.shared.refuse(group, &error);
                return self.shared.report(accepted, &Err(error));
            }
        }
        let writes = overlay.into_writes();
        drop(snapshot);
        if accepted.is_empty() {
            self.version -= 1;
            return;
        }
        let written = Written::of(&writes, accepted.len());
        match self.shared.backend.apply(self.version, writes) {
            Ok(()) => {
                self.publish();
                self.shared.counters.committed(&written, began.elapsed());
                self.shared.report(accepted, &Ok(()));
                self.shared.backend.free();
                self.unfreed = true;
            }
            Err(error) => {
                self.shared.report(accepted, &Err(StoreError::CommitUnknown));
                self.fail(error);
            }
        }
    }

    fn publish(&mut self) {
        let oldest = self.shared.snapshots.publish(self.version, self.shared.backend.view());
        self.known.resolver.forget_until(oldest);
    }

    fn fail(&mut self, error: StoreError) {
        tracing::error!(%error, "the store failed: writes are refused until it has recovered");
        self.shared.counters.failures.add(1);
        self.fail_again(error);
    }

    fn fail_again(&mut self, error: StoreError) {
        self.failure = Some(CommitFailure { error, retry_at: instant() + RECOVER_EVERY });
    }

    fn recover(&mut self) {
        match self.shared.backend.recover() {
            Ok(()) => {
                tracing::info!("the store has recovered, and accepts writes again");
                self.failure = None;
                // The last assigned version may be lost; its transactions were not acknowledged.
                self.version = self.shared.backend.version();
                // Remembered values may come from reads through the store that is now closed.
                self.known = CommitMemory::new(self.version);
                self.shared.snapshots.publish(self.version, self.shared.backend.view());
            }
            Err(error) => self.fail_again(error),
        }
    }
}

/// Closes the queue however the thread ends, so that no transaction waits for a thread that is
/// gone.
struct End<'a, B: Backend>(&'a EngineState<B>);

impl<B: Backend> Drop for End<'_, B> {
    fn drop(&mut self) {
        self.0.queue.close();
        self.0.refuse(self.0.queue.take_all(), &StoreError::Closed);
    }
}
