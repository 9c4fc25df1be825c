//! An index from a broker to its connections on this core. Work for one broker visits only the clients of that broker, and can spread
//! over several turns of the event loop.

use std::collections::{BTreeSet, HashMap};

#[derive(Default)]
pub(super) struct ByBroker(HashMap<u64, BTreeSet<u32>, foldhash::fast::FixedState>);

/// A visit of all clients of a broker, in the order of their slots. A new visit replaces one that has not ended: it continues at the
/// same slot, and wraps around to the earlier slots at the end. So each client is visited, however often visits begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientsVisit {
    next: u32,
    end: u32,
    /// After the last slot, the visit wraps around to the slots below this one; 0 for none.
    wraps_to: u32,
}

impl ClientsVisit {
    pub(super) fn begin(present: Option<Self>) -> Self {
        let next = present.map_or(0, |present| present.next);
        Self { next, end: u32::MAX, wraps_to: next }
    }
}

impl ByBroker {
    pub(super) fn add(&mut self, broker: u64, slot: u32) {
        self.0.entry(broker).or_default().insert(slot);
    }

    pub(super) fn remove(&mut self, broker: u64, slot: u32) {
        let Some(slots) = self.0.get_mut(&broker) else { return };
        slots.remove(&slot);
        if slots.is_empty() {
            self.0.remove(&broker);
        }
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.0.values().flatten().copied()
    }

    /// The next client of a visit; `None` ends the visit.
    pub(super) fn next(&self, broker: u64, visit: &mut ClientsVisit) -> Option<u32> {
        let slots = self.0.get(&broker)?;
        loop {
            if let Some(slot) = slots.range(visit.next..visit.end).next() {
                visit.next = slot + 1;
                return Some(*slot);
            }
            if visit.wraps_to == 0 {
                return None;
            }
            *visit = ClientsVisit { next: 0, end: visit.wraps_to, wraps_to: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visited(by_broker: &ByBroker, broker: u64, visit: &mut ClientsVisit, most: usize) -> Vec<u32> {
        std::iter::from_fn(|| by_broker.next(broker, visit)).take(most).collect()
    }

    #[test]
    fn a_broker_has_the_connections_that_came_and_did_not_go() {
        let mut by_broker = ByBroker::default();
        [10, 11, 12].into_iter().for_each(|slot| by_broker.add(1, slot));
        by_broker.add(2, 20);
        by_broker.remove(1, 11);
        let all =
            |by_broker: &ByBroker, broker| visited(by_broker, broker, &mut ClientsVisit::begin(None), 9);
        assert_eq!((all(&by_broker, 1), all(&by_broker, 2)), (vec![10, 12], vec![20]));
        by_broker.remove(2, 20);
        assert_eq!((all(&by_broker, 2), by_broker.0.len()), (vec![], 1));
    }

    #[test]
    fn a_visit_that_replaces_another_one_still_visits_each_client() {
        let mut by_broker = ByBroker::default();
        (0..10).for_each(|slot| by_broker.add(1, slot));
        let mut visit = ClientsVisit::begin(None);
        assert_eq!(visited(&by_broker, 1, &mut visit, 6), [0, 1, 2, 3, 4, 5]);
        by_broker.remove(1, 7);
        visit = ClientsVisit::begin(Some(visit));
        assert_eq!(visited(&by_broker, 1, &mut visit, 5), [6, 8, 9, 0, 1]);
        visit = ClientsVisit::begin(Some(visit));
        assert_eq!(visited(&by_broker, 1, &mut visit, 99), [2, 3, 4, 5, 6, 8, 9, 0, 1]);
        assert_eq!(visited(&by_broker, 1, &mut visit, 99), [0; 0]);
    }
}
