//! Publishes that do not ask the store for a read version (decision 0049).
//!
//! On a cluster a transaction asks for a read version, reads the changes of the filter index, and commits: three answers
//! in sequence. The writer knows the version of its last commit, and the filters that this commit watched. A transaction
//! for the same brokers that reads just below that version waits for its commit alone; a filter changed since is a
//! conflict (P2), and the next attempt asks.
//!
//! Just below, because another pod's change may have the same version and come after the commit in it. The writer's own
//! commit is then above the read version, so it must not have changed what the next one watches: only publishes qualify.

use millrace_storage::{StoreVersion, Versionstamp};

use super::{Job, Write};

/// FoundationDB's Ratekeeper slows clients down by delaying read versions, so a transaction asks after this many that did
/// not, or this long after the last one that asked.
const UNASKED_MAX: u32 = 100;
const UNASKED_US: u64 = 1_000_000;

#[derive(Default)]
pub(super) struct ReadVersions {
    last: Option<StoreVersion>,
    left: u32,
    until_us: u64,
}

impl ReadVersions {
    /// The version at which a transaction of these jobs may read without asking; uses up one of `left`.
    pub(super) fn for_jobs(&mut self, batch: &[Job], now_us: u64, now_ms: u64) -> Option<StoreVersion> {
        let expects_conflicts =
            |job: &Job| job.broker().is_some_and(|of| of.streams.expects_conflicts(now_ms));
        if now_us >= self.until_us
            || self.left == 0
            || !only_publish(batch)
            || batch.iter().any(expects_conflicts)
        {
            return None;
        }
        self.left -= 1;
        self.last
    }

    /// Notes the end of a transaction. `has_asked`: its last attempt asked for a version.
    pub(super) fn note(
        &mut self,
        batch: &[Job],
        committed: Option<Versionstamp>,
        has_asked: bool,
        now_us: u64,
    ) {
        let before = committed.and_then(|stamp| stamp.version().checked_sub(1));
        self.last = before.filter(|_| only_publish(batch));
        if has_asked {
            self.left = UNASKED_MAX;
            self.until_us = now_us + UNASKED_US;
        }
    }
}

fn only_publish(batch: &[Job]) -> bool {
    let only_publishes = |job: &Job| match &job.write {
        Write::Publish(publish) => !publish.retains,
        Write::Mark { .. } | Write::Confirmed { .. } => true,
        _ => false,
    };
    !batch.is_empty() && batch.iter().all(only_publishes)
}
