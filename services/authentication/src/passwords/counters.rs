//! Counts the results of password checks, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(super) struct PasswordCounters {
    right: AtomicU64,
    wrong: AtomicU64,
    remembered: AtomicU64,
    cancelled: AtomicU64,
    busy: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordCheckCounts {
    pub right: u64,
    pub wrong: u64,
    pub remembered: u64,
    pub cancelled: u64,
    /// Requests refused because the queue was full.
    pub busy: u64,
    pub waiting: u64,
}

impl PasswordCounters {
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

    pub(super) fn counts(&self, waiting: usize) -> PasswordCheckCounts {
        PasswordCheckCounts {
            right: self.right.load(Relaxed),
            wrong: self.wrong.load(Relaxed),
            remembered: self.remembered.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            busy: self.busy.load(Relaxed),
            waiting: waiting as u64,
        }
    }
}
