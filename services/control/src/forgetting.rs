//! Rate limits forget the keys that have been quiet.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Above this number of keys a rate limit forgets the keys that have been quiet.
const KEYS_MAX: usize = 10_000;

/// Says when to look for quiet keys. A search reads all keys. If it leaves many, the next one waits until as many have come
/// anew, so that searches cost each request a bounded time, however many keys stay.
pub(crate) struct Forgetting {
    above: AtomicUsize,
}

impl Forgetting {
    pub(crate) fn new() -> Self {
        Self { above: AtomicUsize::new(KEYS_MAX) }
    }

    /// Calls `forget`, which returns how many keys are left, if there are too many keys.
    pub(crate) fn of(&self, keys: usize, forget: impl FnOnce() -> usize) {
        if keys > self.above.load(Ordering::Relaxed) {
            self.above.store(KEYS_MAX.max(2 * forget()), Ordering::Relaxed);
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
            forgetting.of(keys, || {
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
            forgetting.of(keys, || {
                left = busy;
                left
            });
            left
        };
        assert_eq!(left(5 * KEYS_MAX, 4 * KEYS_MAX), 4 * KEYS_MAX);
        assert_eq!(left(8 * KEYS_MAX + 1, 0), 0);
        assert_eq!(left(KEYS_MAX + 1, 0), 0);
    }
}
