//! Runs futures on the client library's network thread, without a runtime.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
};

/// Runs the first step of a future on this thread, and each later step on the thread that woke it.
/// That is the client library's network thread, so steps must be short.
pub(super) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    Arc::new(FutureTask { wakes: AtomicUsize::new(0), future: Mutex::new(Some(Box::pin(future))) }).wake();
}

struct FutureTask {
    /// Wakes not handled yet; stays above 0 once the future is done.
    wakes: AtomicUsize,
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Wake for FutureTask {
    fn wake(self: Arc<Self>) {
        // The thread that runs a step, which may be this one, also handles wakes during the step.
        if self.wakes.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let waker = Waker::from(self.clone());
        loop {
            let answered = self.wakes.load(Ordering::Acquire);
            if self.step(&mut Context::from_waker(&waker)) {
                return;
            }
            if self.wakes.fetch_sub(answered, Ordering::AcqRel) == answered {
                return;
            }
        }
    }
}

impl FutureTask {
    fn step(&self, context: &mut Context<'_>) -> bool {
        let mut slot = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        let done = slot.as_mut().is_none_or(|future| future.as_mut().poll(context).is_ready());
        if done {
            *slot = None;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Barrier,
            mpsc::{SyncSender, sync_channel},
        },
        task::Poll,
        thread,
    };

    use super::*;

    #[test]
    fn a_wake_within_a_step_makes_another_step() {
        let (done, steps) = sync_channel(1);
        let mut left = 5;
        let future = std::future::poll_fn(move |context| {
            if left == 0 {
                return Poll::Ready(5);
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        });
        spawn(async move { done.send(future.await).unwrap() });
        assert_eq!(steps.try_recv(), Ok(5));
    }

    #[test]
    fn no_wake_of_another_thread_is_lost() {
        /// Is done at the last of `left` wakes, each of a thread of its own that waits for the step
        /// to be under way.
        fn step(left: usize, done: SyncSender<()>) {
            let mut left = left;
            spawn(std::future::poll_fn(move |context| {
                if left == 0 {
                    done.send(()).unwrap();
                    return Poll::Ready(());
                }
                left -= 1;
                let (waker, start) = (context.waker().clone(), Arc::new(Barrier::new(2)));
                let meets = start.clone();
                thread::spawn(move || {
                    meets.wait();
                    waker.wake();
                });
                start.wait();
                Poll::Pending
            }));
        }
        let (done, end) = sync_channel(1);
        step(200, done);
        end.recv().unwrap();
    }
}
