use crate::limits::{
    KEY_SET_AGE_S, KEY_SET_AGE_S_MAX, KEY_SET_AGE_S_MIN, KEY_SET_FETCH_S_MAX, KEY_SET_INTERVAL_S_MAX,
    KEY_SET_INTERVAL_S_MIN, KEY_SET_STALE_S_MAX,
};

/// Decides when to fetch the key set of one issuer: while it is missing, when it is old, and when a
/// token names an unknown key.
///
/// Minimum intervals between fetches keep invented key ids and unreachable issuers from causing a
/// storm of fetches. Times are seconds of any monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct Refresh {
    had_s: Option<u64>,
    age_s: u32,
    begun_s: Option<u64>,
    is_under_way: bool,
    failures: u32,
    is_wanted: bool,
}

impl Refresh {
    pub fn key_unknown(&mut self) {
        self.is_wanted = true;
    }

    /// True once for each fetch: the caller then fetches, and calls [`Refresh::fetched`] or
    /// [`Refresh::fetch_failed`]. Call this for each token, or every few seconds while clients are
    /// connected.
    pub fn must_fetch(&mut self, now_s: u64) -> bool {
        let since = |at: u64| now_s.saturating_sub(at);
        let is_old = self.had_s.is_none_or(|at| since(at) >= self.age_s.into());
        let may = match self.begun_s {
            Some(at) if self.is_under_way => since(at) >= KEY_SET_FETCH_S_MAX.into(),
            Some(at) => since(at) >= self.interval_s().into(),
            None => true,
        };
        if !(may && (is_old || self.is_wanted)) {
            return false;
        }
        (self.begun_s, self.is_under_way) = (Some(now_s), true);
        true
    }

    /// A readable key set came; `age_s` is the `max-age` of the HTTP response.
    pub fn fetched(&mut self, now_s: u64, age_s: Option<u32>) {
        self.is_under_way = false;
        (self.had_s, self.failures, self.is_wanted) = (Some(now_s), 0, false);
        self.age_s = age_s.unwrap_or(KEY_SET_AGE_S).clamp(KEY_SET_AGE_S_MIN, KEY_SET_AGE_S_MAX);
    }

    pub fn fetch_failed(&mut self) {
        self.is_under_way = false;
        self.failures = self.failures.saturating_add(1);
    }

    #[must_use]
    pub fn is_usable(&self, now_s: u64) -> bool {
        self.had_s.is_some_and(|at| {
            now_s.saturating_sub(at) < u64::from(self.age_s) + u64::from(KEY_SET_STALE_S_MAX)
        })
    }

    /// While this is true, wait with a token of an unknown key and try again after the fetch.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    fn interval_s(&self) -> u32 {
        let doubled = KEY_SET_INTERVAL_S_MIN.saturating_mul(1 << self.failures.saturating_sub(1).min(16));
        doubled.min(KEY_SET_INTERVAL_S_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds at which a fetch begins, when it is asked every second and each is answered at once.
    fn fetches(refresh: &mut Refresh, seconds: std::ops::Range<u64>, comes: bool, unknown: bool) -> Vec<u64> {
        let mut all = Vec::new();
        for now_s in seconds {
            if unknown {
                refresh.key_unknown();
            }
            if refresh.must_fetch(now_s) {
                all.push(now_s);
                assert!(refresh.is_under_way() && !refresh.must_fetch(now_s), "once");
                if comes { refresh.fetched(now_s, None) } else { refresh.fetch_failed() }
            }
        }
        all
    }

    #[test]
    fn keys_are_fetched_at_first_and_when_they_are_old() {
        assert_eq!(fetches(&mut Refresh::default(), 5..8_000, true, false), [5, 3_605, 7_205]);
    }

    #[test]
    fn keys_that_are_not_known_cause_no_storm() {
        let mut refresh = Refresh::default();
        assert_eq!(fetches(&mut refresh, 0..1, true, false), [0]);
        assert_eq!(fetches(&mut refresh, 1..100, true, true), [30, 60, 90]);
        assert_eq!(fetches(&mut refresh, 100..110, true, false), [0; 0]);
    }

    #[test]
    fn an_issuer_that_is_down_is_asked_less_and_less() {
        let mut refresh = Refresh::default();
        assert_eq!(fetches(&mut refresh, 0..2_000, false, true), [0, 30, 90, 210, 450, 930, 1_530]);
        assert!(!refresh.is_usable(2_000));
        assert_eq!(fetches(&mut refresh, 2_130..2_170, true, false), [2_130]);
        assert!(refresh.is_usable(2_130));
    }

    #[test]
    fn old_keys_count_for_a_while_when_no_new_ones_come() {
        let mut refresh = Refresh::default();
        assert_eq!(fetches(&mut refresh, 0..1, true, false), [0]);
        let end = u64::from(KEY_SET_AGE_S + KEY_SET_STALE_S_MAX);
        assert!(!fetches(&mut refresh, 1..end, false, false).is_empty());
        assert!(refresh.is_usable(end - 1) && !refresh.is_usable(end));
    }

    #[test]
    fn a_fetch_that_is_lost_is_done_again() {
        let mut refresh = Refresh::default();
        assert!(refresh.must_fetch(0) && !refresh.must_fetch(29) && refresh.must_fetch(30));
    }

    #[test]
    fn the_lifetime_that_an_issuer_gives_its_keys_has_bounds() {
        for (said, next) in [(Some(0), 300), (Some(600), 600), (Some(u32::MAX), 86_400), (None, 3_600)] {
            let mut refresh = Refresh::default();
            assert!(refresh.must_fetch(0));
            refresh.fetched(0, said);
            assert!(!refresh.must_fetch(next - 1) && refresh.must_fetch(next), "{said:?}");
        }
    }
}
