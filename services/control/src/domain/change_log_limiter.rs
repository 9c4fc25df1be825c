//! Limits the bytes that the changes of one person log: audit entries, and receipts that are kept for a day. They
//! stay when the changed objects are deleted, so no other limit bounds them.

use std::num::NonZeroU32;

use governor::Quota;
use uuid::Uuid;

use super::{Error, Result};
use crate::forgetting::KeyedRateLimiter;
use crate::limits::{CHANGE_LOG_KIB_AT_ONCE, CHANGE_LOG_KIB_PER_S};

pub(super) struct ChangeLogLimiter(KeyedRateLimiter<Uuid>);

impl ChangeLogLimiter {
    pub(super) fn new() -> Self {
        let quota = Quota::per_second(kib(CHANGE_LOG_KIB_PER_S)).allow_burst(kib(CHANGE_LOG_KIB_AT_ONCE));
        Self(KeyedRateLimiter::new(quota))
    }

    pub(super) fn take(&self, account: Uuid, bytes: usize) -> Result<()> {
        // The limiter never grants more than it has at once. No change logs as much.
        let taken = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX).min(CHANGE_LOG_KIB_AT_ONCE);
        match self.0.take(&account, kib(taken)) {
            Ok(Err(until)) => Err(Error::TooMuchLogged(self.0.wait_s(&until))),
            _ => Ok(()),
        }
    }
}

fn kib(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}
