//! Rate limiters: token buckets whose tokens are time (GCRA). They read no clock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Millis;

/// An offset before the start of the process, so that a bucket is full then.
const BEFORE_START_MS: u64 = 60_000;

pub(crate) fn nanos(now: Millis) -> u64 {
    now.saturating_add(BEFORE_START_MS).saturating_mul(1_000_000)
}

/// The first millisecond of the process that is not before this time.
pub(crate) fn millis(nanos: u64) -> Millis {
    nanos.div_ceil(1_000_000).saturating_sub(BEFORE_START_MS)
}

/// An amount per time, which is also the burst after a quiet time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    amount: u64,
    per_ns: u64,
}

impl Rate {
    pub(crate) const fn per_second(amount: u64) -> Self {
        Self { amount, per_ns: 1_000_000_000 }
    }

    pub(crate) const fn per_minute(amount: u64) -> Self {
        Self { amount, per_ns: 60_000_000_000 }
    }

    fn cost(self, amount: u64) -> u64 {
        amount.saturating_mul(self.per_ns) / self.amount.max(1)
    }

    /// The time until which all passed amounts, with this one, are paid for.
    pub(crate) fn add(self, paid_at: u64, amount: u64, now: u64) -> u64 {
        paid_at.max(now.saturating_sub(self.per_ns)).saturating_add(self.cost(amount))
    }

    /// When everything before an amount is paid for, if that amount is paid for at `paid_at`.
    pub(crate) fn before(self, paid_at: u64, amount: u64) -> u64 {
        paid_at.saturating_sub(self.cost(amount))
    }

    /// When a debt is paid for, if this rate pays for it from now on instead of `former`, a rate per the same time.
    pub(crate) fn instead_of(self, former: Self, paid_at: u64, now: u64) -> u64 {
        let Some(debt) = paid_at.checked_sub(now).filter(|_| self != former) else { return paid_at };
        let debt = (u128::from(debt) * u128::from(former.amount)).div_ceil(u128::from(self.amount.max(1)));
        now.saturating_add(u64::try_from(debt).unwrap_or(u64::MAX))
    }

    /// The amount that can pass now without debt.
    pub(crate) fn room(self, paid_at: u64, now: u64) -> u64 {
        let saved = now.saturating_sub(paid_at).min(self.per_ns);
        let room = u128::from(saved) * u128::from(self.amount) / u128::from(self.per_ns);
        u64::try_from(room).unwrap_or(u64::MAX)
    }
}

/// The time until which all passed amounts are paid for, shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct RateLimiter(AtomicU64);

impl RateLimiter {
    pub(crate) fn paid_for_at(paid_at: u64) -> Self {
        Self(AtomicU64::new(paid_at))
    }

    /// Adds an amount, even into debt; returns when it is paid for.
    pub(crate) fn add(&self, rate: Rate, amount: u64, now: u64) -> u64 {
        let mut paid_at = self.0.load(Ordering::Relaxed);
        loop {
            let after = rate.add(paid_at, amount, now);
            match self.0.compare_exchange_weak(paid_at, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return after,
                Err(other) => paid_at = other,
            }
        }
    }

    /// Takes an added amount back, because it does not pass.
    pub(crate) fn give_back(&self, rate: Rate, amount: u64) {
        let cost = rate.cost(amount);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_at| Some(paid_at.saturating_sub(cost)));
    }

    /// When all passed amounts are paid for.
    pub(crate) fn paid_at(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds an amount unless it would be a debt.
    pub(crate) fn take(&self, rate: Rate, amount: u64, now: u64) -> bool {
        let mut paid_at = self.0.load(Ordering::Relaxed);
        loop {
            let after = rate.add(paid_at, amount, now);
            if after > now {
                return false;
            }
            match self.0.compare_exchange_weak(paid_at, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => paid_at = other,
            }
        }
    }

    pub(crate) fn room(&self, rate: Rate, now: u64) -> u64 {
        rate.room(self.0.load(Ordering::Relaxed), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_second_of_the_rate_passes_at_once_and_then_the_rate() {
        let (meter, rate, start) = (RateLimiter::default(), Rate::per_second(10), nanos(0));
        assert_eq!(meter.room(rate, start), 10);
        let passed = (0..100).filter(|_| meter.take(rate, 1, start)).count();
        assert_eq!(passed, 10);
        let later = (1..=50).filter(|tenth| meter.take(rate, 1, start + tenth * SECOND / 10)).count();
        assert_eq!(later, 50);
        assert_eq!(meter.room(rate, start + 100 * SECOND), 10, "no more than a second is saved");
    }

    #[test]
    fn what_is_too_much_passes_and_is_paid_for_later() {
        let (meter, rate, start) = (RateLimiter::default(), Rate::per_second(10), nanos(0));
        assert_eq!(meter.add(rate, 10, start), start);
        assert_eq!(meter.add(rate, 25, start), start + 5 * SECOND / 2);
        assert_eq!(meter.add(rate, 5, start), start + 3 * SECOND);
        assert_eq!(meter.room(rate, start), 0);
        assert_eq!(millis(start + 3 * SECOND), 3_000);
        meter.give_back(rate, 5);
        assert_eq!(meter.paid_at(), start + 5 * SECOND / 2);
    }

    #[test]
    fn another_rate_pays_for_the_same_debt_and_saved_time_stays() {
        let (slow, fast, now) = (Rate::per_second(10), Rate::per_second(30), nanos(0));
        assert_eq!(fast.instead_of(slow, now + 3 * SECOND, now), now + SECOND);
        assert_eq!(slow.instead_of(fast, now + SECOND, now), now + 3 * SECOND);
        assert_eq!(slow.instead_of(fast, now - SECOND / 2, now), now - SECOND / 2);
        assert_eq!(Rate::per_second(1).instead_of(Rate::per_second(u64::MAX), u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn absurd_numbers_are_no_panic() {
        for rate in [Rate::per_second(0), Rate::per_second(u64::MAX), Rate::per_minute(u64::MAX)] {
            let meter = RateLimiter::default();
            let (at, _) = (meter.add(rate, u64::MAX, nanos(u64::MAX)), meter.room(rate, u64::MAX));
            assert!(at > 0);
        }
    }
}
