use std::time::Duration;

/// How often and how long [`crate::Database::run`] retries one transaction, after an error that allows it.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Attempts, the first one included; default 50.
    pub attempts_max: u32,
    /// Longest wait before the second attempt (default 1 ms); it doubles with each further attempt.
    pub delay_first: Duration,
    /// Longest wait before any attempt; default 500 ms.
    pub delay_max: Duration,
    /// How long after the first attempt an unavailable store ([`crate::StoreError::Unavailable`])
    /// is still tried; default 10 s.
    pub unavailable_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 50,
            delay_first: Duration::from_millis(1),
            delay_max: Duration::from_millis(500),
            unavailable_max: Duration::from_secs(10),
        }
    }
}

impl RetryPolicy {
    /// A random wait up to the bound (full jitter), so that transactions that conflicted do not
    /// meet again.
    pub(crate) fn delay(&self, attempts: u32, random: u64) -> Duration {
        let doubled = self.delay_first.saturating_mul(1 << (attempts.saturating_sub(1)).min(20));
        let bound = doubled.min(self.delay_max);
        let micros = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(random % micros.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_bound() {
        let policy = RetryPolicy::default();
        for (attempts, bound_ms) in [(1, 1), (2, 2), (5, 16), (10, 500), (40, 500)] {
            for random in [0, 1, 12_345_678_901, u64::MAX] {
                assert!(policy.delay(attempts, random) <= Duration::from_millis(bound_ms), "{attempts}");
            }
        }
        assert_eq!(policy.delay(10, 500_000), Duration::from_millis(500));
    }
}
