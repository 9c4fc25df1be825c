//! The common part of the engines of one machine: transactions that buffer their writes, conflict
//! checks in memory, and a thread that commits queued transactions in groups. A [`Backend`] only
//! stores keys and values.

mod backend;
mod buffer;
mod committer;
mod counters;
mod emptied;
mod merge;
mod overlay;
mod queue;
mod request;
mod resolver;
mod snapshots;
mod sums;
#[cfg(test)]
mod tests;
mod transaction;

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

pub(crate) use backend::{Backend, KeyWrite, Readiness, View};
use committer::Committer;
use counters::Counters;
use queue::CommitQueue;
use request::CommitRequest;
use snapshots::Snapshots;
use transaction::LocalTransaction;

use crate::{
    completion::Completion,
    error::StoreError,
    interface::{Engine, EngineTransaction},
    stat::Stat,
    version::{Committed, StoreVersion, Versionstamp},
};

/// An engine over a backend; dropping it ends its thread after all queued transactions.
pub(crate) struct LocalEngine<B: Backend> {
    shared: Arc<EngineState<B>>,
    thread: Option<JoinHandle<()>>,
}

struct EngineState<B: Backend> {
    backend: Arc<B>,
    snapshots: Snapshots<B::View>,
    queue: CommitQueue,
    counters: Counters,
}

type Accepted = (Versionstamp, Completion);

impl<B: Backend> EngineState<B> {
    fn report(&self, accepted: Vec<Accepted>, result: &Result<(), StoreError>) {
        if let Err(error) = result {
            self.counters.refused(error).add(accepted.len() as u64);
        }
        for (stamp, done) in accepted {
            let committed = Committed { versionstamp: Some(stamp) };
            done.complete(result.clone().map(|()| committed));
        }
    }

    fn refuse(&self, group: impl IntoIterator<Item = CommitRequest>, error: &StoreError) {
        let count = self.counters.refused(error);
        for request in group {
            count.add(1);
            request.done.complete(Err(error.clone()));
        }
    }
}

impl<B: Backend> LocalEngine<B> {
    pub(crate) fn start(backend: Arc<B>) -> io::Result<Self> {
        let snapshots = Snapshots::new(backend.version(), backend.view());
        let shared = Arc::new(EngineState {
            backend,
            snapshots,
            queue: CommitQueue::default(),
            counters: Counters::default(),
        });
        let committer = Committer::new(shared.clone());
        let thread = thread::Builder::new().name("store-commit".into()).spawn(move || committer.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(crate) fn snapshot(&self) -> (StoreVersion, impl View + use<B>) {
        let snapshot = self.shared.snapshots.current();
        (snapshot.version, snapshot)
    }
}

impl<B: Backend> Engine for LocalEngine<B> {
    fn begin(&self) -> Box<dyn EngineTransaction> {
        Box::new(LocalTransaction::new(self.shared.clone()))
    }

    fn stats(&self) -> Vec<Stat> {
        let (count, bytes) = self.shared.queue.count_and_bytes();
        self.shared.counters.waiting.set(count as u64);
        self.shared.counters.waiting_bytes.set(bytes as u64);
        let mut stats = self.shared.counters.list();
        stats.extend(self.shared.backend.stats());
        stats
    }
}

impl<B: Backend> Drop for LocalEngine<B> {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(thread) = self.thread.take() {
            // A completion that runs on the engine's own thread may hold the last handle, and a
            // thread cannot join itself.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!(
                    "the commit thread of the store ended with a panic: report it with the log before it"
                );
            }
        }
    }
}
