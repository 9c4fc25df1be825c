//! The limits `client.publishes_per_s` and `client.publish_bytes_per_s` of a broker, for publishes by HTTP.
//!
//! Each such publish is an MQTT client of its own, so the event loop's count of a client begins anew.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::{Clock as _, MonotonicClock};
use millrace_access::model::ClientLimits;
use uuid::Uuid;

use super::limiter::KEYS_MAX;
use crate::api::problem::{Answer, Problem};

const SECOND: u64 = 1_000_000_000;

pub(super) struct Publishes {
    since: Instant,
    of: Mutex<HashMap<(u64, Uuid), Paid>>,
}

/// Until when the publishes so far are paid for, nanoseconds.
#[derive(Clone, Copy, Default)]
struct Paid {
    messages: u64,
    bytes: u64,
}

impl Publishes {
    pub(super) fn new() -> Self {
        Self { since: MonotonicClock.now(), of: Mutex::default() }
    }

    pub(super) fn take(&self, by: (u64, Uuid), limits: &ClientLimits, bytes: u64) -> Answer<()> {
        let passed = MonotonicClock.now().saturating_duration_since(self.since);
        self.take_at(
            by,
            limits,
            bytes,
            u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX - SECOND) + SECOND,
        )
    }

    fn take_at(&self, by: (u64, Uuid), limits: &ClientLimits, bytes: u64, now: u64) -> Answer<()> {
        if limits.publishes_per_s.is_none() && limits.publish_bytes_per_s.is_none() {
            return Ok(());
        }
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= KEYS_MAX {
            of.retain(|_, paid| paid.messages.max(paid.bytes) > now - SECOND);
        }
        let paid = of.entry(by).or_default();
        let messages = paid_after(paid.messages, limits.publishes_per_s, 1, now);
        let messages = messages.map_err(|wait| refused("client.publishes_per_s", wait))?;
        let bytes = paid_after(paid.bytes, limits.publish_bytes_per_s, bytes, now);
        let bytes = bytes.map_err(|wait| refused("client.publish_bytes_per_s", wait))?;
        *paid = Paid { messages, bytes };
        Ok(())
    }
}

/// An amount larger than a second allows passes after a quiet second, and later publishes wait for it.
fn paid_after(paid: u64, limit: Option<u64>, amount: u64, now: u64) -> Result<u64, Duration> {
    let Some(limit) = limit else { return Ok(paid) };
    let cost = amount.saturating_mul(SECOND) / limit.max(1);
    let paid = paid.max(now - SECOND);
    match paid.saturating_add(cost.min(SECOND)).saturating_sub(now) {
        0 => Ok(paid.saturating_add(cost)),
        wait => Err(Duration::from_nanos(wait)),
    }
}

fn refused(limit: &str, wait: Duration) -> Problem {
    Problem::limited(limit, wait.as_secs() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: (u64, Uuid) = (1, Uuid::from_u128(1));
    const BOB: (u64, Uuid) = (1, Uuid::from_u128(2));

    #[test]
    fn a_caller_publishes_at_a_broker_as_one_client_does() {
        let (publishes, now) = (Publishes::new(), 10 * SECOND);
        let limits = ClientLimits { publishes_per_s: Some(10), ..ClientLimits::default() };
        let take = |by, now| publishes.take_at(by, &limits, 1, now).is_ok();
        assert_eq!((0..20).filter(|_| take(ANN, now)).count(), 10);
        assert!(take(BOB, now) && take((2, ANN.1), now));
        assert_eq!((0..20).filter(|_| take(ANN, now + SECOND / 2)).count(), 5);
        assert_eq!((0..20).filter(|_| take(ANN, now + 60 * SECOND)).count(), 10);
    }

    #[test]
    fn a_large_message_passes_and_later_ones_wait_for_it() {
        let (publishes, now) = (Publishes::new(), 10 * SECOND);
        let limits = ClientLimits { publish_bytes_per_s: Some(100), ..ClientLimits::default() };
        let take = |bytes, now| publishes.take_at(ANN, &limits, bytes, now).is_ok();
        assert!(take(1_000, now) && !take(1, now) && !take(1, now + 9 * SECOND));
        assert!(take(100, now + 10 * SECOND) && !take(1, now + 10 * SECOND));
    }

    #[test]
    fn brokers_without_these_limits_count_nothing() {
        let publishes = Publishes::new();
        assert!(publishes.take(ANN, &ClientLimits::default(), u64::MAX).is_ok());
        assert!(publishes.of.lock().unwrap().is_empty());
    }
}
