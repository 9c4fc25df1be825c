//! Work of many brokers, of which each broker gets one piece in turn.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use millrace_layers::streams::StreamId;

use super::StreamKey;

pub(super) struct Turns<T> {
    of: HashMap<u64, VecDeque<T>>,
    order: VecDeque<u64>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { of: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> Turns<T> {
    pub(super) fn push(&mut self, broker: u64, work: T) {
        match self.of.entry(broker) {
            Entry::Occupied(mut of) => of.get_mut().push_back(work),
            Entry::Vacant(none) => {
                none.insert(VecDeque::from([work]));
                self.order.push_back(broker);
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<(u64, T)> {
        let broker = self.order.pop_front()?;
        let Entry::Occupied(mut of) = self.of.entry(broker) else { return None };
        let work = of.get_mut().pop_front()?;
        if of.get().is_empty() {
            of.remove();
        } else {
            self.order.push_back(broker);
        }
        Some((broker, work))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn has(&self, broker: u64) -> bool {
        self.of.contains_key(&broker)
    }
}

/// Streams that wait for something, each once.
#[derive(Default)]
pub(super) struct StreamTurns {
    turns: Turns<StreamId>,
    waiting: HashSet<StreamKey>,
}

impl StreamTurns {
    pub(super) fn add(&mut self, stream: StreamKey) {
        if self.waiting.insert(stream) {
            self.turns.push(stream.0, stream.1);
        }
    }

    pub(super) fn pop(&mut self) -> Option<StreamKey> {
        let stream = self.turns.pop()?;
        self.waiting.remove(&stream);
        Some(stream)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> &HashSet<StreamKey> {
        &self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_broker_has_its_turn_whatever_others_have_queued() {
        let mut turns = Turns::default();
        (0..4).for_each(|number| turns.push(1, number));
        (10..12).for_each(|number| turns.push(2, number));
        let mut popped: Vec<_> = (0..3).filter_map(|_| turns.pop()).collect();
        turns.push(3, 20);
        popped.extend(std::iter::from_fn(|| turns.pop()));
        assert_eq!(popped, [(1, 0), (2, 10), (1, 1), (2, 11), (1, 2), (3, 20), (1, 3)]);
        assert!(turns.is_empty() && turns.of.is_empty());
    }
}
