//! Limits the bytes that the changes of one person leave behind: audit entries, and receipts that are kept for a day. They
//! stay when the changed objects are deleted, so no other limit bounds them.

use std::num::NonZeroU32;

use governor::Quota;
use uuid::Uuid;

use super::{Error, Result};
use crate::forgetting::KeyedRateLimiter;
use crate::limits::{LEFT_BEHIND_KIB_AT_ONCE, LEFT_BEHIND_KIB_PER_S};

pub(super) struct LeftBehind(KeyedRateLimiter<Uuid>);

impl LeftBehind {
    pub(super) fn new() -> Self {
        let quota = Quota::per_second(kib(LEFT_BEHIND_KIB_PER_S)).allow_burst(kib(LEFT_BEHIND_KIB_AT_ONCE));
        Self(KeyedRateLimiter::new(quota))
    }

    pub(super) fn take(&self, account: Uuid, bytes: usize) -> Result<()> {
        // The limiter never grants more than it has at once. No change leaves as much.
        let taken = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX).min(LEFT_BEHIND_KIB_AT_ONCE);
        match self.0.take(&account, kib(taken)) {
            Ok(Err(until)) => Err(Error::TooMuchLeftBehind(self.0.wait_s(&until))),
            _ => Ok(()),
        }
    }
}

fn kib(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}
