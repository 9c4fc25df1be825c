//! Duties of the writer beside jobs: due wills, expired sessions, the sessions of dead pods, ends of connections that the
//! store refused, messages that were read, and very many shared subscriptions.
//!
//! ```text
//! shards with something due ─┐
//! dead pods ─────────────────┴─> queue of duties ── one step, one transaction ──> jobs ──> next step
//! ```
//!
//! A duty takes one step at a time, and jobs come in between. While there are jobs, steps get a quarter of the writer's
//! time. A step that works long, or fails, halves the number of sessions of the next one.
//!
//! In a store of one process, transactions of jobs take sessions that are due along, because a transaction of their own
//! would delay each job behind it by a whole commit. Such a transaction works a fifth of a commit longer, see
//! [`Beside`]. With several pods it would conflict with the pods that end the same sessions.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use millrace_layers::due::Due;
use millrace_layers::{LayerError, halved};

use super::due_turns::DueTurns;
use super::last_settled::LastSettled;
use super::pods::{self, Recovery};
use super::sweep;
use super::trims::Trims;
use super::writer::Writer;

const SESSIONS: usize = 100;
/// Fewer are not faster: each step has a commit, which takes its time whatever is written.
const SESSIONS_MIN: usize = 10;
/// Longer work, without the commit, halves the number of sessions: the time of this many commits, within these limits
/// in microseconds. Jobs that arrive during a step wait for its end.
const SLOW_COMMITS: u64 = 4;
const SLOW_US: (u64, u64) = (2_000, 20_000);
/// Work that is shorter than this part (1/n) of it doubles the number of sessions.
const FAST_DIVISOR: u64 = 4;
/// A failed step is tried again after this, microseconds.
const RETRY_US: u64 = 100_000;
/// While there are jobs, the writer serves them for this many times the duration of the last step.
const JOBS_SHARE: u64 = 3;

/// Sessions that a transaction of jobs takes along add at most this part (1/n) to the time of its commit, and the least
/// time in microseconds, for a store whose commits take no time.
const BESIDE_DIVISOR: u64 = 5;
const BESIDE_US_MIN: u64 = 20;
/// First estimate of the time that one due session takes, nanoseconds; the mean follows by 1/[`MEAN_DIVISOR`] of the difference.
const SESSION_NS: u64 = 100_000;
const MEAN_DIVISOR: u64 = 8;
/// Without jobs for the time of so many commits, and for the least time in microseconds, due sessions have transactions
/// of their own.
const QUIET_COMMITS: u64 = 4;
const QUIET_US_MIN: u64 = 5_000;
/// After a failure due sessions have transactions of their own for this time, microseconds: long enough to find the
/// session that cannot be written by halves.
const ALONE_US: u64 = 5_000_000;

#[derive(Debug)]
pub(super) enum Duty {
    /// Wills and ends of sessions that are due in a shard, at this time.
    Due(u8, u64),
    Recover(Recovery),
    /// Writes again the ends of connections that a failed transaction did not write.
    Unwritten,
    SaveGroups,
    SaveClaims,
    /// Messages of more shared subscriptions than the writer claims, or reads, after one commit.
    Claim,
    ReadGroups,
    /// Messages that all sessions have read, and that a checkpoint had no room to remove.
    Trim,
}

impl Duty {
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Due(one, _), Self::Due(other, _)) => one == other,
            (Self::Recover(one), Self::Recover(other)) => one.pod.name == other.pod.name,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }
}

pub(super) struct Beside {
    pub(super) shard: u8,
    pub(super) now_ms: u64,
    pub(super) from: Option<Due>,
    pub(super) sessions: usize,
    /// Time of the last attempt, microseconds; 0 if the transaction was full without them.
    pub(super) took_us: Cell<u64>,
}

pub(super) struct Duties {
    is_beside: bool,
    pub(super) passed: LastSettled,
    pub(super) turns: DueTurns,
    pub(super) trims: Trims,
    session_ns: u64,
    /// Time that transactions of jobs may still spend on due sessions, nanoseconds.
    credit_ns: u64,
    /// Until then, jobs are expected that take due sessions along.
    quiet_at_us: u64,
    alone_until_us: u64,
    /// Each with the time before which it takes no step, microseconds.
    waiting: VecDeque<(u64, Duty)>,
    sessions: usize,
    not_before_us: u64,
    has_jobs: bool,
    has_failed: bool,
    waits: bool,
}

