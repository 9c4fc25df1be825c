//! A queue of work from the event loops to the threads of the store, with a fair share per broker.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::broker::Broker;
use crate::clock::Clock;
use crate::fair_queue::FairQueue;

pub(super) trait QueuedWork {
    /// Bytes by which it counts for limits.
    fn size(&self) -> usize;
    /// Its part of the work of one [`WorkQueue::take_some`].
    fn work(&self) -> usize {
        1
    }
    /// Whether it is a small message. Its publisher may wait for the answer before it sends the next one.
    fn is_small_publish(&self) -> bool {
        false
    }
    /// The broker whose share of the queue it uses.
    fn owner(&self) -> Option<&Broker> {
        None
    }
}

/// Work in order of submission, or in turns of brokers if [`WorkQueue::take_some`] takes it. The queue itself has no bound:
/// event loops stop reading from a client that submits more for a broker whose bytes exceed [`WorkQueue::share`].
pub(super) struct WorkQueue<T> {
    clock: Clock,
    state: Mutex<State<T>>,
    filled: Condvar,
    bytes: AtomicUsize,
    owners: AtomicUsize,
}

struct State<T> {
    work: Vec<T>,
    /// Work that [`WorkQueue::take_some`] has left.
    left: FairQueue<T>,
    /// How much of `work` is small messages.
    small_publishes: usize,
    /// Submission time of the oldest work, microseconds of the clock.
    since_us: u64,
    /// Submission time of the oldest work that was last taken.
    taken_since_us: u64,
    closed: bool,
}

pub(super) enum TakenWork<T> {
    Work(Vec<T>),
    Nothing,
    Closed,
}

impl<T: QueuedWork> WorkQueue<T> {
    pub(super) fn new(clock: Clock) -> Self {
        let (work, left) = (Vec::new(), FairQueue::default());
        let state = State { work, left, small_publishes: 0, since_us: 0, taken_since_us: 0, closed: false };
        let (bytes, owners) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { clock, state: Mutex::new(state), filled: Condvar::new(), bytes, owners }
    }

    pub(super) fn push(&self, work: &mut Vec<T>) {
        let mut publishes = 0;
        for one in work.iter() {
            self.count(one.owner(), one.size());
            publishes += usize::from(one.is_small_publish());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // If there is work already, its push has woken the reader.
        let wakes = state.work.is_empty();
        if wakes {
            state.since_us = self.clock.micros();
        }
        state.work.append(work);
        state.small_publishes += publishes;
        drop(state);
        if wakes {
            self.filled.notify_one();
        }
    }

    pub(super) fn take(&self, wait: Duration) -> TakenWork<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.work.is_empty() && !state.closed {
            state = self.wait(state, wait);
        }
        state.taken_since_us = state.since_us;
        match (state.work.is_empty(), state.closed) {
            (false, _) => {
                state.small_publishes = 0;
                TakenWork::Work(std::mem::take(&mut state.work))
            }
            (true, false) => TakenWork::Nothing,
            (true, true) => TakenWork::Closed,
        }
    }

    fn wait<'q>(&'q self, state: MutexGuard<'q, State<T>>, wait: Duration) -> MutexGuard<'q, State<T>> {
        #[cfg(test)]
        if self.clock.is_simulated() {
            drop(state);
            let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
            crate::clock::simulated::pass(wait, &|| !lock().is_empty() || lock().closed);
            return lock();
        }
        self.filled.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Takes items until their work is `most`, in turns of their brokers, so that nobody waits for all that another broker has
    /// queued. A queue is emptied either in this way or by [`WorkQueue::take`].
    pub(super) fn take_some(&self, wait: Duration, most: usize) -> TakenWork<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_empty() && !state.closed {
            state = self.wait(state, wait);
        }
        let State { work, left, .. } = &mut *state;
        for one in std::mem::take(work) {
            left.push(one.owner().map_or(0, |broker| broker.id), one);
        }
        let (mut taken, mut rest) = (Vec::new(), most);
        while rest > 0
            && let Some((_, one)) = left.pop()
        {
            rest = rest.saturating_sub(one.work());
            taken.push(one);
        }
        if !left.is_empty() {
            self.filled.notify_one();
        }
        match (taken.is_empty(), state.closed) {
            (false, _) => TakenWork::Work(taken),
            (true, false) => TakenWork::Nothing,
            (true, true) => TakenWork::Closed,
        }
    }

