//! A persistent map: a clone costs O(1) and shares all nodes with the original; a change copies
//! O(log n) nodes. The writer changes nodes in place that no clone shares.
//!
//! The map is a hash trie. Most maps of a broker have at most two entries, so the small forms take
//! at most one allocation. A leaf that exceeds [`MapEntry::LEAF_MAX`] becomes a branch with 16 slots,
//! chosen by the next four bits of the entry's address.

use std::mem;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::seed::Seed;

pub(crate) trait MapEntry: Clone {
    type Key: Ord + ?Sized;
    /// Entries of the largest leaf, at least 2; small for entries that are costly to clone, because
    /// a change copies the whole leaf.
    const LEAF_MAX: usize;
    fn key(&self) -> &Self::Key;
    /// The bits that place the key in the trie, highest first: a hash, or a number in the order of
    /// keys.
    fn address(key: &Self::Key, seed: &Seed) -> u64;
}

/// A branch below this depth would have no bits of the address left, so a leaf there may grow
/// without limit.
const DEPTH_MAX: u32 = 16;

type Leaf<T> = SmallVec<[T; 2]>;

#[derive(Clone, Debug, Default)]
pub(crate) enum Map<T> {
    #[default]
    Empty,
    One(T),
    Leaf(Arc<Leaf<T>>),
    Branch(Arc<MapBranch<T>>),
}

#[derive(Clone, Debug)]
pub(crate) struct MapBranch<T> {
    len: usize,
    slots: [Map<T>; 16],
}

#[inline]
fn slot(address: u64) -> usize {
    (address >> 60) as usize
}

fn search<T: MapEntry>(leaf: &[T], key: &T::Key) -> Result<usize, usize> {
    leaf.binary_search_by(|entry| entry.key().cmp(key))
}

impl<T> Map<T> {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) => 1,
            Self::Leaf(leaf) => leaf.len(),
            Self::Branch(branch) => branch.len,
        }
    }

    pub(crate) fn iter(&self) -> Iter<'_, T> {
        let mut iter = Iter { entries: [].iter(), branches: SmallVec::new() };
        iter.enter(self);
        iter
    }

    /// Passes the entries that no other map shares to `give`, and drops the rest.
    pub(crate) fn into_sole(self, give: &mut impl FnMut(T)) {
        match self {
            Self::Empty => {}
            Self::One(entry) => give(entry),
            Self::Leaf(leaf) => {
                if let Some(leaf) = Arc::into_inner(leaf) {
                    leaf.into_iter().for_each(give);
                }
            }
            Self::Branch(branch) => {
                if let Some(branch) = Arc::into_inner(branch) {
                    for map in branch.slots {
                        map.into_sole(give);
                    }
                }
            }
        }
    }

    /// The entry with the lowest address above `after`. The map must have been built with the same
    /// `address`; an entry with the same address as another one may be passed over.
    pub(crate) fn next_after(&self, after: u64, address: impl Fn(&T) -> u64 + Copy) -> Option<&T> {
        self.next_at(Some(after), 0, address)
    }

    pub(crate) fn first(&self, address: impl Fn(&T) -> u64 + Copy) -> Option<&T> {
        self.next_at(None, 0, address)
    }

    fn next_at(&self, after: Option<u64>, depth: u32, address: impl Fn(&T) -> u64 + Copy) -> Option<&T> {
        let wanted = |entry: &&T| after.is_none_or(|after| address(entry) > after);
        match self {
            Self::Empty => None,
            Self::One(entry) => Some(entry).filter(wanted),
            Self::Leaf(leaf) => leaf.iter().filter(wanted).min_by_key(|entry| address(entry)),
            Self::Branch(branch) => {
                let start = after.map_or(0, |after| slot(after << (4 * depth)));
                let bound = |index| after.filter(|_| index == start);
                (start..16).find_map(|index| branch.slots[index].next_at(bound(index), depth + 1, address))
            }
        }
    }
}

