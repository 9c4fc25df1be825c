//! The receivers of a topic, cached by each event loop until a subscription that matches the topic changes.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;
use millrace_router::Snapshot;
use slab::Slab;

use super::Routes;
use crate::broker::Broker;
use crate::limits::{ROUTE_CACHE_BYTES_MAX, ROUTE_CACHE_UNUSED_BYTES_MAX};

/// Work of a match besides the nodes that it visits: this many units, and one for so many bytes of its result.
const MATCH_WORK: u64 = 5;
const MATCH_BYTES: usize = 64;
/// Merged subscriptions of several filters that cost one unit.
const MERGED: usize = 2;
/// [`RouteCache::forget_idle`] visits a part (1/n) of the cache in each call, but not more than this many entries.
const FORGET_DIVISOR: usize = 5;
const FORGOTTEN_MAX: usize = 2_000;
/// Memory of an entry beside its routes, bytes: its slot, two places in the index, and what the allocator rounds up.
const ENTRY_BYTES: usize = 100;
/// The cache returns memory when it has room for more than this many times its entries, and for more than `SPARSE_MIN`.
const SPARSE: usize = 8;
const SPARSE_MIN: usize = 1_024;
/// Units of work of visiting a node in the tree of retained messages or of filters.
pub(crate) const NODE_WORK: u64 = 2;

/// The cached topics of one event loop.
///
/// Eviction is CLOCK: a hand goes around the entries, spares each that was used since its last visit, and removes the
/// others. A client that publishes to ever new topics therefore evicts its own topics first.
#[derive(Default)]
pub(crate) struct RouteCache {
    /// Keys of `entries` by hash of broker and topic.
    index: HashTable<usize>,
    entries: Slab<Entry>,
    hand: usize,
    /// The next entry that [`RouteCache::forget_idle`] visits.
    idle_hand: usize,
    bytes: usize,
    /// Since the last [`RouteCache::take_work`].
    work: u64,
    hasher: foldhash::fast::RandomState,
}

struct Entry {
    hash: u64,
    bytes: usize,
    is_used: bool,
    routes: Arc<Routes>,
}

impl RouteCache {
    /// The receivers of `topic` as of now: of every subscription that was acknowledged before this call (P2).
    pub(crate) fn get(&mut self, broker: &Arc<Broker>, topic: &str) -> Arc<Routes> {
        self.find(broker, topic, None)
    }

    /// The receivers of `topic` in `snapshot`, which must be taken after the last call.
    pub(crate) fn get_at(&mut self, broker: &Arc<Broker>, topic: &str, snapshot: &Snapshot) -> Arc<Routes> {
        self.find(broker, topic, Some(snapshot))
    }

    fn find(&mut self, broker: &Arc<Broker>, topic: &str, snapshot: Option<&Snapshot>) -> Arc<Routes> {
        let matched = |topic: Arc<str>| match snapshot {
            Some(snapshot) => Arc::new(Routes::at(broker.clone(), topic, snapshot)),
            None => Arc::new(Routes::new(broker.clone(), topic)),
        };
        let hash = self.hasher.hash_one((&*broker.name, topic));
        let entries = &self.entries;
        let same = |key: &usize| {
            let routes = &entries[*key].routes;
            Arc::ptr_eq(&routes.broker, broker) && *routes.topic == *topic
        };
        if let Some(key) = self.index.find(hash, same).copied() {
            let entry = &mut self.entries[key];
            entry.is_used = true;
            let now = snapshot.map_or_else(|| broker.router.generation(), Snapshot::generation);
            if entry.routes.is_of(now) {
                return entry.routes.clone();
            }
            self.work += MATCH_WORK;
            if !entry.routes.is_still_valid_for(now) {
                entry.routes = matched(entry.routes.topic.clone());
                let bytes = size_of_entry(&entry.routes);
                self.work += work_of(&entry.routes, bytes);
                self.bytes = self.bytes - entry.bytes + bytes;
                entry.bytes = bytes;
            }
            return entry.routes.clone();
        }
        let routes = matched(topic.into());
        let bytes = size_of_entry(&routes);
        self.work += work_of(&routes, bytes);
        self.make_room(bytes);
        self.bytes += bytes;
        let key = self.entries.insert(Entry { hash, bytes, is_used: false, routes: routes.clone() });
        self.index.insert_unique(hash, key, |key| self.entries[*key].hash);
        routes
    }

