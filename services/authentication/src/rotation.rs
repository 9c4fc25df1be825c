//! Round-robin queues, nested: a broker's queue holds the queues of its addresses, and theirs hold
//! the queues of users. The newest and the oldest child that had no turn yet come between the others.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Children among which an eviction chooses: an event loop waits for it.
const EVICTION_LOOKS: usize = 256;

pub(crate) trait Turns {
    type Job;
    fn len(&self) -> usize;
    fn pop(&mut self) -> Option<Self::Job>;
    /// Removes the oldest job of a long queue.
    fn evict(&mut self) -> Option<Self::Job>;
}

pub(crate) struct FairRotation<K, Q> {
    /// No child is empty.
    children: HashMap<K, Q>,
    /// Children that have had a turn, the next one first.
    served: VecDeque<K>,
    /// The other children, the newest last.
    without_turn: VecDeque<K>,
    next: NextChild,
    len: usize,
}

/// The three kinds of children take turns. So a client that has just come does not wait behind the many children of a guesser with many
/// names or addresses, and the oldest child without a turn does not wait for ever.
#[derive(Clone, Copy)]
enum NextChild {
    Newest,
    Served,
    Oldest,
}

impl<K, Q> Default for FairRotation<K, Q> {
    fn default() -> Self {
        Self {
            children: HashMap::new(),
            served: VecDeque::new(),
            without_turn: VecDeque::new(),
            next: NextChild::Newest,
            len: 0,
        }
    }
}

impl<K: Eq + Hash + Clone, Q: Turns + Default> FairRotation<K, Q> {
    pub(crate) fn with<R>(&mut self, key: &K, change: impl FnOnce(&mut Q) -> R) -> R {
        if !self.children.contains_key(key) {
            self.without_turn.push_back(key.clone());
        }
        let child = self.children.entry(key.clone()).or_default();
        let before = child.len();
        let result = change(child);
        self.len = self.len + child.len() - before;
        result
    }

    pub(crate) fn get(&self, key: &K) -> Option<&Q> {
        self.children.get(key)
    }

    fn remove_if_empty(&mut self, key: &K) -> bool {
        let is_empty = self.children.get(key).is_some_and(|child| child.len() == 0);
        is_empty && self.children.remove(key).is_some()
    }

    fn next_child(&mut self) -> Option<K> {
        for _ in 0..3 {
            let (key, next) = match self.next {
                NextChild::Newest => (self.without_turn.pop_back(), NextChild::Served),
                NextChild::Served => (self.served.pop_front(), NextChild::Oldest),
                NextChild::Oldest => (self.without_turn.pop_front(), NextChild::Newest),
            };
            self.next = next;
            if key.is_some() {
                return key;
            }
        }
        None
    }
}

impl<K: Eq + Hash + Clone, Q: Turns + Default> Turns for FairRotation<K, Q> {
    type Job = Q::Job;

    fn len(&self) -> usize {
        self.len
    }

    fn pop(&mut self) -> Option<Q::Job> {
        let key = self.next_child()?;
        let job = self.children.get_mut(&key)?.pop();
        self.len -= usize::from(job.is_some());
        if !self.remove_if_empty(&key) {
            self.served.push_back(key);
        }
        job
    }

    fn evict(&mut self) -> Option<Q::Job> {
        let children = self.served.iter().chain(&self.without_turn).take(EVICTION_LOOKS).enumerate();
        let (at, key) = children.max_by_key(|(_, key)| self.get(key).map_or(0, Turns::len))?;
        let key = key.clone();
        let job = self.children.get_mut(&key)?.evict();
        self.len -= usize::from(job.is_some());
        if self.remove_if_empty(&key) {
            match at.checked_sub(self.served.len()) {
                None => self.served.remove(at),
                Some(at) => self.without_turn.remove(at),
            };
        }
        job
    }
}

/// The jobs of one user at one address, taken from both ends in turn: a new client does not wait
/// for a long queue, and the oldest client still gets its result.
pub(crate) struct TwoEndedQueue<J> {
    jobs: VecDeque<J>,
    oldest_next: bool,
}

impl<J> Default for TwoEndedQueue<J> {
    fn default() -> Self {
        Self { jobs: VecDeque::new(), oldest_next: false }
    }
}

impl<J> TwoEndedQueue<J> {
    pub(crate) fn push(&mut self, job: J) {
        self.jobs.push_back(job);
    }
}

impl<J> Turns for TwoEndedQueue<J> {
    type Job = J;

    fn len(&self) -> usize {
        self.jobs.len()
    }

    fn pop(&mut self) -> Option<J> {
        let job = if self.oldest_next { self.jobs.pop_front() } else { self.jobs.pop_back() };
        self.oldest_next = !self.oldest_next;
        job
    }

    fn evict(&mut self) -> Option<J> {
        self.jobs.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_take_turns_whatever_their_number_of_jobs() {
        let mut rotation = FairRotation::<_, TwoEndedQueue<_>>::default();
        for (key, job) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")] {
            rotation.with(&key, |child| child.push(job));
        }
        assert_eq!(rotation.len(), 6);
        let order: Vec<_> = std::iter::from_fn(|| rotation.pop()).collect();
        assert_eq!(order, ["c1", "a3", "b2", "a1", "b1", "a2"]);
        assert_eq!((rotation.len(), rotation.children.len(), rotation.served.len()), (0, 0, 0));
    }

    #[test]
    fn a_new_child_does_not_wait_for_all_others_nor_does_the_oldest() {
        let mut rotation = FairRotation::<_, TwoEndedQueue<_>>::default();
        for guess in 0..400 {
            rotation.with(&guess, |child| child.push(guess));
        }
        rotation.with(&1_000, |child| child.push(1_000));
        let first: Vec<_> = std::iter::from_fn(|| rotation.pop()).take(3).collect();
        assert_eq!(first, [1_000, 0, 399]);
        assert_eq!(std::iter::from_fn(|| rotation.pop()).count(), 398);
    }

    #[test]
    fn the_newest_and_the_oldest_of_a_child_come_in_turn() {
        let mut ends = TwoEndedQueue::default();
        (1..=5).for_each(|job| ends.push(job));
        assert_eq!(std::iter::from_fn(|| ends.pop()).collect::<Vec<_>>(), [5, 1, 4, 2, 3]);
    }

    #[test]
    fn the_oldest_of_the_largest_child_is_given_up() {
        let mut rotation = FairRotation::<_, TwoEndedQueue<_>>::default();
        for (key, job) in [(1, "a1"), (2, "b1"), (2, "b2"), (3, "c1")] {
            rotation.with(&key, |child| child.push(job));
        }
        assert_eq!((rotation.evict(), rotation.len()), (Some("b1"), 3));
        for _ in 0..3 {
            assert!(rotation.evict().is_some());
        }
        assert_eq!((rotation.evict(), rotation.len(), rotation.served.len()), (None, 0, 0));
    }
}