impl Duties {
    pub(super) fn new(is_beside: bool) -> Self {
        Self {
            is_beside,
            passed: LastSettled::new(is_beside),
            turns: DueTurns::default(),
            trims: Trims::default(),
            session_ns: SESSION_NS,
            credit_ns: 0,
            quiet_at_us: 0,
            alone_until_us: 0,
            waiting: VecDeque::new(),
            sessions: SESSIONS,
            not_before_us: 0,
            has_jobs: false,
            has_failed: false,
            waits: false,
        }
    }

    pub(super) fn add(&mut self, duty: Duty) {
        if !self.waiting.iter().any(|(_, known)| known.is_like(&duty)) {
            self.waiting.push_back((0, duty));
        }
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions
    }

    /// After a failed step of `sessions` sessions, the next one has half as many.
    ///
    /// # Errors
    /// As [`halved`].
    pub(super) fn halve(&mut self, error: LayerError, mut sessions: usize) -> Result<(), LayerError> {
        halved(error, &mut sessions)?;
        self.sessions = sessions;
        self.has_failed = true;
        Ok(())
    }

    /// The duty whose step this is continues a little later, and the others meanwhile.
    pub(super) fn continue_later(&mut self) {
        self.waits = true;
    }

    /// Puts the rest of a duty behind the others: a dead pod with many sessions does not delay wills that are due.
    fn put_back(&mut self, rest: Duty, now_us: u64) {
        let not_before_us = if self.waits { now_us + RETRY_US } else { 0 };
        self.waiting.push_back((not_before_us, rest));
    }

    pub(super) fn grow(&mut self) {
        self.sessions = (2 * self.sessions).min(SESSIONS);
    }

    pub(super) fn note_jobs(&mut self, now_us: u64, commit_us: u64) {
        self.has_jobs = true;
        self.quiet_at_us = now_us + (QUIET_COMMITS * commit_us).max(QUIET_US_MIN);
    }

    /// The due sessions that go into the transaction of the next jobs.
    pub(super) fn take_along(&mut self, now_us: u64, commit_us: u64) -> Option<Beside> {
        if !self.is_beside || now_us < self.alone_until_us {
            return None;
        }
        let ready = |(at, (not_before_us, duty)): (usize, &(u64, Duty))| match duty {
            Duty::Due(shard, now_ms) if *not_before_us <= now_us => Some((at, *shard, *now_ms)),
            _ => None,
        };
        let (at, shard, now_ms) = self.waiting.iter().enumerate().find_map(ready)?;
        let share_ns = 1_000 * (commit_us / BESIDE_DIVISOR).max(BESIDE_US_MIN);
        self.credit_ns = (self.credit_ns + share_ns).min(share_ns + self.session_ns);
        let sessions = (self.credit_ns / self.session_ns).min(SESSIONS as u64);
        if sessions == 0 {
            return None;
        }
        self.credit_ns -= self.session_ns * sessions;
        self.waiting.rotate_left(at + 1);
        let (from, sessions) = (self.passed.last(shard), sessions as usize);
        Some(Beside { shard, now_ms, from, sessions, took_us: Cell::default() })
    }

    pub(super) fn note_beside(&mut self, beside: &Beside) {
        let took_us = beside.took_us.get();
        if took_us == 0 {
            return;
        }
        let session_ns = 1_000 * took_us / beside.sessions as u64;
        self.session_ns = (self.session_ns * (MEAN_DIVISOR - 1) + session_ns) / MEAN_DIVISOR;
    }

    pub(super) fn end_due(&mut self, shard: u8) {
        self.waiting.retain(|(_, duty)| !matches!(duty, Duty::Due(of, _) if *of == shard));
    }

    /// The transaction of jobs failed, perhaps because of the sessions that it took along.
    pub(super) fn take_alone(&mut self, now_us: u64) {
        self.alone_until_us = now_us + ALONE_US;
    }