    #[inline]
    pub(crate) fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// Visits a part of the cache. Removes the entries of brokers without clients, because an entry keeps its broker open, and
    /// entries that were not used since the last visit, while there are more than a few: a flood of topics leaves them behind.
    pub(crate) fn forget_idle(&mut self) {
        let capacity = self.entries.capacity();
        for _ in 0..capacity.div_ceil(FORGET_DIVISOR).min(FORGOTTEN_MAX) {
            self.idle_hand = if self.idle_hand + 1 < capacity { self.idle_hand + 1 } else { 0 };
            let Some(entry) = self.entries.get_mut(self.idle_hand) else { continue };
            let is_unused = self.bytes > ROUTE_CACHE_UNUSED_BYTES_MAX && !std::mem::take(&mut entry.is_used);
            if is_unused || !entry.routes.broker.has_clients() {
                self.remove(self.idle_hand);
            }
        }
        if capacity > SPARSE_MIN && self.entries.len() < capacity / SPARSE {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        let index = &mut self.index;
        self.entries.compact(|entry, from, to| match index.find_mut(entry.hash, |key| *key == from) {
            Some(key) => {
                *key = to;
                true
            }
            None => false,
        });
        let entries = &self.entries;
        self.index.shrink_to(0, |key| entries[*key].hash);
    }

    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > ROUTE_CACHE_BYTES_MAX && !self.entries.is_empty() {
            self.hand = if self.hand + 1 < self.entries.capacity() { self.hand + 1 } else { 0 };
            let Some(entry) = self.entries.get_mut(self.hand) else { continue };
            if !std::mem::take(&mut entry.is_used) {
                self.remove(self.hand);
            }
        }
    }

    fn remove(&mut self, key: usize) {
        let Entry { hash, bytes, .. } = self.entries.remove(key);
        self.bytes -= bytes;
        if let Ok(found) = self.index.find_entry(hash, |of| *of == key) {
            found.remove();
        }
    }
}

fn size_of_entry(routes: &Routes) -> usize {
    routes.size() + ENTRY_BYTES
}

