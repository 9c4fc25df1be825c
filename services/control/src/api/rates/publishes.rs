//! The limits `client.publishes_per_s` and `client.publish_bytes_per_s` of a broker, for publishes by HTTP.
//!
//! Each such publish is an MQTT client of its own, so the event loop's count of a client begins anew. Each pod counts the
//! publishes that it takes: a caller who reaches several pods has the limit at each of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use governor::clock::{Clock as _, MonotonicClock};
use millrace_access::model::ClientLimits;
use uuid::Uuid;

use crate::api::problem::{ApiResult, Problem};
use crate::forgetting::Forgetting;
use crate::limits::PUBLISH_DEBT_S_MAX;

const SECOND: u64 = 1_000_000_000;
const DEBT_MAX: u64 = PUBLISH_DEBT_S_MAX * SECOND;

pub(super) struct Publishes {
    made_at: Instant,
    forgetting: Forgetting,
    by_broker_and_caller: Mutex<HashMap<(u64, Uuid), PublishCounts>>,
}

#[derive(Clone, Copy, Default)]
struct PublishCounts {
    messages: Paid,
    bytes: Paid,
}

/// A taken charge, which [`Publishes::give_back`] takes out of the counts again.
pub(crate) struct PublishCharge {
    by: (u64, Uuid),
    bytes: u64,
}

impl Publishes {
    pub(super) fn new() -> Self {
        Self {
            made_at: MonotonicClock.now(),
            forgetting: Forgetting::new(),
            by_broker_and_caller: Mutex::default(),
        }
    }

    pub(super) fn take(
        &self,
        by: (u64, Uuid),
        limits: &ClientLimits,
        bytes: u64,
    ) -> ApiResult<PublishCharge> {
        self.take_at(by, limits, bytes, self.now())
    }

