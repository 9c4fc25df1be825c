//! The result of a group of commits: each written key once, in its state after the last commit.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    backend::{KeyWrite, View},
    buffer::add,
    emptied::Emptied,
    request::{CommitRequest, Mutation},
    resolver::ConflictResolver,
    sums::Sums,
};
use crate::{
    error::StoreError,
    key::KeyRange,
    version::{StoreVersion, Versionstamp},
};

/// The commit thread's memory from group to group: recent writes for conflict checks, cleared
/// ranges, and sums of counters.
pub(super) struct CommitMemory {
    pub(super) resolver: ConflictResolver,
    pub(super) emptied: Emptied,
    sums: Sums,
}

impl CommitMemory {
    pub(super) fn new(version: StoreVersion) -> Self {
        Self { resolver: ConflictResolver::new(version), emptied: Emptied::default(), sums: Sums::default() }
    }

    /// Forgets both caches after a group that failed, because they have what was not written. The
    /// resolver keeps the group's writes, which at worst causes a needless conflict.
    pub(super) fn undo(&mut self) {
        (self.emptied, self.sums) = Default::default();
    }

    pub(super) fn check(&self, request: &CommitRequest) -> Result<(), StoreError> {
        request.base.as_ref().map_or(Ok(()), |base| self.resolver.check(base.version, &request.reads))
    }

    pub(super) fn wrote(&mut self, version: StoreVersion, ranges: &[KeyRange]) {
        for range in ranges {
            self.resolver.wrote_range(version, range);
        }
    }

    fn wrote_key(&mut self, version: StoreVersion, key: &Bytes) {
        self.resolver.wrote_key(version, key.clone());
        self.emptied.wrote(key);
    }
}

pub(super) struct Overlay<'a, V> {
    view: &'a V,
    version: StoreVersion,
    /// Keys with a stamp of this group. No other mutation of the group can name one, so `get` and
    /// `write` do not look here. The first cleared range moves all of them into `keys`.
    appended: Vec<(Bytes, Bytes)>,
    keys: BTreeMap<Bytes, Option<Bytes>>,
    /// The appended keys were moved into `keys`.
    in_order: bool,
}

impl<'a, V: View> Overlay<'a, V> {
    pub(super) fn new(view: &'a V, version: StoreVersion) -> Self {
        Self { view, version, appended: Vec::new(), keys: BTreeMap::new(), in_order: false }
    }

    pub(super) fn add(
        &mut self,
        mutations: Vec<Mutation>,
        stamp: Versionstamp,
        known: &mut CommitMemory,
    ) -> Result<(), StoreError> {
        for mutation in mutations {
            match mutation {
                Mutation::Set(key, value) => self.write(key, Some(value), known),
                Mutation::Clear(key) => self.write(key, None, known),
                Mutation::Add(key, addend) => {
                    let sum = match known.sums.get(&key) {
                        Some(sum) => add(Some(sum), addend),
                        None => add(self.get(&key)?, addend),
                    };
                    known.wrote_key(self.version, &key);
                    known.sums.added(key.clone(), sum.clone());
                    self.keys.insert(key, Some(sum));
                }
                Mutation::ClearRange(range) => {
                    known.resolver.wrote_range(self.version, &range);
                    known.sums.cleared(&range);
                    self.clear_range(&range, &mut known.emptied)?;
                    known.emptied.cleared(range);
                }
                Mutation::SetStamped(stamped) => {
                    let (key, value) = stamped.resolve(stamp);
                    if self.in_order {
                        self.write(key, Some(value), known);
                    } else {
                        known.wrote_key(self.version, &key);
                        self.appended.push((key, value));
                    }
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, key: Bytes, value: Option<Bytes>, known: &mut CommitMemory) {
        known.wrote_key(self.version, &key);
        known.sums.wrote(&key);
        self.keys.insert(key, value);
    }

    fn get(&self, key: &Bytes) -> Result<Option<Bytes>, StoreError> {
        match self.keys.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.view.get(key),
        }
    }

    /// Deletes each key by itself, because the backend cannot delete a range.
    fn clear_range(&mut self, range: &KeyRange, emptied: &mut Emptied) -> Result<(), StoreError> {
        if !self.in_order {
            self.in_order = true;
            self.keys.extend(self.appended.drain(..).map(|(key, value)| (key, Some(value))));
        }
        for (_, value) in self.keys.range_mut::<Bytes, _>(&range.begin..&range.end) {
            *value = None;
        }
        for part in emptied.maybe_written(range) {
            self.view.scan(&part, false, &mut |key, _| {
                // A key that was read is a part of a whole block of a table, which would stay in
                // memory until this deletion is in a table.
                self.keys.insert(Bytes::copy_from_slice(&key), None);
                true
            })?;
        }
        Ok(())
    }

    pub(super) fn into_writes(mut self) -> Vec<KeyWrite> {
        // Sorted keys are inserted side by side, so their memory is in the caches.
        self.appended.sort_unstable();
        let appended = self.appended.into_iter().map(|(key, value)| KeyWrite { key, value: Some(value) });
        let keys = self.keys.into_iter().map(|(key, value)| KeyWrite { key, value });
        let mut writes = Vec::with_capacity(appended.len() + keys.len());
        writes.extend(appended);
        writes.extend(keys);
        writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view whose keys are parts of one block, as those of a table are.
    struct Block(Bytes);

    impl View for Block {
        fn get(&self, _: &[u8]) -> Result<Option<Bytes>, StoreError> {
            Ok(None)
        }

        fn scan(
            &self,
            _: &KeyRange,
            _: bool,
            each: &mut dyn FnMut(Bytes, Bytes) -> bool,
        ) -> Result<(), StoreError> {
            for at in 0..3 {
                each(self.0.slice(at..=at), self.0.slice(3..));
            }
            Ok(())
        }
    }

    #[test]
    fn a_deletion_keeps_no_block_in_memory() {
        let view = Block(Bytes::from(b"abc and the value".to_vec()));
        let range = KeyRange { begin: Bytes::from("a"), end: Bytes::from("d") };
        let mut overlay = Overlay::new(&view, 1);
        overlay.clear_range(&range, &mut Emptied::default()).unwrap();
        let writes = overlay.into_writes();
        let keys: Vec<_> = writes.iter().map(|write| &*write.key).collect();
        assert_eq!(keys, [b"a", b"b", b"c"]);
        assert!(writes.iter().all(|write| write.value.is_none()));
        assert!(view.0.is_unique(), "a deletion holds a part of the block");
    }
}
