//! A queue in which brokers take turns.

use std::collections::{HashMap, VecDeque};

use slab::Slab;

/// [`FairQueue::pop`] serves the brokers one after the other, so the wait of a broker does not depend on how much work
/// another broker has.
///
/// Every socket that is read or written in a busy turn passes through such a queue, mostly next to others of its broker.
/// A piece therefore looks up its broker only when the piece before it was another broker's.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    queues: Slab<BrokerQueue<T>>,
    of: HashMap<u64, usize, foldhash::fast::FixedState>,
    order: VecDeque<usize>,
    /// Key of the queue that was last pushed to. It may be gone, or be another broker's.
    last: usize,
    len: usize,
}

/// Never empty.
#[derive(Debug)]
struct BrokerQueue<T> {
    broker: u64,
    pieces: VecDeque<T>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        let (queues, of, order) = Default::default();
        Self { queues, of, order, last: 0, len: 0 }
    }
}

impl<T> FairQueue<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn has(&self, broker: u64) -> bool {
        self.of.contains_key(&broker)
    }

    pub(crate) fn push(&mut self, broker: u64, work: T) {
        self.len += 1;
        if let Some(own) = self.queues.get_mut(self.last).filter(|own| own.broker == broker) {
            return own.pieces.push_back(work);
        }
        self.last = *self.of.entry(broker).or_insert_with(|| {
            let key = self.queues.insert(BrokerQueue { broker, pieces: VecDeque::new() });
            self.order.push_back(key);
            key
        });
        self.queues[self.last].pieces.push_back(work);
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let key = self.order.pop_front()?;
        let own = self.queues.get_mut(key)?;
        let (broker, work) = (own.broker, own.pieces.pop_front()?);
        if own.pieces.is_empty() {
            self.of.remove(&broker);
            self.queues.remove(key);
        } else {
            self.order.push_back(key);
        }
        self.len -= 1;
        Some((broker, work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_waits_for_one_piece_of_each_other_broker() {
        let mut queue = FairQueue::default();
        (0..1_000).for_each(|piece| queue.push(1, piece));
        queue.push(2, 0);
        queue.push(3, 0);
        queue.push(3, 1);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).take(7).collect();
        assert_eq!(order, [(1, 0), (2, 0), (3, 0), (1, 1), (3, 1), (1, 2), (1, 3)]);
        assert!(!queue.is_empty() && queue.len == 996);
    }

    #[test]
    fn a_broker_whose_queue_was_emptied_does_not_get_the_pieces_of_the_next_one() {
        let mut queue = FairQueue::default();
        for round in 0..3 {
            queue.push(1, round);
            assert_eq!(queue.pop(), Some((1, round)));
            queue.push(2, round);
            queue.push(1, round);
            queue.push(2, round + 10);
            let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
            assert_eq!(order, [(2, round), (1, round), (2, round + 10)]);
            assert!(queue.is_empty() && queue.queues.is_empty() && queue.of.is_empty());
        }
    }
}
