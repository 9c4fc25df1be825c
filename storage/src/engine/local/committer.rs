//! The commit thread: takes what waits as one group, checks each transaction, writes and syncs once, tells all. While it
//! syncs, the next group gathers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Shared,
    backend::{Backend, Readiness},
    emptied::Emptied,
    overlay::{Known, Overlay},
    queue::Queue,
    request::Request,
};
use crate::{
    completion::Completion,
    error::Error,
    host::instant,
    version::{Committed, Version, Versionstamp},
};

/// Time between two attempts to recover from a failure.
const RECOVER_EVERY: Duration = Duration::from_secs(1);

/// Time to wait for a backend that is behind before it is asked again.
const BEHIND_PAUSE: Duration = Duration::from_millis(2);

pub(super) struct Committer<B: Backend> {
    shared: Arc<Shared<B>>,
    known: Known,
    /// The last version that was given out.
    version: Version,
    /// Why nothing can be committed until the backend has recovered.
    failure: Option<Failure>,
}

struct Failure {
    error: Error,
    /// When to try to recover next.
    retry_at: Instant,
}

/// A transaction of a group that is not in conflict.
type Accepted = (Versionstamp, Completion);

impl<B: Backend> Committer<B> {
    pub(super) fn new(shared: Arc<Shared<B>>) -> Self {
        let version = shared.snapshots.current().version;
        Self { shared, known: Known::new(version), version, failure: None }
    }

    pub(super) fn run(mut self) {
        let shared = self.shared.clone();
        let _end = End(&shared.queue);
        while let Some(group) = shared.queue.group(self.failure.is_some().then_some(RECOVER_EVERY)) {
            match &self.failure {
                Some(failure) => {
                    refuse(group, &failure.error);
                    if instant() >= failure.retry_at {
                        self.recover();
                    }
                }
                None => self.take(group),
            }
        }
    }

    /// Commits a group once the backend is ready for it.
    fn take(&mut self, group: Vec<Request>) {
        loop {
            match self.shared.backend.readiness() {
                Readiness::Ready => return self.commit(group),
                Readiness::Behind => self.shared.queue.gather(BEHIND_PAUSE),
                Readiness::Refuse(error) => return refuse(group, &error),
                Readiness::Failed(error) => {
                    refuse(group, &error);
                    return self.fail(error);
                }
            }
        }
    }

    fn commit(&mut self, group: Vec<Request>) {
        self.version += 1;
        let mut accepted = Vec::with_capacity(group.len());
        let snapshot = self.shared.snapshots.current();
        let mut overlay = Overlay::new(&snapshot.view, self.version);
        let mut group = group.into_iter();
        while let Some(request) = group.next() {
            // A transaction that failed to be laid over may have left something: then none of the group is written.
            if let Err(error) = add(&mut self.known, self.version, &mut overlay, request, &mut accepted) {
                self.known.emptied = Emptied::default();
                refuse(group, &error);
                return tell(accepted, &Err(error));
            }
        }
        let writes = overlay.into_writes();
        drop(snapshot);
        match self.shared.backend.apply(self.version, writes) {
            Ok(()) => {
                let oldest = self.shared.snapshots.publish(self.version, self.shared.backend.view());
                self.known.resolver.forget_until(oldest);
                tell(accepted, &Ok(()));
            }
            Err(error) => {
                tell(accepted, &Err(Error::CommitUnknown));
                self.fail(error);
            }
        }
    }

    fn fail(&mut self, error: Error) {
        tracing::error!(%error, "the store failed: writes are refused until it has recovered");
        self.fail_again(error);
    }

    fn fail_again(&mut self, error: Error) {
        self.failure = Some(Failure { error, retry_at: instant() + RECOVER_EVERY });
    }

    fn recover(&mut self) {
        match self.shared.backend.recover() {
            Ok(()) => {
                tracing::info!("the store has recovered: writes are taken again");
                self.failure = None;
                self.version = self.version.max(self.shared.backend.version());
                // What was read before may have been read through what is closed now.
                self.known = Known::new(self.version);
                self.shared.snapshots.publish(self.version, self.shared.backend.view());
            }
            Err(error) => self.fail_again(error),
        }
    }
}

/// Closes the queue however the thread ends: nobody shall wait for a thread that is gone.
struct End<'a>(&'a Queue);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.close();
        refuse(self.0.take_all(), &Error::Closed);
    }
}

fn add<V: super::View>(
    known: &mut Known,
    version: Version,
    overlay: &mut Overlay<'_, V>,
    request: Request,
    accepted: &mut Vec<Accepted>,
) -> Result<(), Error> {
    let checked =
        request.base.as_ref().map_or(Ok(()), |base| known.resolver.check(base.version, &request.reads));
    if let Err(error) = checked {
        request.done.complete(Err(error));
        return Ok(());
    }
    // A group is never larger than its places.
    let place = u16::try_from(accepted.len()).unwrap_or(u16::MAX);
    let stamp = Versionstamp::new(version, place);
    accepted.push((stamp, request.done));
    for range in &request.write_conflicts {
        known.resolver.wrote_range(version, range);
    }
    overlay.add(request.mutations, stamp, known)
}

fn tell(accepted: Vec<Accepted>, result: &Result<(), Error>) {
    for (stamp, done) in accepted {
        let committed = Committed { versionstamp: Some(stamp) };
        done.complete(result.clone().map(|()| committed));
    }
}

fn refuse(group: impl IntoIterator<Item = Request>, error: &Error) {
    for request in group {
        request.done.complete(Err(error.clone()));
    }
}
