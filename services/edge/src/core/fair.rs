//! A queue in which brokers take turns.

use std::collections::{HashMap, VecDeque};

/// Pieces of work by broker. [`FairQueue::pop`] serves the brokers one after the other, so the wait of a broker does not
/// depend on how much work another broker has.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    of: HashMap<u64, VecDeque<T>>,
    /// Brokers with work, the next one first.
    order: VecDeque<u64>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { of: HashMap::new(), order: VecDeque::new(), len: 0 }
    }
}

impl<T> FairQueue<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a piece of work behind the others of its broker.
    pub(super) fn push(&mut self, broker: u64, work: T) {
        let own = self.of.entry(broker).or_insert_with(|| {
            self.order.push_back(broker);
            VecDeque::new()
        });
        own.push_back(work);
        self.len += 1;
    }

    /// The next piece of work, with its broker.
    pub(super) fn pop(&mut self) -> Option<(u64, T)> {
        let broker = self.order.pop_front()?;
        let own = self.of.get_mut(&broker)?;
        let work = own.pop_front()?;
        if own.is_empty() {
            self.of.remove(&broker);
        } else {
            self.order.push_back(broker);
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
}
