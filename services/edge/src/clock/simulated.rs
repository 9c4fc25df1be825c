//! The time of a simulation. A simulation runs on one thread, so the thread knows its scheduler: whatever waits lets
//! the others act meanwhile.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How often a waiting future is polled, while others act.
const POLL_EVERY: Duration = Duration::from_millis(2);

pub(crate) trait Scheduler {
    fn micros(&self) -> u64;
    /// Lets others act for this time, or until `is_over`.
    fn pass(&self, wait: Duration, is_over: &dyn Fn() -> bool);
    /// Sets whether the acting part polls again when an answer is late, because only then answers may be late. Returns what was
    /// set before.
    fn set_patient(&self, is_patient: bool) -> bool;
}

thread_local! {
    static SCHEDULER: RefCell<Option<Rc<dyn Scheduler>>> = const { RefCell::new(None) };
}

/// `None` ends the simulation of this thread.
pub(crate) fn set(scheduler: Option<Rc<dyn Scheduler>>) {
    SCHEDULER.set(scheduler);
}

fn scheduler() -> Rc<dyn Scheduler> {
    SCHEDULER.with_borrow(Clone::clone).expect("this thread runs a simulation")
}

pub(crate) fn micros() -> u64 {
    scheduler().micros()
}

pub(crate) fn pass(wait: Duration, is_over: &dyn Fn() -> bool) {
    scheduler().pass(wait, is_over);
}

pub(super) fn block_on_for<F: Future>(mut future: Pin<&mut F>, wait: Duration) -> Option<F::Output> {
    let scheduler = scheduler();
    let until_us = scheduler.micros() + wait.as_micros() as u64;
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let before = scheduler.set_patient(true);
        let polled = future.as_mut().poll(&mut context);
        scheduler.set_patient(before);
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        let left = Duration::from_micros(until_us.saturating_sub(scheduler.micros()));
        if left.is_zero() {
            return None;
        }
        scheduler.pass(left.min(POLL_EVERY), &|| false);
    }
}
