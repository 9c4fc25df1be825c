//! Conflicts of a broker's transactions with changes of its filters by other pods.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// After a conflict more are likely for this time.
const CONFLICTS_MS: u64 = 5_000;
/// Jobs that a broker writes together in a transaction of its own, at first and at most.
const JOBS_MAX: usize = 128;

#[derive(Default)]
pub(crate) struct FilterConflicts {
    /// Until this time a publish conflicts only with changes of filters that match its topic.
    until_ms: AtomicU64,
    /// Until this time the broker's jobs share no transaction with those of other brokers.
    apart_until_ms: AtomicU64,
    halvings: AtomicUsize,
}

impl FilterConflicts {
    /// A transaction runs again after so many conflicts, and finds changes that were not there before. If it had expected them,
    /// others must not run again with it.
    pub(crate) fn note(&self, conflicts: u32, now_ms: u64) {
        if conflicts > 1 && self.are_expected(now_ms) {
            self.apart_until_ms.store(now_ms + CONFLICTS_MS, Ordering::Relaxed);
        }
        self.until_ms.store(now_ms + CONFLICTS_MS, Ordering::Relaxed);
    }

    pub(crate) fn are_expected(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn is_apart(&self, now_ms: u64) -> bool {
        now_ms < self.apart_until_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn jobs_apart(&self) -> usize {
        JOBS_MAX >> self.halvings.load(Ordering::Relaxed)
    }

    /// Fewer jobs take less time, in which fewer filters change.
    pub(crate) fn note_apart(&self, has_conflicted: bool) {
        let before = self.halvings.load(Ordering::Relaxed);
        let most = JOBS_MAX.ilog2() as usize;
        let now = if has_conflicted { (before + 1).min(most) } else { before.saturating_sub(1) };
        self.halvings.store(now, Ordering::Relaxed);
    }
}
