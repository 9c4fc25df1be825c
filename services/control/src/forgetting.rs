//! Rate limits with a bucket of permits for each key, which forget the keys that have been quiet.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::{Clock as _, MonotonicClock};
use governor::middleware::{StateInformationMiddleware, StateSnapshot};
use governor::state::keyed::HashMapStateStore;
use governor::{InsufficientCapacity, NotUntil, Quota, RateLimiter};

/// Above this number of keys a rate limit forgets the keys that have been quiet.
const KEYS_MAX: usize = 10_000;

/// Time after a search until the next one, even if few keys have come: many that stayed may be quiet by then.
const SEARCH_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct KeyedRateLimiter<K: Hash + Eq + Clone> {
    buckets: RateLimiter<K, HashMapStateStore<K>, MonotonicClock, StateInformationMiddleware>,
    forgetting: Forgetting,
}

impl<K: Hash + Eq + Clone> KeyedRateLimiter<K> {
    pub(crate) fn new(quota: Quota) -> Self {
        let buckets = RateLimiter::new(quota, HashMapStateStore::default(), MonotonicClock);
        Self { buckets, forgetting: Forgetting::new() }
    }

    /// Takes all of these permits, or none.
    ///
    /// # Errors
    /// The outer error: no bucket ever has this number of permits. The inner error: this bucket has too few now.
    pub(crate) fn take(
        &self,
        key: &K,
        number: NonZeroU32,
    ) -> Result<Result<StateSnapshot, NotUntil<Instant>>, InsufficientCapacity> {
        self.forgetting.if_many(self.buckets.len(), || {
            self.buckets.retain_recent();
            self.buckets.len()
        });
        self.buckets.check_key_n(key, number)
    }

    /// Seconds after which the refused permits are there.
    pub(crate) fn wait_s(&self, until: &NotUntil<Instant>) -> u64 {
        until.wait_time_from(self.buckets.clock().now()).as_secs() + 1
    }
}

/// Says when to look for quiet keys. A search reads all keys. If it leaves many, the next one waits until as many have come
/// anew or [`SEARCH_EVERY`] has passed, so that searches cost each request a bounded time, however many keys stay.
pub(crate) struct Forgetting {
    last: Mutex<Option<PendingSearch>>,
}

struct PendingSearch {
    at: Instant,
    left: usize,
}

impl Forgetting {
    pub(crate) fn new() -> Self {
        Self { last: Mutex::default() }
    }

    /// Calls `forget`, which returns how many keys are left, if there are too many keys.
    pub(crate) fn if_many(&self, keys: usize, forget: impl FnOnce() -> usize) {
        if keys > KEYS_MAX {
            self.if_due(keys, MonotonicClock.now(), forget);
        }
    }

    fn if_due(&self, keys: usize, now: Instant, forget: impl FnOnce() -> usize) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |last: &PendingSearch| {
            keys > 2 * last.left || now.saturating_duration_since(last.at) >= SEARCH_EVERY
        };
        if last.as_ref().is_none_or(is_due) {
            *last = Some(PendingSearch { at: now, left: forget() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_stay_are_not_searched_again_at_each_request() {
        let (forgetting, mut read) = (Forgetting::new(), 0);
        let requests = 20 * KEYS_MAX;
        for keys in 0..requests {
            forgetting.if_many(keys, || {
                read += keys;
                keys
            });
        }
        assert!((KEYS_MAX..=3 * requests).contains(&read), "{read} keys are read for {requests} requests");
    }

    #[test]
    fn quiet_keys_are_forgotten_although_many_keys_stayed_before() {
        let forgetting = Forgetting::new();
        let left = |keys: usize, busy: usize| {
            let mut left = keys;
            forgetting.if_many(keys, || {
                left = busy;
                left
            });
            left
        };
        assert_eq!(left(5 * KEYS_MAX, 4 * KEYS_MAX), 4 * KEYS_MAX);
        assert_eq!(left(8 * KEYS_MAX + 1, 0), 0);
        assert_eq!(left(KEYS_MAX + 1, 0), 0);
    }

    #[test]
    fn quiet_keys_are_forgotten_a_minute_later_although_no_others_come() {
        let (forgetting, now) = (Forgetting::new(), MonotonicClock.now());
        let keys = 100 * KEYS_MAX;
        let is_searched = |after: Duration, left: usize| {
            let mut is_searched = false;
            forgetting.if_due(keys, now + after, || {
                is_searched = true;
                left
            });
            is_searched
        };
        assert!(is_searched(Duration::ZERO, keys), "they came in a burst, and stay");
        let searched = (0..600).filter(|tenth| is_searched(SEARCH_EVERY * *tenth / 600, keys)).count();
        assert_eq!(searched, 0, "within the minute");
        assert!(is_searched(SEARCH_EVERY, 0));
    }
}
