//! Finds the first of a list of filters that matches a topic, without comparing the topic with each of them.
//!
//! The filters are sorted by level, so filters with a common prefix are neighbours, and a binary search finds those with the
//! topic's next level. The index takes four bytes for each filter, however many levels the filter has.

use std::cmp::Ordering;
use std::ops::Range;

#[derive(Default)]
pub(crate) struct FilterIndex {
    filters: Box<[Box<str>]>,
    /// Positions in `filters`.
    sorted: Box<[u32]>,
}

/// Neighbours in `sorted` with the same first `prefix` bytes, to be compared with the rest of a topic.
struct OpenRange<'t> {
    begin: usize,
    end: usize,
    prefix: usize,
    /// `None`: the topic ends with the prefix.
    rest: Option<&'t str>,
}

impl FilterIndex {
    pub(crate) fn new(filters: Box<[Box<str>]>) -> Self {
        let count = u32::try_from(filters.len()).unwrap_or(u32::MAX);
        let mut sorted: Box<[u32]> = (0..count).collect();
        let levels = |at: &u32| filters[*at as usize].split('/');
        sorted.sort_unstable_by(|one, other| levels(one).cmp(levels(other)));
        Self { filters, sorted }
    }

    pub(crate) fn filters(&self) -> &[Box<str>] {
        &self.filters
    }

    /// The position of the first matching filter, and the number of levels compared to find it.
    pub(crate) fn first(&self, topic: &str) -> (Option<usize>, usize) {
        let (mut first, mut compared) = (None, 0);
        let mut found = |at: usize| {
            let at = self.sorted[at] as usize;
            first = Some(first.map_or(at, |first: usize| first.min(at)));
        };
        let mut open = vec![OpenRange { begin: 0, end: self.sorted.len(), prefix: 0, rest: Some(topic) }];
        while let Some(OpenRange { begin, end, prefix, rest }) = open.pop() {
            //= [MQTT-4.7.2-1] v5 v3.1.1
            let hides_wildcards = prefix == 0 && topic.starts_with('$');
            let plus = (!hides_wildcards).then_some("+");
            if !hides_wildcards {
                let (many, many_end) = self.with_level("#", begin..end, prefix, &mut compared);
                (many..many_end).for_each(&mut found);
            }
            let Some(rest) = rest else { continue };
            let (level, rest) =
                rest.split_once('/').map_or((rest, None), |(level, rest)| (level, Some(rest)));
            for level in [level].into_iter().chain(plus) {
                let (mut begin, end) = self.with_level(level, begin..end, prefix, &mut compared);
                while begin < end && self.filter(begin).len() == prefix + level.len() {
                    if rest.is_none() {
                        found(begin);
                    }
                    begin += 1;
                }
                if begin < end {
                    open.push(OpenRange { begin, end, prefix: prefix + level.len() + 1, rest });
                }
            }
        }
        (first, compared)
    }

    /// The part of a range whose filters have this level after their common prefix.
    fn with_level(
        &self,
        level: &str,
        range: Range<usize>,
        prefix: usize,
        compared: &mut usize,
    ) -> (usize, usize) {
        let mut order = |at: &u32| {
            *compared += 1;
            self.filters[*at as usize][prefix..].split('/').next().cmp(&Some(level))
        };
        let sorted = &self.sorted[range.clone()];
        let begin = sorted.partition_point(|at| order(at) == Ordering::Less);
        let len = sorted[begin..].partition_point(|at| order(at) == Ordering::Equal);
        (range.start + begin, range.start + begin + len)
    }

    fn filter(&self, at: usize) -> &str {
        &self.filters[self.sorted[at] as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use millrace_mqtt::topic;

    use super::*;

    fn index<'f>(filters: impl IntoIterator<Item = &'f String>) -> FilterIndex {
        FilterIndex::new(filters.into_iter().map(|filter| filter.as_str().into()).collect())
    }

    /// All texts of up to three levels.
    fn combinations(levels: &[&str], last: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = last.iter().map(ToString::to_string).collect();
        for _ in 0..2 {
            let longer =
                levels.iter().flat_map(|level| all.iter().map(move |rest| format!("{level}/{rest}")));
            all = last.iter().map(ToString::to_string).chain(longer).collect();
        }
        all
    }

    #[test]
    fn the_first_filter_is_the_one_that_comparing_with_each_finds() {
        let mut filters = combinations(&["a", "$b", "", "+"], &["a", "$b", "", "+", "#"]);
        let topics = combinations(&["a", "$b", "", "!", "x"], &["a", "$b", "", "x"]);
        for round in 0..20 {
            filters.sort_by_key(|filter| {
                BuildHasherDefault::<DefaultHasher>::default().hash_one((round, filter))
            });
            for some in [&filters[..1], &filters[..9], &filters[..]] {
                let index = index(some);
                for topic in &topics {
                    let expected = some.iter().position(|filter| topic::matches(filter, topic));
                    assert_eq!(index.first(topic).0, expected, "{topic} in {some:?}");
                }
            }
        }
        assert_eq!(FilterIndex::default().first("a"), (None, 0));
    }

    #[test]
    fn a_topic_is_not_compared_with_each_filter() {
        let sites: Vec<String> = (0..10_000).map(|number| format!("site/{number}/+")).collect();
        let others = vec!["+/#".to_owned(), "#".to_owned()];
        let index = index(sites.iter().chain(&others));
        let (first, compared) = index.first("site/7000/state");
        assert_eq!(first, Some(7_000));
        assert!(compared <= 400, "{compared}");
        assert_eq!(index.first("site/none/state").0, Some(10_000));
        assert_eq!(index.first("site").0, Some(10_000));
    }
}
