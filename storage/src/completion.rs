//! Hands the result of a commit from an engine to the submitter, through a callback or a future.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::Duration,
};

use crate::{clock::instant, error::StoreError, version::Committed};

/// Reports the result of one commit, once. Dropping it unused reports
/// [`StoreError::CommitUnknown`].
pub struct Completion(Option<Callback>);

type Callback = Box<dyn FnOnce(Result<Committed, StoreError>) + Send>;

impl Completion {
    /// Calls `callback` on the thread that completes or drops this completion. That is an engine's
    /// thread, or the submitting thread before its call returns, so the callback must be short and
    /// must not block.
    pub fn call(callback: impl FnOnce(Result<Committed, StoreError>) + Send + 'static) -> Self {
        Self(Some(Box::new(callback)))
    }

    pub fn future() -> (Self, Commit) {
        let state = Arc::new(Mutex::new(State::Waiting(None)));
        let commit = Commit(state.clone());
        (Self::call(move |result| finish(&state, result)), commit)
    }

    pub fn complete(mut self, result: Result<Committed, StoreError>) {
        if let Some(callback) = self.0.take() {
            callback(result);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            callback(Err(StoreError::CommitUnknown));
        }
    }
}

enum State {
    Waiting(Option<Waker>),
    Done(Result<Committed, StoreError>),
}

fn finish(state: &Mutex<State>, result: Result<Committed, StoreError>) {
    let mut locked = state.lock().unwrap_or_else(PoisonError::into_inner);
    let before = std::mem::replace(&mut *locked, State::Done(result));
    drop(locked);
    if let State::Waiting(Some(waker)) = before {
        waker.wake();
    }
}

/// The result of a submitted commit, which continues if this future is dropped.
#[must_use = "the result of a commit decides what may be acknowledged"]
pub struct Commit(Arc<Mutex<State>>);

impl Future for Commit {
    type Output = Result<Committed, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            State::Done(result) => Poll::Ready(result.clone()),
            State::Waiting(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until the future is done, for tests, tools and threads without an executor.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

/// Like [`block_on`], but returns `None` after `wait`; the future can be polled again afterwards.
pub fn block_on_for<F: Future>(mut future: Pin<&mut F>, wait: Duration) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let began = instant();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = wait.checked_sub(began.elapsed()).filter(|left| !left.is_zero())?;
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_future_can_be_polled_again_after_a_timeout() {
        let (done, mut commit) = Completion::future();
        let mut commit = Pin::new(&mut commit);
        assert_eq!(block_on_for(commit.as_mut(), Duration::from_millis(20)), None);
        done.complete(Err(StoreError::Conflict));
        assert_eq!(block_on_for(commit, Duration::ZERO), Some(Err(StoreError::Conflict)));
    }
}
