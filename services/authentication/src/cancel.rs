//! Cancels queued password checks whose client has disconnected.

use std::sync::{Arc, Weak};

/// Held by the waiting connection; dropping it cancels the request.
#[derive(Debug, Default)]
pub struct PendingRequest(Arc<()>);

/// Belongs to a request, which is skipped once the [`PendingRequest`] is dropped, unless its check has
/// begun. The default is never cancelled.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Option<Weak<()>>);

impl PendingRequest {
    pub fn cancellation(&self) -> Cancellation {
        Cancellation(Some(Arc::downgrade(&self.0)))
    }
}

impl Cancellation {
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|pending| pending.strong_count() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_cancelled_when_its_connection_lets_go() {
        let pending = PendingRequest::default();
        let cancellation = pending.cancellation();
        assert!(!cancellation.is_cancelled());
        drop(pending);
        assert!(cancellation.is_cancelled());
        assert!(!Cancellation::default().is_cancelled());
    }
}
