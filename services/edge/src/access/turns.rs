//! A queue in which brokers take turns: what one has waiting holds nobody else up.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(super) struct Turns<J> {
    /// Jobs of all brokers together, and of one.
    limits: (usize, usize),
    waiting: Mutex<Waiting<J>>,
    came: Condvar,
}

struct Waiting<J> {
    /// By broker; none is empty.
    jobs: HashMap<u64, VecDeque<J>>,
    /// Brokers with jobs, in the order in which it is their turn.
    order: VecDeque<u64>,
    len: usize,
    is_closed: bool,
}

impl<J> Turns<J> {
    pub(super) fn new(all_max: usize, broker_max: usize) -> Self {
        let waiting = Waiting { jobs: HashMap::new(), order: VecDeque::new(), len: 0, is_closed: false };
        Self { limits: (all_max, broker_max), waiting: Mutex::new(waiting), came: Condvar::new() }
    }

    /// Leaves a job of a broker. False when too many wait.
    pub(super) fn push(&self, broker: u64, job: J) -> bool {
        let mut waiting = self.lock();
        let (all_max, broker_max) = self.limits;
        let of_broker = waiting.jobs.get(&broker).map_or(0, VecDeque::len);
        if waiting.len >= all_max || of_broker >= broker_max {
            return false;
        }
        if of_broker == 0 {
            waiting.order.push_back(broker);
        }
        waiting.jobs.entry(broker).or_default().push_back(job);
        waiting.len += 1;
        self.came.notify_one();
        true
    }

    /// The next job, once there is one; `None` when the queue is closed.
    pub(super) fn next(&self) -> Option<J> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(job) = waiting.take() {
                return Some(job);
            }
            waiting = self.came.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing is taken out any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.came.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<J>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> Waiting<J> {
    fn take(&mut self) -> Option<J> {
        let broker = self.order.pop_front()?;
        let jobs = self.jobs.get_mut(&broker)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.jobs.remove(&broker);
        } else {
            self.order.push_back(broker);
        }
        self.len -= 1;
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_take_turns_and_each_keeps_its_order() {
        let turns = Turns::new(100, 10);
        for (broker, job) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")] {
            assert!(turns.push(broker, job));
        }
        let order: Vec<_> = (0..6).filter_map(|_| turns.next()).collect();
        assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "a3"]);
    }

    #[test]
    fn one_broker_cannot_fill_the_queue_and_all_together_not_more_than_it_holds() {
        let turns = Turns::new(4, 2);
        let pushed = [1, 1, 1, 2, 2, 3].map(|broker| turns.push(broker, ()));
        assert_eq!(pushed, [true, true, false, true, true, false]);
        assert_eq!(turns.next(), Some(()));
        assert!(turns.push(3, ()));
    }

    #[test]
    fn who_waits_for_a_job_is_told_of_the_close() {
        let turns = Turns::<()>::new(1, 1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| turns.next());
            turns.close();
            assert_eq!(waits.join().unwrap(), None);
        });
    }
}