    fn not_before_us(&self, (not_before_us, duty): &(u64, Duty)) -> u64 {
        let goes_with_jobs = self.is_beside && matches!(duty, Duty::Due(..));
        let waits = goes_with_jobs && self.quiet_at_us > self.alone_until_us;
        (*not_before_us).max(self.not_before_us).max(if waits { self.quiet_at_us } else { 0 })
    }

    /// How long the writer may wait for jobs before the next step; `None` without duties.
    pub(super) fn wait(&self, now_us: u64) -> Option<Duration> {
        let first = self.waiting.iter().map(|duty| self.not_before_us(duty)).min()?;
        Some(Duration::from_micros(first.saturating_sub(now_us)))
    }

    fn next(&mut self, now_us: u64) -> Option<Duty> {
        let at = self.waiting.iter().position(|duty| self.not_before_us(duty) <= now_us)?;
        self.waiting.remove(at).map(|(_, duty)| duty)
    }

    fn note_step(&mut self, now_us: u64, took_us: u64, work_us: u64, commit_us: u64) {
        let jobs_us = if std::mem::take(&mut self.has_jobs) { JOBS_SHARE * took_us } else { 0 };
        if std::mem::take(&mut self.has_failed) {
            // How long it worked says nothing, and growing again would repeat the failure for ever.
            self.not_before_us = now_us + jobs_us.max(RETRY_US);
            return;
        }
        self.not_before_us = now_us + jobs_us;
        let slow_us = slow_us(commit_us);
        if work_us >= slow_us && self.sessions > SESSIONS_MIN {
            self.sessions = (self.sessions / 2).max(SESSIONS_MIN);
        } else if work_us < slow_us / FAST_DIVISOR {
            self.grow();
        }
    }
}

fn slow_us(commit_us: u64) -> u64 {
    (SLOW_COMMITS * commit_us).clamp(SLOW_US.0, SLOW_US.1)
}

