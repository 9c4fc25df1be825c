//! One rate limit of the API. The headers of answers have its state, unless it is hidden.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::{NotUntil, Quota};

use super::HOUR;
use super::shown::{self, Counted};
use crate::api::problem::{ApiResult, Problem};
use crate::forgetting::KeyedRateLimiter;

pub(super) struct Limiter<K: Hash + Eq + Clone> {
    limiter: KeyedRateLimiter<K>,
    policy: Option<&'static str>,
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    pub(super) fn in_headers(policy: &'static str, quota: Quota) -> Self {
        Self { policy: Some(policy), ..Self::hidden(quota) }
    }

    /// No answer shows this limit, because its state would reveal requests of others.
    pub(super) fn hidden(quota: Quota) -> Self {
        Self { limiter: KeyedRateLimiter::new(quota), policy: None }
    }

    pub(super) fn take(&self, key: &K) -> ApiResult<()> {
        self.take_many(key, NonZeroU32::MIN)
    }

    /// Takes all of them, or none.
    pub(super) fn take_many(&self, key: &K, number: NonZeroU32) -> ApiResult<()> {
        // A limiter never grants more than its burst, so each burst is at least the largest number that a caller takes.
        let taken = self.limiter.take(key, number).map_err(|_| Problem::later(HOUR.as_secs()))?;
        match taken {
            Ok(left) => {
                self.count(left.quota(), left.remaining_burst_capacity());
                Ok(())
            }
            Err(until) => Err(self.refused(&until)),
        }
    }

    fn refused(&self, until: &NotUntil<Instant>) -> Problem {
        self.count(until.quota(), 0);
        Problem::later(self.limiter.wait_s(until))
    }

    fn count(&self, quota: Quota, left: u32) {
        if let Some(policy) = self.policy {
            shown::note(Counted { policy, quota, left });
        }
    }
}

/// A quota without a burst: one permit, then a pause.
pub(super) fn every(pause: Duration) -> Quota {
    Quota::with_period(pause).unwrap_or(Quota::per_hour(NonZeroU32::MIN))
}

pub(super) const fn count(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}
