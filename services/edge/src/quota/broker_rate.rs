//! A rate that all clients of a broker share. When its limit changes, the new limit pays for the debt that is left.

use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};

use super::limiter::{Rate, RateLimiter};

#[derive(Default)]
pub(super) struct BrokerRate(ArcSwap<RateCount>);

/// The count of one limit. It begins with its first use, because a change of limits knows no time.
#[derive(Default)]
pub(super) struct RateCount {
    limit: Option<u64>,
    count: OnceLock<Arc<RateLimiter>>,
    former: Option<(u64, Arc<RateLimiter>)>,
}

impl BrokerRate {
    pub(super) fn set(&self, limit: Option<u64>) {
        let before = self.load();
        if before.limit != limit {
            self.0.store(Arc::new(RateCount { limit, count: OnceLock::new(), former: before.latest() }));
        }
    }

    pub(super) fn load(&self) -> Guard<Arc<RateCount>> {
        self.0.load()
    }

    pub(super) fn paid_at(&self, now: u64) -> u64 {
        self.load().at(now).map_or(0, |(_, count)| count.paid_at())
    }
}

impl RateCount {
    pub(super) fn at(&self, now: u64) -> Option<(u64, &RateLimiter)> {
        let limit = self.limit?;
        let count = self.count.get_or_init(|| {
            let paid_at = self.former.as_ref().map_or(0, |(former, count)| {
                Rate::per_second(limit).instead_of(Rate::per_second(*former), count.paid_at(), now)
            });
            Arc::new(RateLimiter::paid_for_at(paid_at))
        });
        Some((limit, count))
    }

    fn latest(&self) -> Option<(u64, Arc<RateLimiter>)> {
        match (self.limit?, self.count.get()) {
            (limit, Some(count)) => Some((limit, count.clone())),
            _ => self.former.clone(),
        }
    }
}
