//! Remembers which filters changed last in a broker, so that a cached match stays valid when only
//! unrelated filters changed.

use std::collections::VecDeque;

use compact_str::CompactString;
use millrace_mqtt::topic;
use smallvec::SmallVec;

/// Searching this many filters still costs less than matching the topic again.
const FILTERS_MAX: usize = 16;
const FILTER_BYTES_MAX: usize = 128;

/// The filters that one edit changed; too many or too long filters set `is_overflown` instead.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    filters: SmallVec<[CompactString; 2]>,
    is_overflown: bool,
}

impl Changed {
    pub(crate) fn record(&mut self, filter: &str) {
        if self.filters.len() < FILTERS_MAX && filter.len() <= FILTER_BYTES_MAX {
            self.filters.push(filter.into());
        } else {
            self.is_overflown = true;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filters.is_empty() && !self.is_overflown
    }
}

/// Changed filters, each with the generation of the snapshot that shows the change.
#[derive(Debug, Default)]
pub(crate) struct RecentChanges {
    /// No change after this generation was forgotten.
    since: u64,
    filters: VecDeque<(u64, CompactString)>,
}

impl RecentChanges {
    /// Generations must not descend.
    pub(crate) fn record(&mut self, generation: u64, changed: Changed) {
        if changed.is_overflown {
            self.filters.clear();
            self.since = generation;
            return;
        }
        self.filters.extend(changed.filters.into_iter().map(|filter| (generation, filter)));
        while self.filters.len() > FILTERS_MAX
            && let Some((forgotten, _)) = self.filters.pop_front()
        {
            self.since = forgotten;
        }
    }

    /// True when no change after generation `from` up to `through` was forgotten, and none of them
    /// matches `topic`.
    pub(crate) fn none_matches(&self, topic: &str, from: u64, through: u64) -> bool {
        let newer = self.filters.iter().rev().take_while(|(generation, _)| *generation > from);
        self.since <= from
            && newer
                .filter(|(generation, _)| *generation <= through)
                .all(|(_, filter)| !topic::matches(filter, topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed<'f>(filters: impl IntoIterator<Item = &'f str>) -> Changed {
        let mut changed = Changed::default();
        filters.into_iter().for_each(|filter| changed.record(filter));
        changed
    }

    #[test]
    fn only_changes_after_the_match_and_of_matching_filters_count() {
        let mut recent = RecentChanges::default();
        recent.record(1, changed(["a/+", "b"]));
        recent.record(2, changed(["c"]));
        assert!(
            recent.none_matches("a/b", 1, 2)
                && !recent.none_matches("a/b", 0, 2)
                && recent.none_matches("d", 0, 2)
        );
        assert!(!recent.none_matches("c", 1, 2), "it changed meanwhile");
        assert!(recent.none_matches("c", 1, 1), "what is not published yet does not count");
    }

    #[test]
    fn after_an_overflow_a_cached_match_is_not_valid() {
        let mut recent = RecentChanges::default();
        for generation in 1..=FILTERS_MAX as u64 {
            recent.record(generation, changed(["x"]));
        }
        assert!(recent.none_matches("a", 0, 16));
        recent.record(17, changed(["x"]));
        assert!(!recent.none_matches("a", 0, 17) && recent.none_matches("a", 1, 17));
        recent.record(18, changed(["y"; 3]));
        recent.record(19, changed(["x"; FILTERS_MAX - 1]));
        assert!(!recent.none_matches("a", 17, 19) && recent.none_matches("a", 18, 19));
        for large in [changed([&*"x".repeat(1_000)]), changed(["x"; FILTERS_MAX + 1])] {
            recent.record(20, large);
            assert!(!recent.none_matches("a", 19, 20) && recent.none_matches("a", 20, 20));
        }
    }
}
