//! Publishes that do not ask the store for a read version (decision 0049).
//!
//! On a cluster a transaction asks for a read version, reads the changes of the filter index, and commits: three answers
//! in sequence. The writer knows the version of its last commit, and the filters that this commit watched. A transaction
//! that reads at that version waits for its commit alone; a filter changed since is a conflict (P2), and the next attempt
//! asks. The commit marker makes each transaction one with writes, because a cluster checks no others for conflicts.
//!
//! FoundationDB's Ratekeeper slows clients down by delaying read versions, so one transaction of a hundred asks.

use millrace_storage::{StoreVersion, Versionstamp};

use super::{Job, Write};

/// Transactions in sequence that need not ask, and for how long: a cluster checks conflicts for five seconds.
const UNASKED_MAX: u32 = 100;
const UNASKED_US: u64 = 1_000_000;

#[derive(Default)]
pub(super) struct ReadVersions {
    last: Option<StoreVersion>,
    left: u32,
    until_us: u64,
}

impl ReadVersions {
    /// The version at which a transaction of these jobs may read without asking.
    pub(super) fn for_jobs(&mut self, batch: &[Job], now_us: u64, now_ms: u64) -> Option<StoreVersion> {
        let is_expected = |job: &Job| match &job.write {
            Write::Publish(publish) => {
                !publish.retains && !publish.routes.broker.streams.expects_conflicts(now_ms)
            }
            Write::Mark { .. } | Write::Confirmed { .. } => true,
            _ => false,
        };
        if now_us >= self.until_us || self.left == 0 || batch.is_empty() || !batch.iter().all(is_expected) {
            return None;
        }
        self.left -= 1;
        self.last
    }

    pub(super) fn ask(&mut self) {
        self.left = 0;
    }

    /// Notes the end of a transaction whose last attempt asked for a version, or did not.
    pub(super) fn note(&mut self, committed: Option<Versionstamp>, has_asked: bool, now_us: u64) {
        let Some(stamp) = committed else {
            self.left = if has_asked { self.left } else { 0 };
            return;
        };
        self.last = Some(stamp.version());
        if has_asked {
            self.left = UNASKED_MAX;
            self.until_us = now_us + UNASKED_US;
        }
    }
}
