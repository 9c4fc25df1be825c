//! Remembers which filters changed last in a broker, so that a cached match stays valid when only
//! unrelated filters changed.

use std::collections::VecDeque;

use compact_str::CompactString;
use millrace_mqtt::topic;
use smallvec::SmallVec;

/// Searching this many filters still costs less than matching the topic again.
const FILTERS_MAX: usize = 16;
const FILTER_BYTES_MAX: usize = 128;

/// The filters that one edit changed; too many or too long ones set `is_too_much` instead.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    filters: SmallVec<[CompactString; 2]>,
    is_too_much: bool,
}

impl Changed {
    pub(crate) fn note(&mut self, filter: &str) {
        if self.filters.len() < FILTERS_MAX && filter.len() <= FILTER_BYTES_MAX {
            self.filters.push(filter.into());
        } else {
            self.is_too_much = true;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filters.is_empty() && !self.is_too_much
    }
}

/// Changed filters, each with the generation of the snapshot that shows the change.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// No change after this generation was forgotten.
    since: u64,
    filters: VecDeque<(u64, CompactString)>,
}

impl Recent {
    pub(crate) fn note(&mut self, generation: u64, changed: Changed) {
        if changed.is_too_much {
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
    pub(crate) fn spare(&self, topic: &str, from: u64, through: u64) -> bool {
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
        filters.into_iter().for_each(|filter| changed.note(filter));
        changed
    }

    #[test]
    fn only_changes_after_the_match_and_of_matching_filters_count() {
        let mut recent = Recent::default();
        recent.note(1, changed(["a/+", "b"]));
        recent.note(2, changed(["c"]));
        assert!(recent.spare("a/b", 1, 2) && !recent.spare("a/b", 0, 2) && recent.spare("d", 0, 2));
        assert!(!recent.spare("c", 1, 2), "it changed meanwhile");
        assert!(recent.spare("c", 1, 1), "what is not published yet does not count");
    }

    #[test]
    fn what_is_forgotten_spares_nothing() {
        let mut recent = Recent::default();
        for generation in 1..=FILTERS_MAX as u64 {
            recent.note(generation, changed(["x"]));
        }
        assert!(recent.spare("a", 0, 16));
        recent.note(17, changed(["x"]));
        assert!(!recent.spare("a", 0, 17) && recent.spare("a", 1, 17));
        recent.note(18, changed(["y"; 3]));
        recent.note(19, changed(["x"; FILTERS_MAX - 1]));
        assert!(!recent.spare("a", 17, 19) && recent.spare("a", 18, 19));
        for large in [changed([&*"x".repeat(1_000)]), changed(["x"; FILTERS_MAX + 1])] {
            recent.note(20, large);
            assert!(!recent.spare("a", 19, 20) && recent.spare("a", 20, 20));
        }
    }
}
