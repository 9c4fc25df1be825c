//! Duties of the writer beside jobs: due wills, expired sessions, the sessions of dead pods, and ends of connections that
//! the store refused.
//!
//! ```text
//! shards with something due ─┐
//! dead pods ─────────────────┴─> queue of duties ── one step, one transaction ──> jobs ──> next step
//! ```
//!
//! A duty takes one step at a time, and jobs come in between. While there are jobs, steps get a quarter of the writer's
//! time. A step that works long, or fails, halves the number of sessions of the next one.

use std::collections::VecDeque;
use std::time::Duration;

use millrace_layers::{LayerError, halved};

use super::pods::{self, Recovery};
use super::sweep;
use super::writer::Writer;

const SESSIONS: usize = 100;
/// Fewer are not faster: each step has a commit, which takes its time whatever is written.
const SESSIONS_MIN: usize = 10;
/// Longer work, without the commit, halves the number of sessions, microseconds.
const SLOW_US: u64 = 20_000;
/// Shorter work doubles the number of sessions, microseconds.
const FAST_US: u64 = 5_000;
/// A failed step is tried again after this, microseconds.
const RETRY_US: u64 = 100_000;
/// While there are jobs, the writer serves them for this many times the duration of the last step.
const JOBS_SHARE: u64 = 3;

#[derive(Debug)]
pub(super) enum Duty {
    /// Wills and ends of sessions that are due in a shard, at this time.
    Due(u8, u64),
    Recover(Recovery),
    /// Ends of connections that the store refused.
    Unleft,
}

impl Duty {
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Due(one, _), Self::Due(other, _)) => one == other,
            (Self::Recover(one), Self::Recover(other)) => one.pod.name == other.pod.name,
            (Self::Unleft, Self::Unleft) => true,
            _ => false,
        }
    }
}

pub(super) struct Duties {
    /// Each with the time before which it takes no step, microseconds.
    waiting: VecDeque<(u64, Duty)>,
    sessions: usize,
    not_before_us: u64,
    has_jobs: bool,
    has_failed: bool,
    /// The step that was just taken has to wait for its brokers.
    waits_for_brokers: bool,
}

impl Default for Duties {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            sessions: SESSIONS,
            not_before_us: 0,
            has_jobs: false,
            has_failed: false,
            waits_for_brokers: false,
        }
    }
}

impl Duties {
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

    /// The duty whose step this is goes on a little later, and the others meanwhile.
    pub(super) fn wait_for_brokers(&mut self) {
        self.waits_for_brokers = true;
    }

    /// Puts the rest of a duty behind the others: a dead pod with many sessions does not delay wills that are due.
    fn put_back(&mut self, rest: Duty, now_us: u64) {
        let not_before_us = if self.waits_for_brokers { now_us + RETRY_US } else { 0 };
        self.waiting.push_back((not_before_us, rest));
    }

    pub(super) fn grow(&mut self) {
        self.sessions = (2 * self.sessions).min(SESSIONS);
    }

    pub(super) fn note_jobs(&mut self) {
        self.has_jobs = true;
    }

    /// How long the writer may wait for jobs before the next step; `None` without duties.
    pub(super) fn wait(&self, now_us: u64) -> Option<Duration> {
        let first = self.waiting.iter().map(|(not_before_us, _)| *not_before_us).min()?;
        Some(Duration::from_micros(first.max(self.not_before_us).saturating_sub(now_us)))
    }

    fn next(&mut self, now_us: u64) -> Option<Duty> {
        if now_us < self.not_before_us {
            return None;
        }
        let at = self.waiting.iter().position(|(not_before_us, _)| *not_before_us <= now_us)?;
        self.waiting.remove(at).map(|(_, duty)| duty)
    }

    fn note_step(&mut self, now_us: u64, took_us: u64, work_us: u64) {
        let jobs_us = if std::mem::take(&mut self.has_jobs) { JOBS_SHARE * took_us } else { 0 };
        if std::mem::take(&mut self.has_failed) {
            // How long it worked says nothing. Growing again would repeat the failure for ever.
            self.not_before_us = now_us + jobs_us.max(RETRY_US);
            return;
        }
        self.not_before_us = now_us + jobs_us;
        if work_us >= SLOW_US && self.sessions > SESSIONS_MIN {
            self.sessions = (self.sessions / 2).max(SESSIONS_MIN);
        } else if work_us < FAST_US {
            self.grow();
        }
    }
}

pub(super) fn step(writer: &mut Writer<'_>) {
    let clock = writer.shared.clock;
    let began_us = clock.micros();
    let Some(duty) = writer.duties.next(began_us) else { return };
    // A step without a transaction is neither slow nor fast.
    writer.work_us = FAST_US;
    let rest = match duty {
        Duty::Due(shard, now_ms) => sweep::settle_some(writer, shard, now_ms),
        Duty::Recover(recovery) => pods::recover_some(writer, recovery),
        Duty::Unleft => writer.write_some_unleft().then_some(Duty::Unleft),
    };
    let now_us = clock.micros();
    if let Some(rest) = rest {
        writer.duties.put_back(rest, now_us);
    }
    if std::mem::take(&mut writer.duties.waits_for_brokers) {
        return;
    }
    writer.duties.note_step(now_us, now_us - began_us, writer.work_us);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_leave_most_of_the_time_to_jobs_and_take_it_all_when_there_are_none() {
        let mut duties = Duties::default();
        assert_eq!(duties.wait(0), None);
        duties.add(Duty::Due(1, 5));
        duties.add(Duty::Due(1, 6));
        duties.add(Duty::Due(2, 6));
        assert_eq!(duties.wait(0), Some(Duration::ZERO));
        assert!(matches!(duties.next(1_000), Some(Duty::Due(1, 5))));
        duties.note_jobs();
        duties.note_step(11_000, 10_000, 0);
        assert!(duties.next(40_999).is_none() && duties.wait(40_000) == Some(Duration::from_millis(1)));
        assert!(matches!(duties.next(41_000), Some(Duty::Due(2, 6))), "a shard is there once");
        duties.note_step(51_000, 10_000, 0);
        duties.add(Duty::Due(3, 7));
        assert_eq!(duties.wait(51_000), Some(Duration::ZERO), "no job came");
    }

    #[test]
    fn slow_and_failed_steps_have_fewer_sessions_and_fast_ones_more() {
        let mut duties = Duties::default();
        let halve = |duties: &mut Duties| duties.halve(LayerError::Contended(1), duties.sessions());
        duties.note_step(0, 0, SLOW_US);
        halve(&mut duties).unwrap();
        duties.note_step(0, 0, 0);
        assert_eq!(duties.sessions(), SESSIONS / 4);
        duties.add(Duty::Due(1, 5));
        assert_eq!(duties.wait(0), Some(Duration::from_micros(RETRY_US)));
        duties.note_step(0, 1_000_000, FAST_US);
        assert_eq!(duties.sessions(), SESSIONS / 4);
        (0..20).for_each(|_| duties.note_step(0, 0, SLOW_US));
        assert_eq!(duties.sessions(), SESSIONS_MIN);
        while duties.sessions() > 1 {
            halve(&mut duties).unwrap();
            duties.note_step(0, 0, 0);
        }
        assert!(halve(&mut duties).is_err(), "one session cannot be halved");
        (0..20).for_each(|_| duties.note_step(0, 0, 1));
        assert_eq!(duties.sessions(), SESSIONS);
    }
}
