//! Publishes that do not ask the store for a read version (decision 0049).
//!
//! On a cluster a transaction asks for a read version, reads the changes of the filter index, and commits: three round
//! trips in sequence. The writer knows the version of its last commit, and the filters that this commit watched. A
//! transaction for the same brokers that reads one below that version waits for its commit alone; a filter changed since
//! is a conflict (P2), and the next attempt asks.
//!
//! One below, because FoundationDB can give one version to several transactions, and another pod's change of a filter may
//! follow within it. The store therefore counts the writer's own commit as later than the read, so that commit must not
//! have changed what the next one watches or reads: it qualifies if it has publishes without retained messages alone.

use millrace_storage::{StoreVersion, Versionstamp};

use super::{Job, Write};

/// FoundationDB's Ratekeeper slows clients down by delaying read versions, so a transaction asks after 100 that did not,
/// or a second after the last one that did.
const UNASKED_MAX: u32 = 100;
const UNASKED_US: u64 = 1_000_000;

#[derive(Default)]
pub(super) struct ReadVersions {
    last: Option<StoreVersion>,
    unasked_left: u32,
    ask_at_us: u64,
}

impl ReadVersions {
    /// The version at which a transaction of these jobs may read without asking; uses up one of `unasked_left`.
    pub(super) fn for_jobs(&mut self, batch: &[Job], now_us: u64, now_ms: u64) -> Option<StoreVersion> {
        let expects_conflicts =
            |job: &Job| job.broker().is_some_and(|of| of.streams.conflicts.are_expected(now_ms));
        if now_us >= self.ask_at_us
            || self.unasked_left == 0
            || !only_publish(batch)
            || batch.iter().any(expects_conflicts)
        {
            return None;
        }
        self.unasked_left -= 1;
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
            self.unasked_left = UNASKED_MAX;
            self.ask_at_us = now_us + UNASKED_US;
        }
    }
}

fn only_publish(batch: &[Job]) -> bool {
    let only_publishes = |job: &Job| match &job.write {
        Write::Publish(publish) => !publish.retains,
        Write::Barrier { .. } | Write::Confirmed { .. } => true,
        _ => false,
    };
    !batch.is_empty() && batch.iter().all(only_publishes)
}
