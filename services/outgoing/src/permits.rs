//! Concurrency limits: permits in total and per name, such as a tenant's host, with bounded queues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{CALLS_MAX, CALLS_PER_HOST_MAX, CALLS_PER_SHARE_MAX, WAITING_MAX, WAITING_PER_HOST_MAX};

#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitLimits {
    pub(crate) all: usize,
    pub(crate) per_host: usize,
    pub(crate) waiting: usize,
    pub(crate) waiting_per_host: usize,
}

/// Limits of a share's calls to one host. They need no limit in total, because each call takes a permit of its share next.
pub(crate) const HOSTS: PermitLimits = PermitLimits {
    all: Semaphore::MAX_PERMITS,
    per_host: CALLS_PER_HOST_MAX,
    waiting: WAITING_MAX,
    waiting_per_host: WAITING_PER_HOST_MAX,
};

pub(crate) const SHARES: PermitLimits =
    PermitLimits { all: CALLS_MAX, per_host: CALLS_PER_SHARE_MAX, ..HOSTS };

#[derive(Debug)]
pub(crate) struct Permits {
    limits: PermitLimits,
    all: Arc<Semaphore>,
    hosts: Mutex<Hosts>,
}

#[derive(Debug, Default)]
struct Hosts {
    by_name: HashMap<Arc<str>, HostPermits>,
    calls: usize,
}

#[derive(Debug)]
struct HostPermits {
    permits: Arc<Semaphore>,
    calls: usize,
}

pub(crate) struct Permit {
    _host: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    _noted: HostGuard,
}

struct HostGuard {
    permits: Arc<Permits>,
    host: Arc<str>,
}

impl Permits {
    pub(crate) fn new(limits: PermitLimits) -> Self {
        Self { limits, all: Arc::new(Semaphore::new(limits.all)), hosts: Mutex::default() }
    }

    /// `None` when the queue is full. Takes the host's permit first, so that callers of a slow host
    /// hold no global permit while they wait.
    pub(crate) async fn take(self: &Arc<Self>, host: &str) -> Option<Permit> {
        let (noted, permits) = self.note(host)?;
        let host = permits.acquire_owned().await.ok()?;
        let all = self.all.clone().acquire_owned().await.ok()?;
        Some(Permit { _host: host, _all: all, _noted: noted })
    }

    /// Counts a call in the queue of its host; `None` when a queue is full.
    fn note(self: &Arc<Self>, host: &str) -> Option<(HostGuard, Arc<Semaphore>)> {
        let mut guard = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = &mut *guard;
        let known = hosts.by_name.get(host).map_or(0, |host| host.calls);
        if hosts.calls >= self.limits.waiting || known >= self.limits.waiting_per_host {
            return None;
        }
        let name: Arc<str> = host.into();
        let permits = self.limits.per_host;
        let new_host = || HostPermits { permits: Arc::new(Semaphore::new(permits)), calls: 0 };
        let host = hosts.by_name.entry(name.clone()).or_insert_with(new_host);
        host.calls += 1;
        hosts.calls += 1;
        Some((HostGuard { permits: self.clone(), host: name }, host.permits.clone()))
    }
}

impl Drop for HostGuard {
    fn drop(&mut self) {
        let mut hosts = self.permits.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.calls -= 1;
        let left = hosts.by_name.get_mut(&self.host).map(|host| {
            host.calls -= 1;
            host.calls
        });
        if left == Some(0) {
            hosts.by_name.remove(&self.host);
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
        assert!(permits.hosts.lock().unwrap().by_name.is_empty());
        assert_eq!(permits.hosts.lock().unwrap().calls, 0);
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
