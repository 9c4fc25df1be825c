//! A set of key ranges that do not overlap.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;

use crate::key::{KeyRange, after};

/// The ranges by their beginnings; adjacent ranges are joined.
#[derive(Clone, Default)]
pub(super) struct RangeSet(BTreeMap<Bytes, Bytes>);

impl RangeSet {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, range: KeyRange) {
        let KeyRange { mut begin, mut end } = range;
        while let Some((other, their_end)) = self.0.range::<Bytes, _>(..=&end).next_back() {
            if *their_end < begin {
                break;
            }
            let other = other.clone();
            if let Some(their_end) = self.0.remove(&other) {
                end = end.max(their_end);
            }
            begin = begin.min(other);
        }
        self.0.insert(begin, end);
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let before = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        before.is_some_and(|(_, end)| key < &**end)
    }

    pub(super) fn intersects(&self, range: &KeyRange) -> bool {
        let before = self.0.range::<Bytes, _>(..&range.end).next_back();
        before.is_some_and(|(_, end)| range.begin < *end)
    }

    /// The ranges of the set that intersect `range`.
    pub(super) fn within(&self, range: &KeyRange) -> Self {
        if range.is_empty() {
            return Self::default();
        }
        let before = self.0.range::<Bytes, _>(..=&range.begin).next_back();
        let before = before.filter(|(_, end)| range.begin < **end);
        let inside = self.0.range::<Bytes, _>((Bound::Excluded(&range.begin), Bound::Excluded(&range.end)));
        Self(before.into_iter().chain(inside).map(|(begin, end)| (begin.clone(), end.clone())).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        let before = self.0.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        let Some((begin, end)) = before.filter(|(_, end)| key < &***end) else { return };
        let (begin, tail) = (begin.clone(), KeyRange { begin: after(key), end: end.clone() });
        *end = Bytes::copy_from_slice(key);
        if *begin == *key {
            self.0.remove(&begin);
        }
        if !tail.is_empty() {
            self.0.insert(tail.begin, tail.end);
        }
    }

    /// The parts of `range` that are not in the set.
    pub(super) fn gaps(&self, range: &KeyRange) -> Vec<KeyRange> {
        let mut gaps = Vec::new();
        let mut begin = range.begin.clone();
        let before = self.0.range::<Bytes, _>(..=&begin).next_back();
        if let Some((_, end)) = before {
            begin = begin.max(end.clone());
        }
        for (next, end) in self.0.range::<Bytes, _>(&range.begin..&range.end) {
            if begin < *next {
                gaps.push(KeyRange { begin, end: next.clone() });
                begin = end.clone();
            } else {
                begin = begin.max(end.clone());
            }
        }
        if begin < range.end {
            gaps.push(KeyRange { begin, end: range.end.clone() });
        }
        gaps
    }

    pub(super) fn into_ranges(self) -> impl Iterator<Item = KeyRange> {
        self.0.into_iter().map(|(begin, end)| KeyRange { begin, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut set = RangeSet::default();
        for (begin, end) in [("a", "b"), ("e", "g"), ("c", "d"), ("b", "c"), ("f", "k"), ("x", "y")] {
            set.insert(KeyRange::new(begin, end));
        }
        assert!(set.contains(b"a") && set.contains(b"cz") && set.contains(b"j"));
        assert!(!set.contains(b"d") && !set.contains(b"k") && !set.contains(b"0"));
        assert!(set.intersects(&KeyRange::new("d", "f")) && !set.intersects(&KeyRange::new("d", "e")));
        let ranges: Vec<_> = set.into_ranges().collect();
        assert_eq!(ranges, [KeyRange::new("a", "d"), KeyRange::new("e", "k"), KeyRange::new("x", "y")]);
    }

    #[test]
    fn the_ranges_within_another_are_those_that_intersect_it() {
        let mut set = RangeSet::default();
        for (begin, end) in [("b", "d"), ("f", "h"), ("k", "m")] {
            set.insert(KeyRange::new(begin, end));
        }
        for begin in 'a'..='n' {
            for end in 'a'..='n' {
                let (begin, end) = (begin.to_string(), end.to_string());
                let range = KeyRange::new(begin.clone(), end.clone());
                let within: Vec<_> = set.within(&range).into_ranges().collect();
                let all = set.clone().into_ranges();
                let expected: Vec<_> = all
                    .filter(|of| begin < end && *of.begin < *end.as_bytes() && *of.end > *begin.as_bytes())
                    .collect();
                assert_eq!(within, expected, "{begin} to {end}");
            }
        }
    }

    #[test]
    fn a_removed_range_leaves_a_gap() {
        let mut set = RangeSet::default();
        set.insert(KeyRange::new("b", "f"));
        set.insert(KeyRange::new("k", "m"));
        set.remove(b"b");
        set.remove(b"d");
        set.remove(b"f");
        assert!(!set.contains(b"b") && set.contains(b"b\0") && !set.contains(b"d") && set.contains(b"e"));
        let expected = [("a", "b\0"), ("d", "d\0"), ("f", "k"), ("m", "z")]
            .map(|(begin, end)| KeyRange::new(begin, end));
        assert_eq!(set.gaps(&KeyRange::new("a", "z")), expected);
        assert_eq!(set.gaps(&KeyRange::new("c", "d")), []);
        assert_eq!(set.gaps(&KeyRange::new("e", "g")), [KeyRange::new("f", "g")]);
        assert_eq!(set.gaps(&KeyRange::new("n", "o")), [KeyRange::new("n", "o")]);
    }
}
