//! What the engines of one machine share: transactions that buffer their writes, conflict checks in memory, and a thread
//! that commits what waits in groups. A [`Backend`] only keeps keys and values.

mod backend;
mod buffer;
mod committer;
mod emptied;
mod merge;
mod overlay;
mod queue;
mod range_set;
mod request;
mod resolver;
mod snapshots;
#[cfg(test)]
mod tests;
mod transaction;

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

pub(crate) use backend::{Backend, Readiness, View, Write};
use committer::Committer;
use queue::Queue;
use snapshots::Snapshots;
use transaction::LocalTransaction;

use crate::{
    engine::{Engine, EngineTransaction},
    version::Version,
};

/// An engine over a backend. Its thread ends, after all that waits, when this is dropped.
pub(crate) struct LocalEngine<B: Backend> {
    shared: Arc<Shared<B>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<B: Backend> {
    backend: Arc<B>,
    snapshots: Snapshots<B::View>,
    queue: Queue,
}

impl<B: Backend> LocalEngine<B> {
    /// Starts the commit thread.
    pub(crate) fn start(backend: Arc<B>) -> io::Result<Self> {
        let snapshots = Snapshots::new(backend.version(), backend.view());
        let shared = Arc::new(Shared { backend, snapshots, queue: Queue::default() });
        let committer = Committer::new(shared.clone());
        let thread = thread::Builder::new().name("store-commit".into()).spawn(move || committer.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The newest durable version and its keys.
    pub(crate) fn snapshot(&self) -> (Version, impl View + use<B>) {
        let snapshot = self.shared.snapshots.current();
        (snapshot.version, snapshot)
    }
}

impl<B: Backend> Engine for LocalEngine<B> {
    fn begin(&self) -> Box<dyn EngineTransaction> {
        Box::new(LocalTransaction::new(self.shared.clone()))
    }
}

impl<B: Backend> Drop for LocalEngine<B> {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(thread) = self.thread.take() {
            // A completion may hold the last handle of the store; its thread is the one that would be waited for.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!("the commit thread of the store ended in a panic");
            }
        }
    }
}
