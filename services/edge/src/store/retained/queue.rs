//! SUBSCRIBE packets whose retained messages are read. Brokers take turns, a page each, and so do the SUBSCRIBE
//! packets of a broker.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::RetainedRead;

/// Memory of the waiting SUBSCRIBE packets of one broker, bytes; above it, further ones are refused.
const BYTES_PER_BROKER_MAX: usize = 32 * 1024 * 1024;

/// Memory of the messages read for one broker's SUBSCRIBE packets, bytes. Above it, the packets are finished one by
/// one, so that at most one of them grows.
const READ_BYTES_PER_BROKER_MAX: usize = 64 * 1024 * 1024;

pub(in super::super) struct RetainedQueue {
    bytes_max: usize,
    read_bytes_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    brokers: HashMap<u64, BrokerReads>,
    /// Brokers with waiting packets, the next one first.
    order: VecDeque<u64>,
    is_closed: bool,
}

#[derive(Default)]
struct BrokerReads {
    reads: VecDeque<RetainedRead>,
    bytes: usize,
    read_bytes: usize,
}

impl Default for RetainedQueue {
    fn default() -> Self {
        let (bytes_max, read_bytes_max) = (BYTES_PER_BROKER_MAX, READ_BYTES_PER_BROKER_MAX);
        Self { bytes_max, read_bytes_max, state: Mutex::default(), changed: Condvar::new() }
    }
}

impl RetainedQueue {
    /// Adds a SUBSCRIBE, or returns it if too much of its broker waits.
    pub(super) fn push(&self, read: RetainedRead) -> Result<(), Box<RetainedRead>> {
        let mut state = self.state();
        let waiting = state.brokers.get(&read.broker()).map_or(0, |of| of.bytes);
        if waiting + read.bytes() > self.bytes_max {
            return Err(read.into());
        }
        state.push(read, false);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    pub(super) fn push_again(&self, read: RetainedRead) {
        let mut state = self.state();
        let held = state.brokers.get(&read.broker()).map_or(0, |of| of.read_bytes);
        let is_next = held + read.read_bytes() > self.read_bytes_max;
        state.push(read, is_next);
    }

    /// Waits for work and takes some of each broker in turn; returns `None` once the queue is closed.
    pub(super) fn take(&self, most: usize) -> Option<Vec<RetainedRead>> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            let taken = state.take(most, self.read_bytes_max);
            if !taken.is_empty() {
                return Some(taken);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns after `time`, or when the queue is closed.
    pub(super) fn pause(&self, time: Duration) {
        let is_open = |state: &mut State| !state.is_closed;
        drop(self.changed.wait_timeout_while(self.state(), time, is_open));
    }

    pub(in super::super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, read: RetainedRead, is_next: bool) {
        let broker = read.broker();
        let of = self.brokers.entry(broker).or_default();
        if of.reads.is_empty() {
            self.order.push_back(broker);
        }
        of.bytes += read.bytes();
        of.read_bytes += read.read_bytes();
        if is_next {
            of.reads.push_front(read);
        } else {
            of.reads.push_back(read);
        }
    }

    /// The next packets whose sessions still exist. A broker with too much in memory gives one at most.
    fn take(&mut self, most: usize, read_bytes_max: usize) -> Vec<RetainedRead> {
        let (mut taken, mut later) = (Vec::new(), Vec::new());
        while taken.len() < most
            && let Some(broker) = self.order.pop_front()
        {
            let Some(of) = self.brokers.get_mut(&broker) else { continue };
            let Some(read) = of.reads.pop_front() else { continue };
            let is_full = of.read_bytes > read_bytes_max;
            of.bytes -= read.bytes();
            of.read_bytes -= read.read_bytes();
            if of.reads.is_empty() {
                self.brokers.remove(&broker);
            } else if is_full && !read.is_gone() {
                later.push(broker);
            } else {
                self.order.push_back(broker);
            }
            if !read.is_gone() {
                taken.push(read);
            }
        }
        self.order.extend(later);
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::{Asker, subscribe};
    use super::*;

    fn queue(bytes_max: usize) -> RetainedQueue {
        RetainedQueue { bytes_max, ..RetainedQueue::default() }
    }

    fn brokers(reads: &[RetainedRead]) -> Vec<u64> {
        reads.iter().map(RetainedRead::broker).collect()
    }

    #[test]
    fn a_broker_waits_for_one_page_of_each_other_broker() {
        let (queue, asker) = (queue(usize::MAX), Asker::default());
        for _ in 0..1_000 {
            assert!(queue.push(subscribe(1, &asker, &["#"])).is_ok());
        }
        for broker in [2, 3, 3] {
            assert!(queue.push(subscribe(broker, &asker, &["#"])).is_ok());
        }
        let taken = queue.take(3).unwrap();
        assert_eq!(brokers(&taken), [1, 2, 3]);
        taken.into_iter().for_each(|read| queue.push_again(read));
        assert_eq!(brokers(&queue.take(6).unwrap()), [1, 3, 2, 1, 3, 1]);
    }

    #[test]
    fn one_broker_has_a_bounded_queue_and_others_are_not_refused_for_it() {
        let asker = Asker::default();
        let of_one = subscribe(1, &asker, &["a/#"]).bytes();
        let queue = queue(10 * of_one);
        for number in 0..12 {
            assert_eq!(queue.push(subscribe(1, &asker, &["a/#"])).is_ok(), number < 10, "{number}");
        }
        assert!(queue.push(subscribe(2, &asker, &["a/#"])).is_ok());
        let taken = queue.take(3).unwrap();
        assert_eq!(brokers(&taken), [1, 2, 1]);
        assert!(queue.push(subscribe(1, &asker, &["a/#"])).is_ok(), "some of it was read");
    }

    #[test]
    fn nothing_is_read_for_a_session_that_has_ended() {
        let (queue, ended, stays) = (queue(usize::MAX), Asker::default(), Asker::default());
        for asker in [&ended, &ended, &stays, &ended] {
            assert!(queue.push(subscribe(1, asker, &["#"])).is_ok());
        }
        drop(ended);
        let taken = queue.take(10).unwrap();
        assert_eq!(taken.len(), 1);
        assert_eq!(Arc::strong_count(&stays), 1);
        queue.close();
        assert!(queue.take(10).is_none());
    }

    #[test]
    fn a_broker_with_much_in_memory_finishes_what_it_has_begun() {
        let asker = Asker::default();
        let queue = RetainedQueue { read_bytes_max: 100, ..RetainedQueue::default() };
        for _ in 0..20 {
            assert!(queue.push(subscribe(1, &asker, &["#"])).is_ok());
        }
        let mut most = 0;
        for round in 1..=10 {
            let taken = queue.take(4).unwrap();
            for mut read in taken {
                read.reader.bytes += 30;
                queue.push_again(read);
            }
            let state = queue.state();
            let begun = state.brokers[&1].reads.iter().filter(|read| read.read_bytes() > 0).count();
            most = most.max(begun);
            assert!(round < 3 || begun == most, "{begun} of {most}");
        }
        assert!((4..=5).contains(&most), "{most} have begun");
        assert_eq!(queue.take(4).unwrap().len(), 1);
        assert!(queue.push(subscribe(2, &asker, &["#"])).is_ok());
        assert_eq!(brokers(&queue.take(4).unwrap()).iter().filter(|broker| **broker == 2).count(), 1);
    }
}