    /// Nanoseconds since one second before the construction, because counts look one second back.
    fn now(&self) -> u64 {
        let passed = MonotonicClock.now().saturating_duration_since(self.made_at);
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX - SECOND) + SECOND
    }

    fn take_at(
        &self,
        by: (u64, Uuid),
        limits: &ClientLimits,
        bytes: u64,
        now: u64,
    ) -> ApiResult<PublishCharge> {
        let charge = PublishCharge { by, bytes };
        let mut all = self.by_broker_and_caller.lock().unwrap_or_else(PoisonError::into_inner);
        if limits.publishes_per_s.is_none() && limits.publish_bytes_per_s.is_none() {
            all.remove(&by);
            return Ok(charge);
        }
        // Callers who have published within the last second, or wait for their debt, stay, because a forgotten debt would be
        // free. Each of them may publish at its broker, so strangers add none.
        self.forgetting.if_many(all.len(), || {
            all.retain(|_, counts| counts.messages.paid_until.max(counts.bytes.paid_until) > now - SECOND);
            all.len()
        });
        let counts = all.entry(by).or_default();
        counts.messages.follow(limits.publishes_per_s, now);
        counts.bytes.follow(limits.publish_bytes_per_s, now);
        let messages = counts.messages.with(1, now);
        let messages = messages.map_err(|refusal| refusal.of("client.publishes_per_s", 1))?;
        let after = counts.bytes.with(bytes, now);
        let after = after.map_err(|refusal| refusal.of("client.publish_bytes_per_s", bytes))?;
        *counts = PublishCounts { messages, bytes: after };
        Ok(charge)
    }

    pub(super) fn give_back(&self, charge: &PublishCharge) {
        let mut all = self.by_broker_and_caller.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = all.get_mut(&charge.by) {
            counts.messages.give_back(1);
            counts.bytes.give_back(charge.bytes);
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Paid {
    /// The theoretical arrival time of GCRA: when, by [`Publishes::now`], the limit has paid for the publishes so far. A
    /// new count has paid all.
    paid_until: u64,
    /// 0: no limit.
    limit: u64,
}

impl Paid {
    /// Lets `limit` pay from now on.
    fn follow(&mut self, limit: Option<u64>, now: u64) {
        let limit = limit.map_or(0, |limit| limit.max(1));
        if limit == self.limit {
            return;
        }
        let empty = now - SECOND;
        let used = u128::from(self.paid_until.saturating_sub(empty)) * u128::from(self.limit);
        let used = used.checked_div(u128::from(limit)).unwrap_or(0);
        let used = u64::try_from(used).unwrap_or(DEBT_MAX).min(SECOND + DEBT_MAX);
        *self = Self { paid_until: empty + used, limit };
    }

    /// An amount larger than a second allows passes after a quiet second, and later publishes wait for it.
    fn with(self, amount: u64, now: u64) -> Result<Self, PublishRefusal> {
        let cost = self.cost(amount);
        if cost > DEBT_MAX {
            return Err(PublishRefusal::Never { most: self.limit.saturating_mul(PUBLISH_DEBT_S_MAX) });
        }
        let paid_until = self.paid_until.max(now - SECOND);
        match (paid_until + cost.min(SECOND)).saturating_sub(now) {
            0 => Ok(Self { paid_until: paid_until + cost, ..self }),
            wait => Err(PublishRefusal::Later(Duration::from_nanos(wait))),
        }
    }

    fn give_back(&mut self, amount: u64) {
        self.paid_until = self.paid_until.saturating_sub(self.cost(amount));
    }

    /// Nanoseconds for which the limit pays for this amount.
    fn cost(self, amount: u64) -> u64 {
        amount.saturating_mul(SECOND).checked_div(self.limit).unwrap_or(0)
    }
}

enum PublishRefusal {
    Later(Duration),
    /// `most`: the largest amount that the limit lets pass.
    Never {
        most: u64,
    },
}

impl PublishRefusal {
    fn of(self, limit: &str, amount: u64) -> Problem {
        match self {
            Self::Later(wait) => Problem::limited(limit, wait.as_secs() + 1),
            Self::Never { most } => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!(
                    "the message has {amount} bytes, and the broker's limit {limit} lets one of {most} bytes pass at \
                     most: send a smaller message, or raise the limit"
                ),
            ),
        }
    }
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
        let largest = 100 * PUBLISH_DEBT_S_MAX;
        assert!(!take(largest + 1, now + 3_600 * SECOND) && take(largest, now + 3_600 * SECOND));
        assert!(!take(u64::MAX, now + 7_200 * SECOND) && take(1, now + 7_200 * SECOND));
    }

    #[test]
    fn a_debt_is_paid_at_the_limit_of_today() {
        let (publishes, now) = (Publishes::new(), 10 * SECOND);
        let limits = |limit| ClientLimits { publish_bytes_per_s: Some(limit), ..ClientLimits::default() };
        let take = |limit, bytes, now| publishes.take_at(ANN, &limits(limit), bytes, now).is_ok();
        assert!(take(1_000, 10_000, now));
        // 6,000 bytes are used at the first, and 4,000 at the third.
        assert!(!take(2_000, 2_000, now + 4 * SECOND) && !take(2_000, 2_000, now + 5 * SECOND));
        assert!(take(2_000, 2_000, now + 7 * SECOND));
        let (quiet, longest) = (now + 20 * SECOND, PUBLISH_DEBT_S_MAX * SECOND);
        assert!(take(2_000, 20_000, quiet) && !take(1, 1, quiet) && !take(1, 1, quiet + longest));
        assert!(take(1, 1, quiet + longest + SECOND));
    }

    #[test]
    fn a_charge_that_is_given_back_costs_nothing() {
        let (publishes, now) = (Publishes::new(), 10 * SECOND);
        let limits = ClientLimits {
            publishes_per_s: Some(1),
            publish_bytes_per_s: Some(10),
            ..ClientLimits::default()
        };
        for _ in 0..5 {
            let charge = publishes.take_at(ANN, &limits, 100, now).unwrap();
            publishes.give_back(&charge);
        }
        assert!(publishes.take_at(ANN, &limits, 100, now).is_ok());
        assert!(publishes.take_at(ANN, &limits, 1, now).is_err());
    }

    #[test]
    fn brokers_without_these_limits_count_nothing() {
        let publishes = Publishes::new();
        assert!(publishes.take(ANN, &ClientLimits::default(), u64::MAX).is_ok());
        assert!(publishes.by_broker_and_caller.lock().unwrap().is_empty());
    }
}
