use std::sync::atomic::{AtomicU64, Ordering};

use crate::Millis;

const BETWEEN_MS: Millis = 60_000;

/// Limits the log lines about an event that clients can cause at will, such as a failed handshake, to one a minute. All event
/// loops share it.
#[derive(Debug, Default)]
pub struct Throttle {
    next_at: AtomicU64,
    unlogged: AtomicU64,
}

impl Throttle {
    /// `Some` when the caller must log this event, with the number of events that were not logged
    /// before it.
    pub fn occurred(&self, now: Millis) -> Option<u64> {
        let next_at = self.next_at.load(Ordering::Relaxed);
        let is_due = now >= next_at
            && (self.next_at)
                .compare_exchange(next_at, now + BETWEEN_MS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_due {
            return Some(self.unlogged.swap(0, Ordering::Relaxed));
        }
        self.unlogged.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_minute_is_logged_and_the_others_are_counted() {
        let throttle = Throttle::default();
        assert_eq!(throttle.occurred(5), Some(0));
        for now in [5, 6, 60_004] {
            assert_eq!(throttle.occurred(now), None);
        }
        assert_eq!(throttle.occurred(60_005), Some(3));
        assert_eq!(throttle.occurred(60_006), None);
    }
}
