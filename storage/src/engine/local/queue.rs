//! The queue of transactions to the commit thread: any thread pushes or gets an error at once, and
//! the commit thread takes groups in the order of arrival.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::request::CommitRequest;
use crate::error::StoreError;

/// From this many bytes of writes or [`WAITING_MAX`] transactions on, a commit fails with
/// [`StoreError::Busy`], which bounds memory when the disk is slower than the writers.
const WAITING_BYTES_MAX: usize = 64 << 20;

const WAITING_MAX: usize = 100_000;

/// From this many bytes on a group is closed, because its first transaction waits until the whole
/// group is written.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// The versionstamp has 16 bits for a transaction's number in its group.
const GROUP_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct CommitQueue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<CommitRequest>,
    bytes: usize,
    closed: bool,
}

impl CommitQueue {
    pub(super) fn push(&self, request: CommitRequest) -> Result<(), StoreError> {
        let mut state = self.lock();
        let full = state.bytes >= WAITING_BYTES_MAX || state.waiting.len() >= WAITING_MAX;
        if full || state.closed {
            let error = if state.closed { StoreError::Closed } else { StoreError::Busy };
            drop(state);
            request.done.complete(Err(error.clone()));
            return Err(error);
        }
        state.bytes += request.bytes;
        state.waiting.push(request);
        let first = state.waiting.len() == 1;
        drop(state);
        if first {
            self.arrived.notify_one();
        }
        Ok(())
    }

    pub(super) fn count_and_bytes(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.len(), state.bytes)
    }

    /// Waits for the next group; returns an empty one after `patience` without a transaction, and
    /// `None` once the queue is closed and empty.
    pub(super) fn take_group(&self, patience: Option<Duration>) -> Option<Vec<CommitRequest>> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            state = match patience {
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let (state, result) =
                        self.arrived.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner);
                    if result.timed_out() {
                        return Some(Vec::new());
                    }
                    state
                }
            };
        }
        Some(state.take_group())
    }

    /// Sleeps for `time` without taking a group; ends early when a transaction arrives in the empty
    /// queue or the queue is closed.
    pub(super) fn pause(&self, time: Duration) {
        drop(self.arrived.wait_timeout(self.lock(), time));
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    pub(super) fn take_all(&self) -> Vec<CommitRequest> {
        let mut state = self.lock();
        state.bytes = 0;
        std::mem::take(&mut state.waiting)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_group(&mut self) -> Vec<CommitRequest> {
        let (mut bytes, mut count) = (0, 0);
        for request in self.waiting.iter().take(GROUP_MAX) {
            if bytes >= GROUP_BYTES_MAX {
                break;
            }
            bytes += request.bytes;
            count += 1;
        }
        let rest = self.waiting.split_off(count);
        let group = std::mem::replace(&mut self.waiting, rest);
        self.bytes -= bytes;
        group
    }
}
