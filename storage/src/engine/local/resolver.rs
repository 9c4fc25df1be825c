//! Decides whether a transaction conflicts: remembers which keys were written at which versions.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
};

use bytes::Bytes;

use crate::{error::StoreError, key::KeyRange, version::StoreVersion};

/// Most remembered writes, about 100 bytes each, which bounds memory while a transaction stays open
/// under load. Beyond it the oldest generation is forgotten; transactions that read before its last
/// write are then too old.
const WRITES_MAX: usize = 2_000_000;

const GENERATION_WRITES: usize = 8_192;

pub(super) struct ConflictResolver {
    /// A transaction that read before this version is too old, because writes after it were
    /// forgotten.
    floor: StoreVersion,
    generations: VecDeque<Generation>,
    writes_max: usize,
}

/// Writes of successive versions that are forgotten together.
#[derive(Default)]
struct Generation {
    newest: StoreVersion,
    keys: BTreeMap<Bytes, StoreVersion>,
    ranges: Steps,
}

impl ConflictResolver {
    pub(super) fn new(floor: StoreVersion) -> Self {
        Self { floor, generations: VecDeque::new(), writes_max: WRITES_MAX }
    }

    pub(super) fn check(&self, since: StoreVersion, reads: &[KeyRange]) -> Result<(), StoreError> {
        if since < self.floor {
            return Err(StoreError::TooOld);
        }
        let recent = || self.generations.iter().rev().take_while(|generation| generation.newest > since);
        let changed = reads.iter().any(|range| recent().any(|generation| generation.has_newer(since, range)));
        if changed { Err(StoreError::Conflict) } else { Ok(()) }
    }

    pub(super) fn wrote_key(&mut self, version: StoreVersion, key: Bytes) {
        self.generation(version).keys.insert(key, version);
    }

    pub(super) fn wrote_range(&mut self, version: StoreVersion, range: &KeyRange) {
        if !range.is_empty() {
            self.generation(version).ranges.raise(range, version);
        }
    }

    /// Forgets old writes; every open or future transaction must read at `oldest` or later.
    pub(super) fn forget_until(&mut self, oldest: StoreVersion) {
        while self.generations.front().is_some_and(|generation| generation.newest <= oldest) {
            self.generations.pop_front();
        }
        while self.len() > self.writes_max
            && let Some(forgotten) = self.generations.pop_front()
        {
            self.floor = forgotten.newest;
        }
    }

    fn len(&self) -> usize {
        self.generations.iter().map(Generation::len).sum()
    }

    fn generation(&mut self, version: StoreVersion) -> &mut Generation {
        if self.generations.back().is_none_or(|last| last.len() >= GENERATION_WRITES && last.newest < version)
        {
            self.generations.push_back(Generation::default());
        }
        let last = self.generations.len() - 1;
        let generation = &mut self.generations[last];
        generation.newest = version;
        generation
    }
}

impl Generation {
    fn len(&self) -> usize {
        self.keys.len() + self.ranges.0.len()
    }

    fn has_newer(&self, since: StoreVersion, range: &KeyRange) -> bool {
        let mut keys = self.keys.range::<Bytes, _>(&range.begin..&range.end);
        keys.any(|(_, version)| *version > since) || self.ranges.has_newer(since, range)
    }
}

/// Written and cleared ranges: a version holds from its key up to the next key in the map.
#[derive(Default)]
struct Steps(BTreeMap<Bytes, StoreVersion>);

impl Steps {
    fn at(&self, key: &Bytes) -> StoreVersion {
        self.0.range::<Bytes, _>(..=key).next_back().map_or(0, |(_, version)| *version)
    }

    fn raise(&mut self, range: &KeyRange, version: StoreVersion) {
        let behind = self.at(&range.end);
        let inside: Vec<Bytes> =
            self.0.range::<Bytes, _>(&range.begin..&range.end).map(|(key, _)| key.clone()).collect();
        for key in inside {
            self.0.remove(&key);
        }
        self.0.insert(range.begin.clone(), version);
        self.0.entry(range.end.clone()).or_insert(behind);
    }

    fn has_newer(&self, since: StoreVersion, range: &KeyRange) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let inside = (Bound::Excluded(&range.begin), Bound::Excluded(&range.end));
        self.at(&range.begin) > since || self.0.range::<Bytes, _>(inside).any(|(_, version)| *version > since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: &str, end: &str) -> KeyRange {
        KeyRange::new(begin, end)
    }

    #[test]
    fn a_newer_write_of_what_was_read_is_a_conflict() {
        let mut resolver = ConflictResolver::new(0);
        resolver.wrote_key(5, Bytes::from_static(b"k"));
        resolver.wrote_range(6, &range("c", "f"));
        resolver.wrote_range(7, &range("d", "e"));
        for (since, begin, end, conflict) in [
            (4, "a", "z", true),
            (4, "k", "k\0", true),
            (5, "k", "k\0", false),
            (5, "c", "c\0", true),
            (6, "c", "d", false),
            (6, "c", "dd", true),
            (6, "e", "z", false),
            (5, "e", "z", true),
            (7, "a", "z", false),
            (0, "a", "c", false),
            (0, "f", "k", false),
        ] {
            let checked = resolver.check(since, &[range(begin, end)]);
            assert_eq!(checked.is_err(), conflict, "since {since} in {begin:?} to {end:?}");
        }
    }

    #[test]
    fn writes_below_every_open_read_version_are_dropped() {
        let mut resolver = ConflictResolver::new(0);
        for version in 1..=40_000u64 {
            resolver.wrote_key(version, version.to_be_bytes().to_vec().into());
        }
        resolver.forget_until(20_000);
        assert!(resolver.len() <= 20_000 + GENERATION_WRITES, "{}", resolver.len());
        let all = [KeyRange::new([0], [1])];
        assert_eq!(resolver.check(20_000, &all), Err(StoreError::Conflict));
        assert_eq!(resolver.check(40_000, &all), Ok(()));
        resolver.forget_until(40_000);
        assert_eq!(resolver.len(), 0);
    }

    #[test]
    fn memory_is_bounded_and_a_too_old_read_version_is_refused() {
        let mut resolver = ConflictResolver { writes_max: 20_000, ..ConflictResolver::new(0) };
        for version in 1..=100_000u64 {
            resolver.wrote_key(version, version.to_be_bytes().to_vec().into());
            resolver.forget_until(0);
            assert!(resolver.generations.len() <= 4);
        }
        assert_eq!(resolver.check(50_000, &[range("x", "y")]), Err(StoreError::TooOld));
        assert_eq!(resolver.check(99_000, &[range("x", "y")]), Ok(()));
    }
}