impl<T: MapEntry> Map<T> {
    pub(crate) fn get(&self, key: &T::Key, seed: &Seed) -> Option<&T> {
        let mut map = self;
        if let Self::Branch(_) = map {
            // A small map is searched by key, without a hash.
            let mut address = T::address(key, seed);
            while let Self::Branch(branch) = map {
                map = &branch.slots[slot(address)];
                address <<= 4;
            }
        }
        match map {
            Self::One(entry) if entry.key() == key => Some(entry),
            Self::Leaf(leaf) => search(leaf, key).ok().map(|index| &leaf[index]),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: &T::Key, seed: &Seed) -> Option<&mut T> {
        let mut map = self;
        if let Self::Branch(_) = map {
            let mut address = T::address(key, seed);
            while let Self::Branch(branch) = map {
                map = &mut Arc::make_mut(branch).slots[slot(address)];
                address <<= 4;
            }
        }
        match map {
            Self::One(entry) if entry.key() == key => Some(entry),
            Self::Leaf(leaf) => {
                let index = search(leaf, key).ok()?;
                Some(&mut Arc::make_mut(leaf)[index])
            }
            _ => None,
        }
    }

    /// The flag is true when `make` created the entry.
    pub(crate) fn get_or_insert(
        &mut self,
        key: &T::Key,
        seed: &Seed,
        make: impl FnOnce() -> T,
    ) -> (&mut T, bool) {
        let is_new = self.get(key, seed).is_none();
        let mut address = T::address(key, seed);
        let mut depth = 0;
        let mut map = self;
        loop {
            if is_new {
                map.make_room(seed, depth);
            }
            match map {
                Self::Branch(branch) => {
                    let branch = Arc::make_mut(branch);
                    branch.len += usize::from(is_new);
                    map = &mut branch.slots[slot(address)];
                    address <<= 4;
                    depth += 1;
                }
                Self::Leaf(leaf) => {
                    let leaf = Arc::make_mut(leaf);
                    let index = match search(leaf, key) {
                        Ok(index) => index,
                        Err(index) => {
                            leaf.insert(index, make());
                            index
                        }
                    };
                    return (&mut leaf[index], is_new);
                }
                Self::Empty => {
                    *map = Self::One(make());
                    return (map.sole(), true);
                }
                Self::One(entry) => return (entry, false),
            }
        }
    }

    fn sole(&mut self) -> &mut T {
        match self {
            Self::One(entry) => entry,
            _ => unreachable!("only called on `One`"),
        }
    }

    /// Makes room for one more entry: afterwards the map is empty, a leaf that is not full, or a
    /// branch.
    fn make_room(&mut self, seed: &Seed, depth: u32) {
        match self {
            Self::One(_) => {
                if let Self::One(entry) = mem::take(self) {
                    *self = Self::Leaf(Arc::new(Leaf::from_iter([entry])));
                }
            }
            Self::Leaf(leaf) if leaf.len() >= T::LEAF_MAX && depth < DEPTH_MAX => {
                let mut branch = MapBranch { len: leaf.len(), slots: Default::default() };
                let mut lists: [Leaf<T>; 16] = Default::default();
                for entry in leaf.iter() {
                    lists[slot(T::address(entry.key(), seed) << (4 * depth))].push(entry.clone());
                }
                for (map, list) in branch.slots.iter_mut().zip(lists) {
                    *map = Self::from_sorted(list);
                }
                *self = Self::Branch(Arc::new(branch));
            }
            _ => {}
        }
    }

    fn from_sorted(mut entries: Leaf<T>) -> Self {
        match entries.len() {
            0 => Self::Empty,
            1 => entries.pop().map_or(Self::Empty, Self::One),
            _ => Self::Leaf(Arc::new(entries)),
        }
    }

    pub(crate) fn remove(&mut self, key: &T::Key, seed: &Seed) -> Option<T> {
        // Without this check, removing a missing key would copy a path.
        self.get(key, seed)?;
        self.remove_at(key, T::address(key, seed))
    }

    fn remove_at(&mut self, key: &T::Key, address: u64) -> Option<T> {
        match self {
            Self::Empty => None,
            Self::One(_) => match mem::take(self) {
                Self::One(entry) => Some(entry),
                _ => None,
            },
            Self::Leaf(leaf) => {
                let index = search(leaf, key).ok()?;
                let leaf = Arc::make_mut(leaf);
                let removed = leaf.remove(index);
                if leaf.len() < 2 {
                    *self = Self::from_sorted(mem::take(leaf));
                }
                Some(removed)
            }
            Self::Branch(branch) => {
                let branch = Arc::make_mut(branch);
                let removed = branch.slots[slot(address)].remove_at(key, address << 4)?;
                branch.len -= 1;
                // A branch becomes a leaf only at half a leaf's size. Otherwise adding and removing
                // one entry would build and destroy a branch each time.
                if branch.len <= T::LEAF_MAX / 2 {
                    let mut entries: Leaf<T> = branch.slots.iter().flat_map(Self::iter).cloned().collect();
                    entries.sort_unstable_by(|a, b| a.key().cmp(b.key()));
                    *self = Self::from_sorted(entries);
                }
                Some(removed)
            }
        }
    }
}

pub(crate) struct Iter<'a, T> {
    entries: std::slice::Iter<'a, T>,
    branches: SmallVec<[std::slice::Iter<'a, Map<T>>; 6]>,
}

impl<'a, T> Iter<'a, T> {
    fn enter(&mut self, map: &'a Map<T>) {
        match map {
            Map::Empty => {}
            Map::One(entry) => self.entries = std::slice::from_ref(entry).iter(),
            Map::Leaf(leaf) => self.entries = leaf.iter(),
            Map::Branch(branch) => self.branches.push(branch.slots.iter()),
        }
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(entry);
            }
            match self.branches.last_mut()?.next() {
                Some(map) => self.enter(map),
                None => drop(self.branches.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
