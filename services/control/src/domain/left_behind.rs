//! Limits the bytes that the changes of one person leave behind: audit entries, and receipts that are kept for a day. They
//! stay when the changed objects are deleted, so no other limit bounds them.

use std::num::NonZeroU32;

use governor::clock::{Clock as _, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use uuid::Uuid;

use super::{Error, Result};
use crate::forgetting::Forgetting;
use crate::limits::{LEFT_BEHIND_KIB_AT_ONCE, LEFT_BEHIND_KIB_PER_S};

type Limiter = RateLimiter<Uuid, HashMapStateStore<Uuid>, MonotonicClock, NoOpMiddleware<std::time::Instant>>;

pub(super) struct LeftBehind {
    limiter: Limiter,
    forgetting: Forgetting,
}

impl LeftBehind {
    pub(super) fn new() -> Self {
        let quota = Quota::per_second(kib(LEFT_BEHIND_KIB_PER_S)).allow_burst(kib(LEFT_BEHIND_KIB_AT_ONCE));
        let limiter = RateLimiter::new(quota, HashMapStateStore::default(), MonotonicClock);
        Self { limiter, forgetting: Forgetting::new() }
    }

    pub(super) fn take(&self, account: Uuid, bytes: usize) -> Result<()> {
        self.forgetting.of(self.limiter.len(), || {
            self.limiter.retain_recent();
            self.limiter.len()
        });
        // The limiter never grants more than it has at once. No change leaves as much.
        let taken = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX).min(LEFT_BEHIND_KIB_AT_ONCE);
        match self.limiter.check_key_n(&account, kib(taken)) {
            Ok(Err(until)) => {
                let wait = until.wait_time_from(self.limiter.clock().now());
                Err(Error::TooMuchLeftBehind(wait.as_secs() + 1))
            }
            _ => Ok(()),
        }
    }
}

fn kib(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}
