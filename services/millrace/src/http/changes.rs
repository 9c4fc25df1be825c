//! Limits the changes of the API that run at once. Connections do not bound them, because a change outlives its connection.
//!
//! A change takes its permit before its caller is known. So at the limit, the oldest change whose body has not arrived gives
//! way: otherwise strangers could hold all permits by requests that they do not finish.

use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::connections::Closer;

pub(super) struct HttpChanges {
    max: usize,
    open: Mutex<OpenChanges>,
}

#[derive(Default)]
struct OpenChanges {
    all: usize,
    /// Changes whose body has not arrived, by number: the oldest first.
    arriving: BTreeMap<u64, Closer>,
    /// Changes that gave way and have not ended yet.
    evicted: HashSet<u64>,
    last: u64,
}

/// The permit of one change, until it is dropped.
pub(super) struct HttpChange {
    changes: Arc<HttpChanges>,
    number: u64,
}

impl HttpChanges {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, open: Mutex::default() })
    }

    /// `arriving` closes the connection of a change whose body has not arrived. Returns `None` when the change must be refused.
    pub(super) fn take(self: &Arc<Self>, arriving: Option<Closer>) -> Option<HttpChange> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.all - open.evicted.len() >= self.max {
            // A bound on evicted changes: there are never more than twice as many as allowed.
            let oldest = if open.evicted.len() < self.max { open.arriving.pop_first() } else { None };
            let (number, oldest) = oldest?;
            open.evicted.insert(number);
            oldest.close();
        }
        open.last += 1;
        open.all += 1;
        let number = open.last;
        if let Some(closer) = arriving {
            open.arriving.insert(number, closer);
        }
        drop(open);
        Some(HttpChange { changes: Arc::clone(self), number })
    }

    /// Changes that would give way.
    #[cfg(test)]
    pub(super) fn arriving(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).arriving.len()
    }
}

impl HttpChange {
    fn has_arrived(&self) {
        let mut open = self.changes.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.arriving.remove(&self.number);
    }
}

impl Drop for HttpChange {
    fn drop(&mut self) {
        let mut open = self.changes.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.arriving.remove(&self.number);
        open.evicted.remove(&self.number);
        open.all -= 1;
    }
}

/// The body of a change. When it has been read to its end, the change does not give way any more.
pub(super) struct ArrivingBody {
    pub(super) body: Body,
    pub(super) change: Arc<HttpChange>,
}

impl HttpBody for ArrivingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || polled.is_ready() && self.body.is_end_stream() {
            self.change.has_arrived();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
