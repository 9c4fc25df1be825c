//! What must not be changed behind a running server's back: it is asked to do it itself.

use std::sync::PoisonError;
use std::time::Duration;

use crate::serve::Running;

/// How long a server may take to do what it is asked.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server. Both are called on a thread of their own, and may wait for what they ask.
pub(crate) trait Live: Send + Sync {
    /// Ends a session whoever has it: closes its connection, publishes its will, removes all of it. Returns whether there was one.
    ///
    /// # Errors
    /// A sentence that says why not and what to do.
    fn purge_session(&self, broker: &str, client_id: &str) -> Result<bool, String>;

    /// Removes the retained message of a topic. Returns whether there was one. It may leave the store a little later, in the order
    /// in which it was asked.
    ///
    /// # Errors
    /// As above.
    fn clear_retained(&self, broker: &str, topic: &str) -> Result<bool, String>;
}

impl Live for Running {
    fn purge_session(&self, broker: &str, client_id: &str) -> Result<bool, String> {
        let running = self.read().unwrap_or_else(PoisonError::into_inner);
        let answer = running.as_ref().map(|edge| edge.purge_session(broker, client_id));
        // Others ask the server too.
        drop(running);
        let stopping = || "the server is stopping".to_owned();
        answer.ok_or_else(stopping)??.recv_timeout(PATIENCE).map_err(|_| stopping())?
    }

    fn clear_retained(&self, broker: &str, topic: &str) -> Result<bool, String> {
        let running = self.read().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().ok_or("the server is stopping")?.clear_retained(broker, topic)
    }
}
