//! Closing brokers that nobody uses, so that memory follows the active ones. A closed broker is only rows in the store:
//! its next client, due will or request opens it again.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Broker, Brokers, KnownBrokers};
use crate::clock::Millis;
use crate::metrics::{self, BrokerCounters, Count};

/// Closed brokers whose last usage is not written yet. While the store does not take it, no further ones are closed.
const UNWRITTEN_MAX: usize = 1_000;
/// A broker is closed only after it was idle for this many times its opening time: otherwise clients that come and go would keep
/// the threads busy that open brokers.
const OPENINGS: u64 = 100;

#[derive(Default)]
pub(super) struct Idleness {
    /// Somebody looked the broker up since the last call of [`Brokers::idle`].
    is_used: AtomicBool,
    unused_looks: AtomicU32,
    stays_open: AtomicBool,
    opening_ms: AtomicU64,
}

impl Idleness {
    #[inline]
    pub(super) fn note_use(&self) {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
pub(super) struct ClosedBrokers {
    /// The thread that writes usage takes `unwritten`.
    is_usage_written: AtomicBool,
    unwritten: Mutex<Vec<Arc<Broker>>>,
    count: AtomicU64,
}

impl KnownBrokers {
    pub(super) fn hash(&self, name: &str) -> u64 {
        self.by_name.hasher().hash_one(name)
    }

    pub(super) fn sorted(&self) -> Vec<Arc<Broker>> {
        let mut all: Vec<_> = self.by_name.values().cloned().collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }
}

impl Brokers {
    /// The brokers that had no client and no look-up in the last `looks` calls, which are `every_ms` apart.
    pub(crate) fn idle(&self, looks: u32, every_ms: Millis) -> Vec<(u64, Arc<str>)> {
        let idle = self.each().filter(|broker| broker.is_idle(looks, every_ms));
        idle.map(|broker| (broker.id, broker.name.clone())).collect()
    }

    /// Closes a broker and returns it, unless something refers to it or is in memory only.
    pub(crate) fn close(&self, id: u64) -> Option<Arc<Broker>> {
        let is_usage_written = self.closed.is_usage_written.load(Ordering::Relaxed);
        let mut unwritten = self.closed.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        if unwritten.len() >= UNWRITTEN_MAX {
            return None;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Only this map and the one by name refer to it, and while they are locked nobody gets a reference from them.
        let broker = known.by_id.get(&id).filter(|broker| Arc::strong_count(broker) == 2)?;
        // All changes by those who had a reference are visible now.
        fence(Ordering::Acquire);
        if broker.idleness.is_used.load(Ordering::Relaxed) || broker.has_clients() || !broker.is_written() {
            return None;
        }
        let counts = metrics::sum(broker.counters.iter().map(BrokerCounters::values));
        let broker = known.by_id.remove(&id)?;
        known.by_name.remove(&broker.name);
        let hash = known.hash(&broker.name);
        known.closed.insert(hash);
        known.closed_counts.resize(counts.len(), 0);
        for ((sum, count), metric) in known.closed_counts.iter_mut().zip(counts).zip(BrokerCounters::METRICS)
        {
            if metric.kind == "counter" {
                *sum = sum.wrapping_add(count);
            }
        }
        drop(known);
        self.closed.count.fetch_add(1, Ordering::Relaxed);
        if is_usage_written {
            unwritten.push(broker.clone());
        }
        Some(broker)
    }

    /// How many times a broker was closed: announcements of a broker that is opened again are numbered beyond those from before.
    pub(crate) fn closings(&self) -> u64 {
        self.closed.count.load(Ordering::Relaxed)
    }

    /// Up to `count` brokers that are `wanted` among the next `looks` open ones, in the order of ids from `from` on. Returns also
    /// the id from which to continue.
    pub(crate) fn page(
        &self,
        from: u64,
        looks: usize,
        count: usize,
        mut wanted: impl FnMut(&Broker) -> bool,
    ) -> (Vec<Arc<Broker>>, Option<u64>) {
        let (known, mut page) = (self.read(), Vec::new());
        for (looked, (id, broker)) in known.by_id.range(from..).enumerate() {
            if looked == looks || page.len() == count {
                return (page, Some(*id));
            }
            if wanted(broker) {
                page.push(broker.clone());
            }
        }
        (page, None)
    }

    /// Like [`Brokers::by_id`], but does not count as use.
    pub(crate) fn peek(&self, id: u64) -> Option<Arc<Broker>> {
        self.read().by_id.get(&id).cloned()
    }

    /// A number of a closed broker, by which its clients take turns while it is opened again; `None`: no such broker was open.
    pub(crate) fn closed_number(&self, name: &str) -> Option<u64> {
        let known = self.read();
        let hash = known.hash(name);
        known.closed.contains(&hash).then_some(hash)
    }

    /// The open brokers by name, and the counts of the closed ones in the order of [`BrokerCounters::METRICS`].
    pub(crate) fn all_with_closed_counts(&self) -> (Vec<Arc<Broker>>, Vec<u64>) {
        let known = self.read();
        (known.sorted(), known.closed_counts.clone())
    }

    /// From now on the caller takes the closed brokers with [`Brokers::take_closed`].
    pub(crate) fn write_usage_of_closed(&self) {
        self.closed.is_usage_written.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take_closed(&self) -> Vec<Arc<Broker>> {
        std::mem::take(&mut self.closed.unwritten.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Broker {
    pub(crate) fn has_clients(&self) -> bool {
        Count::sum(self.counters.iter().map(|counters| &counters.connected)) > 0
    }

    /// The settings name it, so it is open as long as the process runs.
    pub(crate) fn stay_open(&self) {
        self.idleness.stays_open.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stays_open(&self) -> bool {
        self.idleness.stays_open.load(Ordering::Relaxed)
    }

    pub(crate) fn note_opening(&self, took_ms: Millis) {
        self.idleness.opening_ms.store(took_ms, Ordering::Relaxed);
    }

    fn is_idle(&self, looks: u32, every_ms: Millis) -> bool {
        let Idleness { is_used, unused_looks: unused, opening_ms, .. } = &self.idleness;
        if is_used.swap(false, Ordering::Relaxed) || self.stays_open() || self.has_clients() {
            unused.store(0, Ordering::Relaxed);
            return false;
        }
        let unused = unused.fetch_add(1, Ordering::Relaxed) + 1;
        let opening_ms = opening_ms.load(Ordering::Relaxed);
        unused >= looks && Millis::from(unused) * every_ms >= opening_ms.saturating_mul(OPENINGS)
    }

    /// Whether nothing of the broker is in memory only. The thread that trims queues visits open brokers, so one with
    /// stored sessions and a limit that time alone exceeds stays open.
    fn is_written(&self) -> bool {
        let limits = self.quota.limits();
        let is_trimmed = limits.client.queue_age_s.is_some() || limits.broker.queue_bytes.is_some();
        self.incidents.is_empty()
            && self.unstored_bytes.load(Ordering::Relaxed) == 0
            && Arc::strong_count(&self.home) == 1
            && !(is_trimmed && self.has_sessions.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Loads;

    fn brokers(names: &[(u64, &str)]) -> Brokers {
        let brokers = Brokers::new(u64::MAX, u64::MAX, Loads::new(2, 256));
        names.iter().for_each(|(id, name)| brokers.insert(&Arc::new(Broker::new(*id, name, 2))));
        brokers
    }

    fn close_idle(brokers: &Brokers, looks: u32) {
        brokers.idle(looks, OPENINGS).into_iter().for_each(|(id, _)| {
            brokers.close(id);
        });
    }

    fn names(brokers: &Brokers) -> Vec<String> {
        brokers.all().iter().map(|broker| broker.name.to_string()).collect()
    }

    #[test]
    fn a_broker_is_closed_after_some_looks_without_clients_look_ups_and_references() {
        let brokers = brokers(&[(1, "client"), (2, "held"), (3, "idle"), (4, "named"), (5, "used")]);
        brokers.by_id(1).unwrap().counters[1].connected.add(1);
        let held = brokers.by_id(2).unwrap();
        brokers.by_id(4).unwrap().stay_open();
        for _ in 0..4 {
            close_idle(&brokers, 3);
            assert!(brokers.get("used").is_some());
        }
        assert_eq!(names(&brokers), ["client", "held", "named", "used"]);
        assert!(brokers.by_id(3).is_none());
        assert!(brokers.closed_number("idle").is_some() && brokers.closed_number("client").is_none());
        drop(held);
        close_idle(&brokers, 3);
        assert_eq!(names(&brokers), ["client", "named", "used"]);
        brokers.by_id(1).unwrap().counters[1].connected.sub(1);
        (0..4).for_each(|_| close_idle(&brokers, 3));
        assert_eq!(names(&brokers), ["named"]);
    }

    #[test]
    fn a_page_looks_at_few_brokers() {
        let brokers = brokers(&[(1, "a"), (2, "b"), (5, "c"), (7, "d"), (9, "e")]);
        let page = |from, looks, count| {
            let (page, next) = brokers.page(from, looks, count, |broker| broker.id % 2 == 1);
            (page.iter().map(|broker| broker.id).collect::<Vec<_>>(), next)
        };
        assert_eq!(page(0, 9, 2), (vec![1, 5], Some(7)));
        assert_eq!(page(0, 2, 2), (vec![1], Some(5)));
        assert_eq!(page(7, 9, 2), (vec![7, 9], None));
        assert_eq!(page(10, 9, 2), (vec![], None));
    }

    #[test]
    fn a_broker_that_takes_long_to_open_stays_open_longer() {
        let brokers = brokers(&[(1, "large"), (2, "small")]);
        brokers.by_id(1).unwrap().note_opening(6);
        (0..4).for_each(|_| close_idle(&brokers, 3));
        assert_eq!(names(&brokers), ["large"]);
        (0..3).for_each(|_| close_idle(&brokers, 3));
        assert!(names(&brokers).is_empty());
    }

    #[test]
    fn a_broker_with_something_in_memory_only_stays_open() {
        let brokers = brokers(&[(1, "claimed"), (2, "queued")]);
        let claim = brokers.by_id(1).unwrap().home.owner(7, 2).into_claim();
        assert!(claim.is_some());
        brokers.by_id(2).unwrap().unstored_bytes.store(1, Ordering::Relaxed);
        (0..4).for_each(|_| close_idle(&brokers, 2));
        assert_eq!(names(&brokers), ["claimed", "queued"]);
        drop(claim);
        brokers.by_id(2).unwrap().unstored_bytes.store(0, Ordering::Relaxed);
        (0..4).for_each(|_| close_idle(&brokers, 2));
        assert!(names(&brokers).is_empty());
    }

    #[test]
    fn counts_of_closed_brokers_are_kept_and_their_usage_is_taken_once() {
        let brokers = brokers(&[(1, "one"), (2, "two")]);
        brokers.write_usage_of_closed();
        for id in [1, 2] {
            let broker = brokers.by_id(id).unwrap();
            broker.counters[0].sent.add(5);
            broker.counters[0].sessions.add(3);
        }
        (0..2).for_each(|_| close_idle(&brokers, 2));
        assert_eq!(brokers.all().len(), 2, "they were just used");
        close_idle(&brokers, 2);
        let (all, counts) = brokers.all_with_closed_counts();
        let of = |name| {
            let index = BrokerCounters::METRICS.iter().position(|metric| metric.name == name);
            counts[index.unwrap()]
        };
        assert_eq!((all.len(), of("millrace_messages_sent_total"), of("millrace_sessions")), (0, 10, 0));
        assert_eq!((brokers.take_closed().len(), brokers.take_closed().len()), (2, 0));
    }

    #[test]
    fn a_closed_broker_leaves_room_on_its_home_loop_and_in_the_sums_of_all() {
        let brokers = brokers(&[(1, "one"), (2, "two")]);
        assert_ne!(brokers.by_id(1).unwrap().home.core(), brokers.by_id(2).unwrap().home.core());
        let home = brokers.by_id(1).unwrap().home.core();
        (0..4).for_each(|_| {
            close_idle(&brokers, 3);
            assert!(brokers.by_id(2).is_some());
        });
        let third = Arc::new(Broker::new(3, "three", 2));
        brokers.insert(&third);
        assert_eq!(third.home.core(), home);
    }
}
