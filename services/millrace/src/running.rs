//! The running edge of this process, for the parts that ask it, and the changes that only it can
//! make because it has the data in memory.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use millrace_edge::Edge;

/// The edge, shared by the HTTP ports; `None` once the process stops.
pub(crate) type Running = Arc<RwLock<Option<Edge>>>;

/// How long a request waits for an event loop, in case it is blocked.
const LOOP_ANSWER_MAX: Duration = Duration::from_secs(10);

/// Changes by the running edge. The methods block, so each request calls them on a thread of its
/// own.
pub(crate) trait LiveChanges: Send + Sync {
    /// Ends a session on any pod: closes its connection, publishes its will, removes its data.
    /// Returns whether there was one.
    ///
    /// # Errors
    /// A sentence that says why not and what to do.
    fn purge_session(&self, broker: &str, client_id: &str) -> Result<bool, String>;

    /// Removes a retained message from memory, and returns whether there was one. The store removes it a
    /// little later, in the order of the calls.
    ///
    /// # Errors
    /// A sentence that says why not and what to do.
    fn clear_retained(&self, broker: &str, topic: &str) -> Result<bool, String>;
}

impl LiveChanges for Running {
    fn purge_session(&self, broker: &str, client_id: &str) -> Result<bool, String> {
        let running = self.read().unwrap_or_else(PoisonError::into_inner);
        let answer = running.as_ref().map(|edge| edge.purge_session(broker, client_id));
        // Released early: a stop that waits for it blocks all other requests.
        drop(running);
        let stopping = || "the server is stopping".to_owned();
        match answer.ok_or_else(stopping)??.recv_timeout(LOOP_ANSWER_MAX) {
            Ok(purged) => purged,
            Err(RecvTimeoutError::Disconnected) => Err(stopping()),
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "the session's owner has not answered within {} s: try again, and see the server's log",
                LOOP_ANSWER_MAX.as_secs()
            )),
        }
    }

    fn clear_retained(&self, broker: &str, topic: &str) -> Result<bool, String> {
        let running = self.read().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().ok_or("the server is stopping")?.clear_retained(broker, topic)
    }
}