pub(super) fn step(writer: &mut Writer<'_>) {
    let (clock, commit_us) = (writer.shared.clock, writer.commit_times.commit_us());
    let began_us = clock.micros();
    let Some(duty) = writer.duties.next(began_us) else { return };
    // A step without a transaction is neither slow nor fast.
    writer.work_us = slow_us(commit_us) / FAST_DIVISOR;
    let rest = match duty {
        Duty::Due(shard, now_ms) => sweep::settle_some(writer, shard, now_ms),
        Duty::Recover(recovery) => pods::recover_some(writer, recovery),
        Duty::Unwritten => writer.retry_unwritten().then_some(Duty::Unwritten),
        Duty::SaveGroups => writer.save_some_groups().then_some(Duty::SaveGroups),
        Duty::SaveClaims => writer.save_some_claims().then_some(Duty::SaveClaims),
        Duty::Claim => writer.claim_rest().then_some(Duty::Claim),
        Duty::ReadGroups => writer.read_for_rest().then_some(Duty::ReadGroups),
        Duty::Trim => writer.trim_some().then_some(Duty::Trim),
    };
    let now_us = clock.micros();
    if let Some(rest) = rest {
        writer.duties.put_back(rest, now_us);
    }
    if std::mem::take(&mut writer.duties.waits) {
        return;
    }
    writer.duties.note_step(now_us, now_us - began_us, writer.work_us, commit_us);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_leave_most_of_the_time_to_jobs_and_take_it_all_when_there_are_none() {
        let mut duties = Duties::new(false);
        assert_eq!(duties.wait(0), None);
        duties.add(Duty::Due(1, 5));
        duties.add(Duty::Due(1, 6));
        duties.add(Duty::Due(2, 6));
        assert_eq!(duties.wait(0), Some(Duration::ZERO));
        assert!(matches!(duties.next(1_000), Some(Duty::Due(1, 5))));
        duties.note_jobs(1_000, 0);
        duties.note_step(11_000, 10_000, 0, 0);
        assert!(duties.next(40_999).is_none() && duties.wait(40_000) == Some(Duration::from_millis(1)));
        assert!(matches!(duties.next(41_000), Some(Duty::Due(2, 6))), "a shard is there once");
        duties.note_step(51_000, 10_000, 0, 0);
        duties.add(Duty::Due(3, 7));
        assert_eq!(duties.wait(51_000), Some(Duration::ZERO), "no job came");
    }

    #[test]
    fn slow_and_failed_steps_have_fewer_sessions_and_fast_ones_more() {
        let mut duties = Duties::new(false);
        let (slow_us, neither_us) = (slow_us(0), slow_us(0) / FAST_DIVISOR);
        let halve = |duties: &mut Duties| duties.halve(LayerError::Contended(1), duties.sessions());
        duties.note_step(0, 0, slow_us, 0);
        halve(&mut duties).unwrap();
        duties.note_step(0, 0, 0, 0);
        assert_eq!(duties.sessions(), SESSIONS / 4);
        duties.add(Duty::Due(1, 5));
        assert_eq!(duties.wait(0), Some(Duration::from_micros(RETRY_US)));
        duties.note_step(0, 1_000_000, neither_us, 0);
        assert_eq!(duties.sessions(), SESSIONS / 4);
        (0..20).for_each(|_| duties.note_step(0, 0, slow_us, 0));
        assert_eq!(duties.sessions(), SESSIONS_MIN);
        while duties.sessions() > 1 {
            halve(&mut duties).unwrap();
            duties.note_step(0, 0, 0, 0);
        }
        assert!(halve(&mut duties).is_err(), "one session cannot be halved");
        (0..20).for_each(|_| duties.note_step(0, 0, 1, 0));
        assert_eq!(duties.sessions(), SESSIONS);
        let mut after = |work_us, commit_us| {
            duties.note_step(0, 0, work_us, commit_us);
            duties.sessions()
        };
        assert_eq!((after(12_000, 5_000), after(12_000, 1_000)), (SESSIONS, SESSIONS / 2));
    }

    #[test]
    fn jobs_take_due_sessions_along_for_a_fifth_of_their_commits() {
        let mut duties = Duties::new(true);
        (0..3).for_each(|shard| duties.add(Duty::Due(shard, 5)));
        let (mut sessions, mut shards) = (0, Vec::new());
        for number in 0..100 {
            duties.note_jobs(number, 1_000);
            assert!(duties.next(number).is_none(), "a step of its own delays the jobs");
            if let Some(beside) = duties.take_along(number, 1_000) {
                assert!(beside.sessions <= 5, "{} sessions", beside.sessions);
                sessions += beside.sessions;
                shards.push(beside.shard);
                beside.took_us.set(50 * beside.sessions as u64);
                duties.note_beside(&beside);
            }
        }
        assert!((340..=400).contains(&sessions), "{sessions} of 100 transactions with 200 us for 50 us each");
        assert_eq!(shards[..4], [0, 1, 2, 0]);
        // A session that takes longer than the share of a transaction has a part of the transactions.
        let slow = (0..100).filter_map(|number| {
            let beside = duties.take_along(number, 500)?;
            beside.took_us.set(1_000);
            duties.note_beside(&beside);
            Some(beside.sessions)
        });
        assert!((10..30).contains(&slow.sum::<usize>()));
    }

    #[test]
    fn due_sessions_have_steps_of_their_own_without_jobs_and_after_a_failure() {
        let mut duties = Duties::new(true);
        duties.add(Duty::Due(1, 5));
        duties.note_jobs(1_000, 2_000);
        assert_eq!(duties.wait(1_000), Some(Duration::from_micros(8_000)));
        assert!(duties.next(8_999).is_none() && duties.next(9_000).is_some());
        duties.add(Duty::Due(1, 5));
        duties.note_jobs(10_000, 2_000);
        duties.take_alone(10_000);
        assert!(duties.take_along(10_001, 2_000).is_none());
        assert!(duties.next(10_001).is_some(), "jobs do not keep it from finding what failed");
        duties.add(Duty::Due(1, 5));
        duties.note_jobs(10_000 + ALONE_US, 2_000);
        assert!(duties.next(10_000 + ALONE_US).is_none());
        assert!(duties.take_along(10_000 + ALONE_US, 2_000).is_some());
        duties.end_due(1);
        assert_eq!(duties.wait(0), None);
    }
}
