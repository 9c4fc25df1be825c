//! An orderly stop: a process disconnects its clients at a rate, so that they move to other pods before it stops.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Millis;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainRate {
    /// Clients a second; 0: all at once.
    pub per_second: u32,
    /// The longest duration: the rate is raised if there are too many clients for it.
    pub at_most: Duration,
}

pub struct Draining(pub(crate) Arc<Drain>);

impl Draining {
    /// Waits until every client is disconnected; false after `at_most`.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> bool {
        let at_work = self.0.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.over.wait_timeout_while(at_work, at_most, |at_work| *at_work > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }

    pub fn per_second(&self) -> u64 {
        self.0.per_second
    }
}

pub(crate) struct Drain {
    per_second: u64,
    began_at: Millis,
    taken: AtomicU64,
    at_work: Mutex<usize>,
    over: Condvar,
}

impl Drain {
    pub(crate) fn new(rate: &DrainRate, clients: u64, cores: usize, now: Millis) -> Self {
        let at_most_ms = u64::try_from(rate.at_most.as_millis()).unwrap_or(u64::MAX);
        let needed = clients.saturating_mul(1000).checked_div(at_most_ms).map(|rate| rate.saturating_add(1));
        let per_second = match rate.per_second {
            0 => u64::MAX,
            rate => u64::from(rate).max(needed.unwrap_or(u64::MAX)),
        };
        let (at_work, over) = (Mutex::new(cores), Condvar::new());
        Self { per_second, began_at: now, taken: AtomicU64::new(0), at_work, over }
    }

    /// True when one more client can be disconnected; the first one at once.
    pub(crate) fn take(&self, now: Millis) -> bool {
        let passed_ms = now.saturating_sub(self.began_at);
        let allowed = (passed_ms.saturating_mul(self.per_second) / 1000).max(self.per_second / 1000).max(1);
        let more = |taken| (taken < allowed).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn finish(&self) {
        *self.at_work.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32, at_most_s: u64) -> DrainRate {
        DrainRate { per_second, at_most: Duration::from_secs(at_most_s) }
    }

    /// Clients that are sent away up to each of these times, by two loops.
    fn sent_away(rate: &DrainRate, clients: u64, times: &[Millis]) -> Vec<u64> {
        const BEGAN: Millis = 12_345;
        let drain = Drain::new(rate, clients, 2, BEGAN);
        let mut sent = 0;
        let mut until = |time| {
            while sent < clients && drain.take(BEGAN + time) {
                sent += 1;
            }
            sent
        };
        times.iter().map(|time| until(*time)).collect()
    }

    #[test]
    fn clients_are_sent_away_at_the_rate_and_never_faster() {
        assert_eq!(
            sent_away(&rate(10, 60), 100, &[0, 100, 199, 200, 1000, 9_999, 10_000]),
            [1, 1, 1, 2, 10, 99, 100]
        );
        assert_eq!(sent_away(&rate(1, 3600), 3, &[0, 999, 1999, 2000, 3000]), [1, 1, 1, 2, 3]);
        // A loop that was busy catches up.
        assert_eq!(sent_away(&rate(5_000, 20), 20_000, &[0, 1, 2, 1000]), [5, 5, 10, 5_000]);
    }

    #[test]
    fn so_many_that_it_would_take_too_long_go_faster() {
        assert_eq!(sent_away(&rate(10, 2), 1000, &[1000, 2000]), [501, 1000]);
        for at_once in [rate(0, 20), rate(10, 0)] {
            assert_eq!(sent_away(&at_once, 1000, &[0]), [1000], "{at_once:?}");
        }
    }

    #[test]
    fn it_is_over_when_every_loop_says_so() {
        let drain = Draining(Arc::new(Drain::new(&rate(1, 1), 0, 2, 0)));
        assert!(!drain.wait(Duration::ZERO));
        drain.0.finish();
        assert!(!drain.wait(Duration::ZERO));
        drain.0.finish();
        assert!(drain.wait(Duration::ZERO));
    }
}
