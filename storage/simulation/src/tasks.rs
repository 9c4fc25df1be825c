//! A minimal executor on one thread: the simulator polls one future, which polls these.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

pub(crate) type Local<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

pub(crate) async fn all(mut futures: Vec<Local<'_>>) {
    poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Drops the unfinished future where it stands when `end` is done.
pub(crate) async fn until(future: impl Future<Output = ()>, end: impl Future<Output = ()>) {
    let (mut future, mut end) = (pin!(future), pin!(end));
    poll_fn(|context| {
        let done = future.as_mut().poll(context).is_ready() || end.as_mut().poll(context).is_ready();
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Polls again after a wake during a poll, which the simulator's executor forgets: dropping a
/// transaction can end another's read at once.
pub(crate) async fn poll_again_if_woken<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let flag = Arc::new(Flag { woken: AtomicBool::new(false), outer: Mutex::new(None) });
    let waker = Waker::from(flag.clone());
    poll_fn(move |context| {
        *flag.outer.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        loop {
            flag.woken.store(false, Ordering::Relaxed);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
            if !flag.woken.load(Ordering::Relaxed) {
                return Poll::Pending;
            }
        }
    })
    .await
}

struct Flag {
    woken: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Relaxed);
        let outer = self.outer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(outer) = outer {
            outer.wake();
        }
    }
}
