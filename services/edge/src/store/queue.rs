//! Jobs from the event loops to the thread that writes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use super::Job;

/// Jobs in the order in which they were left. Bounded by its users: they hold publishers up by [`Queue::bytes`].
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    bytes: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    closed: bool,
}

impl Queue {
    pub(super) fn push(&self, job: Job) {
        self.bytes.fetch_add(job.size(), Ordering::Relaxed);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).jobs.push(job);
        self.filled.notify_one();
    }

    /// Everything that was left; waits for something. `None` once the queue is closed and empty.
    pub(super) fn take(&self) -> Option<Vec<Job>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.jobs.is_empty() {
            if state.closed {
                return None;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Some(std::mem::take(&mut state.jobs))
    }

    /// These jobs are done.
    pub(super) fn done(&self, jobs: &[Job]) {
        self.bytes.fetch_sub(jobs.iter().map(Job::size).sum(), Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.filled.notify_all();
    }
}
