//! A timer without a runtime: one thread wakes futures when their time has come. It starts with the
//! first wait and ends when nothing waits.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Instant,
};

use crate::clock::instant;

#[derive(Default)]
pub(crate) struct Timer(Arc<SharedTimer>);

#[derive(Default)]
struct SharedTimer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waits: BinaryHeap<Reverse<Wait>>,
    running: bool,
}

struct Wait {
    due: Instant,
    alarm: Arc<Alarm>,
}

#[derive(Default)]
struct Alarm {
    rang: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Timer {
    pub(crate) fn after(&self, due: Instant) -> impl Future<Output = ()> + Send + use<> {
        Sleep { timer: self.0.clone(), due, alarm: None }
    }
}

struct Sleep {
    timer: Arc<SharedTimer>,
    due: Instant,
    alarm: Option<Arc<Alarm>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let alarm = self.alarm.get_or_insert_default().clone();
        let first = {
            let mut waker = alarm.waker.lock().unwrap_or_else(PoisonError::into_inner);
            waker.replace(context.waker().clone()).is_none()
        };
        if alarm.rang.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if first && !set(&self.timer, Wait { due: self.due, alarm }) {
            // No thread could be started; a wait that is too short is better than one that never ends.
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

fn set(timer: &Arc<SharedTimer>, wait: Wait) -> bool {
    let mut state = timer.state.lock().unwrap_or_else(PoisonError::into_inner);
    state.waits.push(Reverse(wait));
    timer.changed.notify_one();
    if !state.running {
        let shared = timer.clone();
        let thread = std::thread::Builder::new().name("store-timer".into()).spawn(move || ring(&shared));
        state.running = thread.is_ok();
    }
    state.running
}

/// The thread: wakes what is due, until nothing waits.
fn ring(timer: &SharedTimer) {
    let mut state = timer.state.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(Reverse(next)) = state.waits.peek() {
        let now = instant();
        if next.due > now {
            let wait = next.due - now;
            state = timer.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        } else if let Some(Reverse(due)) = state.waits.pop() {
            due.alarm.rang.store(true, Ordering::Release);
            let waker = due.alarm.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
            drop(state);
            waker.inspect(Waker::wake_by_ref);
            state = timer.state.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
    state.running = false;
}

impl PartialEq for Wait {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Wait {}

impl PartialOrd for Wait {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wait {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::completion::block_on;

    #[test]
    fn a_wait_ends_when_it_is_due_and_not_before() {
        let timer = Timer::default();
        for milliseconds in [20, 1] {
            let due = instant() + Duration::from_millis(milliseconds);
            block_on(timer.after(due));
            assert!(instant() >= due);
        }
    }
}
