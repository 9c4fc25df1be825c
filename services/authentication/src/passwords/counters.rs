//! What became of password checks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(super) struct Counters {
    right: AtomicU64,
    wrong: AtomicU64,
    remembered: AtomicU64,
    cancelled: AtomicU64,
    busy: AtomicU64,
}

/// What became of password checks since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Hashes that were computed and fit.
    pub right: u64,
    /// Hashes that were computed and did not fit.
    pub wrong: u64,
    /// Requests that were answered from memory.
    pub remembered: u64,
    /// Requests that were skipped because their connection had gone.
    pub cancelled: u64,
    /// Requests that found too many others waiting.
    pub busy: u64,
    /// Requests that wait now.
    pub waiting: u64,
}

impl Counters {
    pub(super) fn checked(&self, is_right: bool) {
        if is_right { &self.right } else { &self.wrong }.fetch_add(1, Relaxed);
    }

    pub(super) fn remembered(&self) {
        self.remembered.fetch_add(1, Relaxed);
    }

    pub(super) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    pub(super) fn refused(&self) {
        self.busy.fetch_add(1, Relaxed);
    }

    pub(super) fn counts(&self, waiting: usize) -> Counts {
        Counts {
            right: self.right.load(Relaxed),
            wrong: self.wrong.load(Relaxed),
            remembered: self.remembered.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            busy: self.busy.load(Relaxed),
            waiting: waiting as u64,
        }
    }
}
