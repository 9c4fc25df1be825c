//! The connections of each broker on this core, so that work for one broker visits its clients alone.

use std::collections::HashMap;

use hashbrown::HashSet;

#[derive(Default)]
pub(super) struct ByBroker(
    HashMap<u64, HashSet<u32, foldhash::fast::FixedState>, foldhash::fast::FixedState>,
);

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

    pub(super) fn slots(&self, broker: u64) -> impl Iterator<Item = u32> {
        self.0.get(&broker).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_has_the_connections_that_came_and_did_not_go() {
        let mut by_broker = ByBroker::default();
        [10, 11, 12].into_iter().for_each(|slot| by_broker.add(1, slot));
        by_broker.add(2, 20);
        by_broker.remove(1, 11);
        let sorted = |by_broker: &ByBroker, broker| {
            let mut slots: Vec<u32> = by_broker.slots(broker).collect();
            slots.sort_unstable();
            slots
        };
        assert_eq!((sorted(&by_broker, 1), sorted(&by_broker, 2)), (vec![10, 12], vec![20]));
        by_broker.remove(2, 20);
        assert_eq!((sorted(&by_broker, 2), by_broker.0.len()), (vec![], 1));
    }
}
