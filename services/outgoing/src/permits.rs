//! Concurrency limits: permits in total and per name, such as a tenant's host, with bounded queues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{CALLS_MAX, CALLS_PER_HOST_MAX, CALLS_PER_SHARE_MAX, WAITING_MAX, WAITING_PER_HOST_MAX};

#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitLimits {
    pub(crate) all: usize,
    pub(crate) per_name: usize,
    pub(crate) waiting: usize,
    pub(crate) waiting_per_name: usize,
}

/// Limits of a share's calls to one host. They need no limit in total, because each call takes a permit of its share next.
pub(crate) const HOSTS: PermitLimits = PermitLimits {
    all: Semaphore::MAX_PERMITS,
    per_name: CALLS_PER_HOST_MAX,
    waiting: WAITING_MAX,
    waiting_per_name: WAITING_PER_HOST_MAX,
};

pub(crate) const SHARES: PermitLimits =
    PermitLimits { all: CALLS_MAX, per_name: CALLS_PER_SHARE_MAX, ..HOSTS };

#[derive(Debug)]
pub(crate) struct Permits {
    limits: PermitLimits,
    all: Arc<Semaphore>,
    names: Mutex<PermitsByName>,
}

#[derive(Debug, Default)]
struct PermitsByName {
    by_name: HashMap<Arc<str>, NamedPermits>,
    calls: usize,
}

#[derive(Debug)]
struct NamedPermits {
    permits: Arc<Semaphore>,
    calls: usize,
}

pub(crate) struct Permit {
    _of_name: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    _queued: QueuedCall,
}

struct QueuedCall {
    permits: Arc<Permits>,
    name: Arc<str>,
}

impl Permits {
    pub(crate) fn new(limits: PermitLimits) -> Self {
        Self { limits, all: Arc::new(Semaphore::new(limits.all)), names: Mutex::default() }
    }

    /// `None` when the queue is full. Takes the name's permit first, so that callers of a slow host
    /// hold no global permit while they wait.
    pub(crate) async fn take(self: &Arc<Self>, name: &str) -> Option<Permit> {
        let (queued, permits) = self.note(name)?;
        let of_name = permits.acquire_owned().await.ok()?;
        let all = self.all.clone().acquire_owned().await.ok()?;
        Some(Permit { _of_name: of_name, _all: all, _queued: queued })
    }

    /// Counts a call in the queue of its name; `None` when a queue is full.
    fn note(self: &Arc<Self>, name: &str) -> Option<(QueuedCall, Arc<Semaphore>)> {
        let mut guard = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let names = &mut *guard;
        let known = names.by_name.get(name).map_or(0, |named| named.calls);
        if names.calls >= self.limits.waiting || known >= self.limits.waiting_per_name {
            return None;
        }
        let name: Arc<str> = name.into();
        let permits = self.limits.per_name;
        let new = || NamedPermits { permits: Arc::new(Semaphore::new(permits)), calls: 0 };
        let named = names.by_name.entry(name.clone()).or_insert_with(new);
        named.calls += 1;
        names.calls += 1;
        Some((QueuedCall { permits: self.clone(), name }, named.permits.clone()))
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        let mut names = self.permits.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.calls -= 1;
        let left = names.by_name.get_mut(&self.name).map(|named| {
            named.calls -= 1;
            named.calls
        });
        if left == Some(0) {
            names.by_name.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_slow_host_leaves_places_to_others_and_nothing_is_kept_of_it() {
        let permits = Arc::new(Permits::new(PermitLimits { all: CALLS_MAX, ..HOSTS }));
        let mut taken: Vec<_> =
            (0..CALLS_PER_HOST_MAX).map(|_| now(permits.take("slow:443")).unwrap().unwrap()).collect();
        assert!(now(permits.take("slow:443")).is_none(), "waits");
        assert!(now(permits.take("other:443")).unwrap().is_some());
        taken.pop();
        assert!(now(permits.take("slow:443")).unwrap().is_some());
        taken.clear();
        assert!(permits.names.lock().unwrap().by_name.is_empty());
        assert_eq!(permits.names.lock().unwrap().calls, 0);
    }

    #[test]
    fn too_many_that_wait_are_refused() {
        let permits = Arc::new(Permits::new(PermitLimits { all: CALLS_MAX, ..HOSTS }));
        let noted: Vec<_> = (0..WAITING_PER_HOST_MAX).map(|_| permits.note("slow:443").unwrap()).collect();
        assert!(now(permits.take("slow:443")).unwrap().is_none());
        assert!(now(permits.take("other:443")).unwrap().is_some());
        drop(noted);
        assert!(now(permits.take("slow:443")).unwrap().is_some());
    }
}