fn work_of(routes: &Routes, bytes: usize) -> u64 {
    let merged = routes.matched.overlap / MERGED;
    MATCH_WORK + NODE_WORK * routes.visited as u64 + (bytes / MATCH_BYTES + merged) as u64
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::topic::Filter;
    use millrace_mqtt::{Properties, QoS};
    use millrace_router::{Subscription, Target};
    use millrace_session::Message;

    use super::*;

    #[test]
    fn a_subscription_makes_only_the_topics_that_it_matches_match_anew() {
        let broker = Arc::new(Broker::new(1, "b", 1));
        let mut cache = RouteCache::default();
        let target = |slot| Target { core: 0, slot, generation: 0 };
        let subscription = |slot| Subscription {
            target: target(slot),
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            persistent: false,
            identifier: 0,
        };
        (0..1_000).for_each(|slot| {
            broker.router.subscribe(Filter { share: None, filter: "hot/+" }, subscription(slot));
        });
        let hot = cache.get(&broker, "hot/1");
        let (of_match, mut work) = (cache.take_work(), 0);
        for number in 0..500 {
            let own = format!("device/{number}/#");
            let filter = Filter { share: None, filter: &own };
            broker.router.subscribe(filter, subscription(1_000 + number));
            assert!(Arc::ptr_eq(&hot, &cache.get(&broker, "hot/1")), "{number}");
            broker.router.unsubscribe(filter, target(1_000 + number));
            assert!(Arc::ptr_eq(&hot, &cache.get(&broker, "hot/1")), "{number}");
            work += cache.take_work();
        }
        assert_eq!(work, 1_000 * MATCH_WORK);
        assert!(of_match > 100 * MATCH_WORK, "a match of 1,000 receivers takes {of_match} units");
        for (filter, share) in [("hot/1", None), ("hot/#", None), ("hot/1", Some("group"))] {
            let filter = Filter { share, filter };
            let before = cache.get(&broker, "hot/1");
            broker.router.subscribe(filter, subscription(5_000));
            let with = cache.get(&broker, "hot/1");
            assert!(!Arc::ptr_eq(&before, &with));
            assert_eq!(with.matched.receivers.len() + with.matched.groups.len(), 1_001, "{filter:?}");
            broker.router.unsubscribe(filter, target(5_000));
            assert_eq!(cache.get(&broker, "hot/1").matched.receivers.len(), 1_000);
        }
    }

    #[test]
    fn a_retained_message_goes_to_its_receivers_of_that_moment_and_is_there_for_later_ones() {
        let broker = Arc::new(Broker::new(1, "b", 1));
        let mut cache = RouteCache::default();
        let subscribe = |slot| {
            let target = Target { core: 0, slot, generation: 0 };
            let qos = QoS::AtMostOnce;
            let (no_local, retain_as_published, persistent, identifier) = (false, false, false, 0);
            let subscription =
                Subscription { target, qos, no_local, retain_as_published, persistent, identifier };
            broker
                .edit_subscriptions(|edit| edit.subscribe(Filter { share: None, filter: "t" }, subscription))
                .1
        };
        let message = |payload: &[u8]| {
            Arc::new(Message::new("t".into(), QoS::AtMostOnce, true, Properties::EMPTY, payload, 0))
        };
        for number in 0..10 {
            let before = subscribe(2 * number);
            let known = before.get("t").cloned();
            let new = message(&[1]);
            let live = broker.retain(&new);
            assert!(!known.is_some_and(|known| Arc::ptr_eq(&known, &new)));
            let later = subscribe(2 * number + 1);
            assert!(later.get("t").is_some_and(|retained| Arc::ptr_eq(retained, &new)));
            // Also when the later subscription is made before the receivers are looked up.
            if number % 2 == 0 {
                assert_eq!(
                    cache.get_at(&broker, "t", &live).matched.receivers.len(),
                    2 * number as usize + 1
                );
            }
            assert_eq!(cache.get(&broker, "t").matched.receivers.len(), 2 * number as usize + 2);
        }
    }

    #[test]
    fn retained_messages_are_set_while_subscriptions_are_edited() {
        let broker = Arc::new(Broker::new(1, "b", 1));
        let message = Arc::new(Message::new("t".into(), QoS::AtMostOnce, true, Properties::EMPTY, b"x", 0));
        // An edit that held the gate would wait for itself here.
        let ((), retained) = broker.edit_subscriptions(|_| drop(broker.retain(&message)));
        assert!(retained.get("t").is_some());
        assert!(broker.remove_retained("t"));
    }

    /// A broker where the first `clients` sessions have a subscription of each filter.
    fn subscribed(clients: u32, filters: &[String]) -> Arc<Broker> {
        let broker = Arc::new(Broker::new(1, "b", 1));
        broker.router.edit(|edit| {
            for (slot, filter) in
                (0..clients).flat_map(|slot| filters.iter().map(move |filter| (slot, filter)))
            {
                let subscription = Subscription {
                    target: Target { core: 0, slot, generation: 0 },
                    qos: QoS::AtMostOnce,
                    no_local: false,
                    retain_as_published: false,
                    persistent: false,
                    identifier: 0,
                };
                edit.subscribe(Filter { share: None, filter }, subscription);
            }
        });
        broker
    }

    /// They all match a topic of as many levels.
    fn overlapping(count: usize) -> Vec<String> {
        (0..count).map(|levels| format!("{}#", "+/".repeat(levels))).collect()
    }

    #[test]
    fn subscriptions_of_several_filters_count_for_the_match_that_merges_them() {
        let (clients, filters) = (400, 100);
        let broker = subscribed(clients, &overlapping(filters));
        let mut cache = RouteCache::default();
        let routes = cache.get(&broker, &["x"; 100].join("/"));
        assert_eq!(routes.matched.receivers.len(), clients as usize);
        let merged = u64::from(clients) * (filters as u64 - 1);
        let work = cache.take_work();
        assert!(work > merged / MERGED as u64, "{work} units for {merged} merged subscriptions");
    }

    #[test]
    fn a_topic_with_too_many_subscriptions_of_several_filters_is_over_the_limit() {
        let broker = subscribed(1_000, &overlapping(100));
        let mut cache = RouteCache::default();
        let topic = |levels| vec!["x"; levels].join("/");
        // `+/#` matches its parent level, too.
        let over = |levels| cache.get(&broker, &topic(levels)).is_over_limit;
        assert_eq!([49, 50, 51, 100].map(over), [false, false, true, true]);
    }

    #[test]
    fn a_filter_of_many_subscribers_costs_what_its_receivers_take() {
        let clients = 100_000;
        let broker = subscribed(clients, &["t".to_owned()]);
        let mut cache = RouteCache::default();
        let routes = cache.get(&broker, "t");
        let work = |routes: &Routes| {
            MATCH_WORK + NODE_WORK * routes.visited as u64 + (size_of_entry(routes) / MATCH_BYTES) as u64
        };
        assert_eq!((routes.matched.receivers.len(), cache.take_work()), (clients as usize, work(&routes)));
        // A second filter of each of them does not make the topic refused.
        let broker = subscribed(clients, &["t".to_owned(), "t/#".to_owned()]);
        let routes = cache.get(&broker, "t");
        assert!(!routes.is_over_limit);
        assert_eq!(routes.matched.receivers.len(), clients as usize);
    }

    #[test]
    fn topics_in_use_stay_when_others_take_all_the_room() {
        let broker = Arc::new(Broker::new(1, "b", 1));
        let mut cache = RouteCache::default();
        let wanted = cache.get(&broker, "wanted");
        let filler = "x".repeat(60_000);
        for number in 0..3_000 {
            cache.get(&broker, &format!("{filler}/{number}"));
            assert!(Arc::ptr_eq(&wanted, &cache.get(&broker, "wanted")));
        }
        assert!(cache.bytes <= ROUTE_CACHE_BYTES_MAX);
        expect_whole(&cache);
    }

    fn expect_whole(cache: &RouteCache) {
        let bytes = cache.entries.iter().map(|(_, entry)| size_of_entry(&entry.routes)).sum::<usize>();
        assert_eq!((cache.bytes, cache.index.len()), (bytes, cache.entries.len()));
    }

    #[test]
    fn topics_of_a_flood_go_although_their_broker_has_clients_and_topics_in_use_stay() {
        let broker = Arc::new(Broker::new(1, "b", 1));
        broker.counters[0].connected.add(1);
        let mut cache = RouteCache::default();
        let wanted: Vec<_> = (0..500).map(|number| cache.get(&broker, &format!("wanted/{number}"))).collect();
        for number in 0..100_000 {
            cache.get(&broker, &format!("flood/{number}"));
        }
        let (capacity, indexed) = (cache.entries.capacity(), cache.index.capacity());
        for _ in 0..2 * capacity / FORGOTTEN_MAX {
            for (number, routes) in wanted.iter().enumerate() {
                assert!(Arc::ptr_eq(routes, &cache.get(&broker, &format!("wanted/{number}"))));
            }
            cache.forget_idle();
        }
        assert!(cache.bytes <= ROUTE_CACHE_UNUSED_BYTES_MAX, "{} bytes", cache.bytes);
        expect_whole(&cache);
        // Few topics stay as long as there is room.
        let left = cache.entries.len();
        (0..100).for_each(|_| cache.forget_idle());
        assert_eq!(cache.entries.len(), left);
        broker.counters[0].connected.sub(1);
        (0..100).for_each(|_| cache.forget_idle());
        assert_eq!(cache.entries.len(), 0);
        assert!(cache.entries.capacity() < capacity / SPARSE && cache.index.capacity() < indexed / SPARSE);
        expect_whole(&cache);
    }
}
