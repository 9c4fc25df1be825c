//! The other pods' usage of a broker's limits, read every second. This pod subtracts it from each limit; a broker without the limit
//! ignores it.

use std::sync::atomic::{AtomicU64, Ordering};

use millrace_access::model::BrokerLimits;
use millrace_layers::shares::PodUsage;

#[derive(Debug, Default)]
pub(crate) struct Others {
    pub(super) connections: AtomicU64,
    pub(super) subscriptions: AtomicU64,
    pub(super) connects: AtomicU64,
    pub(super) messages: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) filters: AtomicU64,
}

impl Others {
    pub(crate) fn set(&self, limits: &BrokerLimits, others: &[PodUsage]) {
        let sum = |of: fn(&PodUsage) -> u64| others.iter().map(of).fold(0, u64::saturating_add);
        let part =
            |limit: Option<u64>, of: fn(&PodUsage) -> u64| parts_of_others(limit.unwrap_or(0), others, of);
        self.connections.store(sum(|used| used.connections), Ordering::Relaxed);
        self.subscriptions.store(sum(|used| used.subscriptions), Ordering::Relaxed);
        self.connects.store(part(limits.connects_per_s, |used| used.connects_per_s), Ordering::Relaxed);
        self.messages.store(part(limits.publishes_per_s, |used| used.publishes_per_s), Ordering::Relaxed);
        self.filters.store(part(limits.filters_per_s, |used| used.filters_per_s), Ordering::Relaxed);
        self.bytes
            .store(part(limits.publish_bytes_per_s, |used| used.publish_bytes_per_s), Ordering::Relaxed);
    }
}

/// The others' usage of a rate, where each pod counts with an equal part at most, so that busy pods always leave one for this pod.
fn parts_of_others(limit: u64, others: &[PodUsage], of: fn(&PodUsage) -> u64) -> u64 {
    let users = others.iter().map(of).filter(|used| *used > 0);
    let equal = limit / (users.clone().count() as u64 + 1);
    users.map(|used| used.min(equal)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_want_all_of_a_rate_get_equal_parts_and_what_one_leaves_is_the_others() {
        let uses = |rates: &[u64]| -> Vec<PodUsage> {
            rates.iter().map(|rate| PodUsage { publishes_per_s: *rate, ..PodUsage::default() }).collect()
        };
        let left = |others: &[u64]| 90 - parts_of_others(90, &uses(others), |used| used.publishes_per_s);
        assert_eq!(left(&[]), 90);
        assert_eq!(left(&[0, 0]), 90);
        assert_eq!(left(&[90]), 45);
        assert_eq!(left(&[30, 30]), 30);
        assert_eq!(left(&[90, 10]), 50);
        assert_eq!(left(&[1]), 89);
    }
}
