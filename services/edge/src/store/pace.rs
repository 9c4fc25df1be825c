//! How much work goes into one transaction, by the time that the work took lately.
//!
//! A cluster refuses a transaction that is older than 5 s. A store that is slow to answer makes the same jobs take
//! longer, so a batch that is bounded by jobs and bytes alone would be too old again and again.

use super::backlog::Budget;

/// One transaction. Its bytes are counted generously below what the store allows. Its cost is some ten milliseconds, so
/// that a job that comes when it has begun does not wait for longer.
const BUDGET: Budget = Budget { jobs: 1_000, bytes: 2 * 1024 * 1024, cost: 4_000 };
/// Cost that a transaction may always have.
const COST_MIN: usize = 50;
/// Longer work halves the cost of the next transaction.
const SLOW_MS: u64 = 500;
/// Shorter work lets the cost grow.
const FAST_MS: u64 = 100;

/// The cost that the next transaction may have.
pub(super) struct Pace {
    cost: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { cost: BUDGET.cost }
    }
}

impl Pace {
    pub(super) fn budget(&self) -> Budget {
        Budget { cost: self.cost, ..BUDGET }
    }

    /// The work of a transaction took so long, without the commit: an fsync takes its time whatever is written.
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
        let mut pace = Pace::default();
        let mut note = |work_ms, times| {
            (0..times).for_each(|_| pace.note(work_ms));
            pace.budget().cost
        };
        assert_eq!((note(0, 1), note(SLOW_MS, 1), note(FAST_MS, 9)), (4_000, 2_000, 2_000));
        assert_eq!((note(5_000, 20), note(1, 1)), (COST_MIN, 63));
        assert_eq!(note(1, 30), 4_000);
    }
}