    /// Age of the oldest work that was last taken, in microseconds.
    pub(super) fn taken_age_us(&self) -> u64 {
        let since_us = self.state.lock().unwrap_or_else(PoisonError::into_inner).taken_since_us;
        self.clock.micros().saturating_sub(since_us)
    }

    /// Adds bytes that [`WorkQueue::done`] takes off when they are written: taken work still counts.
    pub(super) fn count(&self, owner: Option<&Broker>, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(owner) = owner
            && bytes > 0
            && owner.unstored_bytes.fetch_add(bytes, Ordering::Relaxed) == 0
        {
            self.owners.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn done(&self, owner: Option<&Broker>, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(owner) = owner
            && bytes > 0
            && owner.unstored_bytes.fetch_sub(bytes, Ordering::Relaxed) == bytes
        {
            self.owners.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The equal share of `bytes_max` for each broker with queued work.
    pub(super) fn share(&self, bytes_max: usize) -> usize {
        bytes_max / self.owners.load(Ordering::Relaxed).max(1)
    }

    pub(super) fn small_publishes(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).small_publishes
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.filled.notify_all();
    }
}

impl<T> State<T> {
    fn is_empty(&self) -> bool {
        self.work.is_empty() && self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Bytes(Arc<Broker>, usize);

    impl QueuedWork for Bytes {
        fn size(&self) -> usize {
            self.1
        }
        fn owner(&self) -> Option<&Broker> {
            Some(&self.0)
        }
    }

    #[test]
    fn brokers_for_which_something_waits_have_equal_shares_of_the_bytes() {
        let queue = WorkQueue::new(Clock::start());
        let [one, two] = [1, 2].map(|id| Arc::new(Broker::new(id, "b", 1)));
        let is_over = |broker: &Broker| broker.unstored_bytes.load(Ordering::Relaxed) > queue.share(1_000);
        queue.push(&mut vec![Bytes(one.clone(), 900)]);
        assert!(queue.share(1_000) == 1_000 && !is_over(&one), "it is alone");
        queue.push(&mut vec![Bytes(two.clone(), 10), Bytes(two.clone(), 20)]);
        assert!(queue.share(1_000) == 500 && is_over(&one) && !is_over(&two));
        queue.done(Some(&two), 30);
        assert!(queue.share(1_000) == 1_000 && !is_over(&one));
        queue.done(Some(&one), 900);
        assert_eq!((queue.bytes(), queue.share(1_000)), (0, 1_000));
    }

    #[test]
    fn a_broker_waits_for_one_piece_of_each_other_broker_and_not_for_all() {
        let queue = WorkQueue::new(Clock::start());
        let [busy, other] = [1, 2].map(|id| Arc::new(Broker::new(id, "b", 1)));
        queue.push(&mut (0..1_000).map(|number| Bytes(busy.clone(), number)).collect());
        let take = || -> Vec<(u64, usize)> {
            let TakenWork::Work(work) = queue.take_some(Duration::ZERO, 4) else { return Vec::new() };
            work.iter().map(|Bytes(broker, number)| (broker.id, *number)).collect()
        };
        assert_eq!(take(), [(1, 0), (1, 1), (1, 2), (1, 3)]);
        queue.push(&mut vec![Bytes(other.clone(), 7), Bytes(other, 8)]);
        assert_eq!(take(), [(1, 4), (2, 7), (1, 5), (2, 8)]);
        let mut rest = Vec::new();
        while let Some((1, number)) = take().first().copied() {
            rest.push(number);
        }
        assert_eq!((rest.len(), rest.first(), rest.last()), (249, Some(&6), Some(&998)));
        queue.close();
        assert!(matches!(queue.take_some(Duration::ZERO, 4), TakenWork::Closed));
    }
}
