//! Transactions queued for the commit thread, within limits of number and bytes.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::request::Request;
use crate::error::StoreError;

/// Most queued bytes of writes; beyond it commits are refused as busy, which bounds memory when the disk is slower than
/// the writers.
const WAITING_BYTES_MAX: usize = 64 << 20;

const WAITING_MAX: usize = 100_000;

/// Bytes of one group before its last transaction, which bounds how long the first transaction waits for the others.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// The number of a transaction in its group must fit the versionstamp.
const GROUP_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Request>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    pub(super) fn push(&self, request: Request) -> Result<(), StoreError> {
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

    pub(super) fn waiting(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.len(), state.bytes)
    }

    /// Empty when no transaction came within `patience`; `None` after the end.
    pub(super) fn group(&self, patience: Option<Duration>) -> Option<Vec<Request>> {
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

    pub(super) fn gather(&self, patience: Duration) {
        drop(self.arrived.wait_timeout(self.lock(), patience));
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    pub(super) fn take_all(&self) -> Vec<Request> {
        let mut state = self.lock();
        state.bytes = 0;
        std::mem::take(&mut state.waiting)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_group(&mut self) -> Vec<Request> {
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
