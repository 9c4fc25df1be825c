//! How much work goes into one transaction, by the time that the work took lately.
//!
//! A cluster refuses a transaction that is older than 5 s. A store that is slow to answer makes the same jobs take
//! longer, so a batch that is bounded by jobs and bytes alone would be too old again and again.
//!
//! The jobs of a broker with much to write delay everybody in their transaction. A transaction with a few messages takes
//! less than half a millisecond on a fast disk, and several across a network. So the share of that broker follows from
//! the time of a commit (decision 0005).

use super::backlog::BatchBudget;

/// Limits of one transaction. Its bytes are well below what the store allows. Its cost is some ten milliseconds,
/// because a job that arrives after the start waits for the whole transaction.
const BUDGET: BatchBudget =
    BatchBudget { jobs: 1_000, bytes: 2 * 1024 * 1024, cost: 4_000, share: SHARE_MAX };
/// The cost that a transaction may always have.
const COST_MIN: usize = 50;
/// Longer work halves the cost of the next transaction.
const SLOW_MS: u64 = 500;
/// Shorter work lets the cost grow.
const FAST_MS: u64 = 100;

/// The smallest and the largest share of a broker beside others that have less to write.
const SHARE_MIN: usize = 8;
const SHARE_MAX: usize = 100;
/// A share adds at most this part (1/n) to the time of a transaction.
const SHARE_DIVISOR: u64 = 5;
/// Time of a unit of cost, microseconds: half of it in the writer thread, half in the engine.
const UNIT_US: u64 = 4;
/// The estimate of the shortest commit grows by this part (1/n) of the difference. On a busy machine most commits
/// wait for a processor, and so does the work of a share. So those commits must not make the share larger.
const GROWTH_DIVISOR: u64 = 1_024;

/// Limits of [`CommitTimes::linger_us`]: a little more than a round trip on one machine, and what a SUBSCRIBE may wait for others.
const LINGER_MIN_US: u64 = 1_000;
const LINGER_MAX_US: u64 = 10_000;
/// The mean time of a commit follows the last ones by this part (1/n) of the difference.
const MEAN_DIVISOR: u64 = 8;

/// Adapts the budget of a transaction to the time that the last ones took.
pub(super) struct CommitTimes {
    cost: usize,
    /// Time of a commit with little to write, microseconds; `u64::MAX` before the first.
    commit_us: u64,
    mean_us: u64,
    /// End of the last commit, microseconds of the process's clock.
    ended_us: u64,
}

impl Default for CommitTimes {
    fn default() -> Self {
        Self { cost: BUDGET.cost, commit_us: u64::MAX, mean_us: 0, ended_us: 0 }
    }
}

impl CommitTimes {
    pub(super) fn budget(&self) -> BatchBudget {
        let share = usize::try_from(self.commit_us / SHARE_DIVISOR / UNIT_US).unwrap_or(SHARE_MAX);
        BatchBudget { cost: self.cost, share: share.clamp(SHARE_MIN, SHARE_MAX), ..BUDGET }
    }

    pub(super) fn commit_us(&self) -> u64 {
        if self.commit_us == u64::MAX { 0 } else { self.commit_us }
    }

    /// How long costly jobs wait for brokers that have just been answered, microseconds. A transaction of costly jobs
    /// alone would delay those brokers by a whole commit, so waiting pays for as long as a commit takes. Many small
    /// jobs of one broker never wait longer than that, so they keep half of their rate.
    fn linger_us(&self, are_costly: bool) -> u64 {
        let least = if are_costly { LINGER_MIN_US } else { 0 };
        self.mean_us.clamp(least, LINGER_MAX_US)
    }

    /// The time until which such jobs wait: it counts from the end of the last commit, because brokers that were
    /// answered long ago have nothing to send at this moment.
    pub(super) fn linger_until_us(&self, are_costly: bool) -> u64 {
        self.ended_us + self.linger_us(are_costly)
    }

    pub(super) fn note_end(&mut self, now_us: u64) {
        self.ended_us = now_us;
    }

    /// Notes the time of a commit, from the end of its work. The shortest of the last ones shows the time of a commit
    /// with little to write.
    pub(super) fn note_commit(&mut self, commit_us: u64) {
        let longer_us = commit_us.saturating_sub(self.commit_us);
        self.commit_us = commit_us.min(self.commit_us + longer_us.div_ceil(GROWTH_DIVISOR));
        self.mean_us = (self.mean_us * (MEAN_DIVISOR - 1) + commit_us) / MEAN_DIVISOR;
    }

    /// Notes the work of a transaction without the commit, because the time of an fsync hardly depends on what is
    /// written.
    pub(super) fn note(&mut self, work_ms: u64) {
        if work_ms >= SLOW_MS {
            self.cost = (self.cost / 2).max(COST_MIN);
        } else if work_ms < FAST_MS {
            self.cost = (self.cost + self.cost / 4 + 1).min(BUDGET.cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_work_halves_the_next_transaction_and_fast_work_lets_it_grow() {
        let mut commits = CommitTimes::default();
        let mut note = |work_ms, times| {
            (0..times).for_each(|_| commits.note(work_ms));
            commits.budget().cost
        };
        assert_eq!((note(0, 1), note(SLOW_MS, 1), note(FAST_MS, 9)), (4_000, 2_000, 2_000));
        assert_eq!((note(5_000, 20), note(1, 1)), (COST_MIN, 63));
        assert_eq!(note(1, 30), 4_000);
    }

    #[test]
    fn a_share_is_small_where_commits_are_fast_and_follows_slowly_when_they_get_slower() {
        let mut commits = CommitTimes::default();
        let mut note = |commit_us, times| {
            (0..times).for_each(|_| commits.note_commit(commit_us));
            commits.budget().share
        };
        assert_eq!((note(5_000, 0), note(5_000, 1), note(1_000, 1)), (SHARE_MAX, SHARE_MAX, 50));
        assert_eq!((note(300, 1), note(10_000, 1)), (15, 15), "one slow commit says little");
        assert_eq!((note(100, 1), note(5_000, 2_000)), (SHARE_MIN, SHARE_MAX));
    }

    #[test]
    fn costly_jobs_wait_for_others_about_as_long_as_a_commit_takes() {
        let mut commits = CommitTimes::default();
        let mut note = |commit_us, times| {
            (0..times).for_each(|_| commits.note_commit(commit_us));
            commits.linger_us(true)
        };
        assert_eq!((note(0, 0), note(300, 100)), (LINGER_MIN_US, LINGER_MIN_US));
        assert!((4_900..=5_000).contains(&note(5_000, 100)));
        assert_eq!(note(100_000, 100), LINGER_MAX_US);
        assert_eq!(CommitTimes { mean_us: 300, ..CommitTimes::default() }.linger_us(false), 300);
    }

    #[test]
    fn commits_that_wait_for_a_processor_do_not_make_a_share_larger() {
        let mut commits = CommitTimes::default();
        for commit in 0..2_000 {
            let is_undisturbed = commit % 20 == 0;
            commits.note_commit(if is_undisturbed { 250 } else { 5_000 });
            let work_us = commits.budget().share as u64 * UNIT_US;
            assert!(work_us <= 250 / 2, "{work_us} us beside a commit of 250 us");
        }
    }
}
