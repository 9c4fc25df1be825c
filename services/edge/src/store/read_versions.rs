//! Publishes that do not ask the store for a read version (decision 0049).
//!
//! On a cluster a transaction asks for a read version, reads the changes of the filter index, and commits: three round
//! trips in sequence. The writer knows the version of its last commit, and the filters that this commit watched. A
//! transaction for the same brokers that reads one below that version waits for its commit alone; a filter changed since
//! is a conflict (P2), and the next attempt asks.
//!
//! One below, because FoundationDB can give one version to several transactions, and another pod's change of a filter may
//! follow within it. The store therefore counts the writer's own commit as later than the read, so a commit that changed
//! a watched filter does not qualify. Publishes without retained messages do, and other commits may follow them.

use millrace_storage::{StoreVersion, Versionstamp};

use super::apply::Applied;
use super::{Job, Write};

/// FoundationDB's Ratekeeper slows clients down by delaying read versions, so a transaction asks after 100 that did not,
/// or a second after the last one that did.
const UNASKED_MAX: u32 = 100;
const UNASKED_US: u64 = 1_000_000;
/// FoundationDB refuses to read at a version older than 5 s, and an older version meets more conflicts.
const KNOWN_US: u64 = 1_000_000;

#[derive(Default)]
pub(super) struct ReadVersions {
    last: Option<Known>,
    unasked_left: u32,
    ask_at_us: u64,
}

struct Known {
    version: StoreVersion,
    expires_us: u64,
    /// The writer has committed other jobs since, which may have changed sessions. A publish that reads its session's
    /// row would conflict with them.
    may_sessions_differ: bool,
}

impl ReadVersions {
    /// The version at which a transaction of these jobs may read without asking; uses up one of `unasked_left`.
    pub(super) fn for_jobs(&mut self, batch: &[Job], now_us: u64, now_ms: u64) -> Option<StoreVersion> {
        let known = self.last.as_ref().filter(|known| now_us < known.expires_us.min(self.ask_at_us))?;
        let expects_conflicts =
            |job: &Job| job.broker().is_some_and(|of| of.streams.expects_conflicts(now_ms));
        if self.unasked_left == 0
            || !only_publish(batch)
            || known.may_sessions_differ && batch.iter().any(reads_session)
            || batch.iter().any(expects_conflicts)
        {
            return None;
        }
        self.unasked_left -= 1;
        Some(known.version)
    }

    /// Notes the end of a transaction. `has_asked`: its last attempt asked for a version.
    pub(super) fn note_end(&mut self, is_ok: bool, has_asked: bool, now_us: u64) {
        if !is_ok {
            self.last = None;
        }
        if has_asked {
            self.unasked_left = UNASKED_MAX;
            self.ask_at_us = now_us + UNASKED_US;
        }
    }

    pub(super) fn note_commit(
        &mut self,
        batch: &[Job],
        applied: &Applied,
        stamp: Option<Versionstamp>,
        now_us: u64,
    ) {
        let Some(stamp) = stamp else { return };
        if !applied.changes.is_empty() {
            self.last = None;
        } else if only_publish(batch) {
            let (version, expires_us) = (stamp.version().saturating_sub(1), now_us + KNOWN_US);
            self.last = Some(Known { version, expires_us, may_sessions_differ: false });
        } else if let Some(known) = &mut self.last {
            known.may_sessions_differ = true;
        }
    }
}

fn reads_session(job: &Job) -> bool {
    matches!(&job.write, Write::Publish(publish) if publish.fence.is_some())
}

fn only_publish(batch: &[Job]) -> bool {
    let only_publishes = |job: &Job| match &job.write {
        Write::Publish(publish) => !publish.retains,
        Write::Mark { .. } | Write::Confirmed { .. } => true,
        _ => false,
    };
    !batch.is_empty() && batch.iter().all(only_publishes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_mqtt::{Properties, QoS};
    use millrace_session::Message;

    use super::*;
    use crate::broker::Broker;
    use crate::store::SessionKey;
    use crate::store::testing::publish_job;

    fn publish(retain: bool) -> Job {
        let broker = Arc::new(Broker::new(1, "default", 1));
        let message = Message::new("t".into(), QoS::AtLeastOnce, retain, Properties::EMPTY, b"x", 0);
        publish_job(&broker, message.into())
    }

    fn session_publish() -> Job {
        let mut job = publish(false);
        if let Write::Publish(publish) = &mut job.write {
            let broker = publish.routes.broker.clone();
            publish.fence = Some(SessionKey { broker, client: "client".into(), epoch: 1 });
        }
        job
    }

    fn committed() -> ReadVersions {
        let mut versions = ReadVersions::default();
        let batch = [publish(false)];
        assert_eq!(versions.for_jobs(&batch, 0, 0), None);
        versions.note_end(true, true, 0);
        versions.note_commit(&batch, &Applied::default(), Some(Versionstamp::new(8, 0)), 0);
        versions
    }

    #[test]
    fn publishes_read_below_the_last_commit_of_publishes_while_no_filter_changes() {
        let mut versions = committed();
        assert_eq!(versions.for_jobs(&[publish(false), session_publish()], 1, 0), Some(7));
        assert_eq!(versions.for_jobs(&[publish(false), publish(true)], 1, 0), None, "it reads retained rows");
        versions.note_commit(&[publish(true)], &Applied::default(), Some(Versionstamp::new(9, 0)), 1);
        assert_eq!(versions.for_jobs(&[publish(false)], 1, 0), Some(7), "the filters are known up to there");
        assert_eq!(versions.for_jobs(&[session_publish()], 1, 0), None, "its row may be newer");
        versions.note_commit(&[publish(false)], &Applied::default(), Some(Versionstamp::new(10, 0)), 1);
        assert_eq!(versions.for_jobs(&[session_publish()], 1, 0), Some(9));
        versions.note_end(false, true, 1);
        assert_eq!(versions.for_jobs(&[publish(false)], 1, 0), None, "a commit failed");
    }

    #[test]
    fn a_version_is_used_for_a_second_and_a_hundred_times() {
        let mut versions = committed();
        assert_eq!(versions.for_jobs(&[publish(false)], KNOWN_US, 0), None);
        let unasked = (0..200).filter(|_| versions.for_jobs(&[publish(false)], 1, 0).is_some()).count();
        assert_eq!(unasked, UNASKED_MAX as usize);
        versions.note_end(true, true, UNASKED_US);
        assert_eq!(
            versions.for_jobs(&[publish(false)], UNASKED_US, 0),
            None,
            "another asked, but this is old"
        );
    }
}
