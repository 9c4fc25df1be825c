//! The subscriptions of a session by their filters. A session can have a hundred thousand filters of 4,000 bytes each, so a table that
//! grows or shrinks must not read them.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, IntoIter};

use super::ClientSubscription;

/// A filter with its hash, so that a table of another size reads no filter again.
type Hashed = (u64, Box<str>, ClientSubscription);

/// Clients choose the filters, so the hash is seeded: otherwise a client could choose filters that collide.
#[derive(Debug, Default)]
pub(super) struct Subscriptions<S = RandomState> {
    table: HashTable<Hashed>,
    hasher: S,
}

impl<S: BuildHasher + Default> Subscriptions<S> {
    /// True when the filter is new.
    pub(super) fn insert(&mut self, filter: &str, subscription: ClientSubscription) -> bool {
        let hash = self.hasher.hash_one(filter);
        match self.table.entry(hash, is(hash, filter), |(hash, ..)| *hash) {
            Entry::Occupied(mut known) => {
                known.get_mut().2 = subscription;
                false
            }
            Entry::Vacant(new) => {
                new.insert((hash, filter.into(), subscription));
                true
            }
        }
    }

    pub(super) fn remove(&mut self, filter: &str) -> bool {
        let hash = self.hasher.hash_one(filter);
        let Ok(known) = self.table.find_entry(hash, is(hash, filter)) else { return false };
        known.remove();
        // A client that subscribes to much and leaves it again would keep the memory of the table.
        if self.table.len() < self.table.capacity() / 8 {
            self.table.shrink_to(2 * self.table.len(), |(hash, ..)| *hash);
        }
        true
    }

    pub(super) fn get(&self, filter: &str) -> Option<&ClientSubscription> {
        let hash = self.hasher.hash_one(filter);
        self.table.find(hash, is(hash, filter)).map(|(.., subscription)| subscription)
    }
}

impl<S> Subscriptions<S> {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &ClientSubscription)> {
        self.table.iter().map(|(_, filter, subscription)| (&**filter, subscription))
    }

    pub(super) fn into_filters(self) -> RemainingFilters {
        RemainingFilters(self.table.into_iter())
    }
}

fn is(hash: u64, filter: &str) -> impl Fn(&Hashed) -> bool {
    move |known| known.0 == hash && *known.1 == *filter
}

/// The filters of a session that has ended.
#[derive(Debug)]
pub(super) struct RemainingFilters(IntoIter<Hashed>);

impl Iterator for RemainingFilters {
    type Item = Box<str>;

    fn next(&mut self) -> Option<Box<str>> {
        self.0.next().map(|(_, filter, _)| filter)
    }
}

impl RemainingFilters {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use millrace_mqtt::{RetainHandling, SubscribeOptions};

    use super::*;

    thread_local!(static READ: Cell<usize> = const { Cell::new(0) });

    /// Counts the filters that were read.
    #[derive(Default)]
    struct Counted(u64);

    #[derive(Default)]
    struct Counting;

    impl BuildHasher for Counting {
        type Hasher = Counted;

        fn build_hasher(&self) -> Counted {
            READ.set(READ.get() + 1);
            Counted::default()
        }
    }

    impl Hasher for Counted {
        fn write(&mut self, bytes: &[u8]) {
            bytes.iter().for_each(|byte| self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    fn numbered(identifier: u32) -> ClientSubscription {
        let options = SubscribeOptions {
            qos: millrace_mqtt::QoS::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Send,
        };
        ClientSubscription { options, identifier }
    }

    #[test]
    fn a_table_that_grows_and_shrinks_reads_no_filter_again() {
        const FILTERS: u32 = 5_000;
        let mut table = Subscriptions::<Counting>::default();
        READ.set(0);
        for number in 0..FILTERS {
            assert!(table.insert(&format!("filter/{number}"), numbered(number)));
        }
        assert_eq!(READ.get(), FILTERS as usize);
        assert!(!table.insert("filter/7", numbered(70_000)));
        for number in (0..FILTERS).rev().take(4_990) {
            assert!(table.remove(&format!("filter/{number}")));
        }
        assert_eq!(READ.get(), FILTERS as usize + 1 + 4_990);
        assert!(!table.remove("filter/4999") && table.get("filter/10").is_none());
        assert_eq!(table.get("filter/7"), Some(&numbered(70_000)));
    }
}
