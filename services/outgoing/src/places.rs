//! Concurrency limits: permits in total and per host, with bounded queues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{CALLS_MAX, CALLS_PER_HOST_MAX, WAITING_MAX, WAITING_PER_HOST_MAX};

#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceLimits {
    pub(crate) all: usize,
    pub(crate) per_host: usize,
    pub(crate) waiting: usize,
    pub(crate) waiting_per_host: usize,
}

pub(crate) const CALLS: PlaceLimits = PlaceLimits {
    all: CALLS_MAX,
    per_host: CALLS_PER_HOST_MAX,
    waiting: WAITING_MAX,
    waiting_per_host: WAITING_PER_HOST_MAX,
};

#[derive(Debug)]
pub(crate) struct Places {
    limits: PlaceLimits,
    all: Arc<Semaphore>,
    hosts: Mutex<Hosts>,
}

#[derive(Debug, Default)]
struct Hosts {
    by_name: HashMap<Arc<str>, Host>,
    calls: usize,
}

#[derive(Debug)]
struct Host {
    places: Arc<Semaphore>,
    calls: usize,
}

/// A permit, until it is dropped.
pub(crate) struct Place {
    _host: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    _noted: Noted,
}

struct Noted {
    places: Arc<Places>,
    host: Arc<str>,
}

impl Places {
    pub(crate) fn new(limits: PlaceLimits) -> Self {
        Self { limits, all: Arc::new(Semaphore::new(limits.all)), hosts: Mutex::default() }
    }

    /// Waits for a permit; `None` when the queue is full. The host's permit comes first, so that callers of a slow host hold no
    /// global permit.
    pub(crate) async fn take(self: &Arc<Self>, host: &str) -> Option<Place> {
        let (noted, places) = self.note(host)?;
        let host = places.acquire_owned().await.ok()?;
        let all = self.all.clone().acquire_owned().await.ok()?;
        Some(Place { _host: host, _all: all, _noted: noted })
    }

    fn note(self: &Arc<Self>, host: &str) -> Option<(Noted, Arc<Semaphore>)> {
        let mut guard = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = &mut *guard;
        let known = hosts.by_name.get(host).map_or(0, |host| host.calls);
        if hosts.calls >= self.limits.waiting || known >= self.limits.waiting_per_host {
            return None;
        }
        let name: Arc<str> = host.into();
        let places = self.limits.per_host;
        let fresh = || Host { places: Arc::new(Semaphore::new(places)), calls: 0 };
        let host = hosts.by_name.entry(name.clone()).or_insert_with(fresh);
        host.calls += 1;
        hosts.calls += 1;
        Some((Noted { places: self.clone(), host: name }, host.places.clone()))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut hosts = self.places.hosts.lock().unwrap_or_else(PoisonError::into_inner);
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
        let places = Arc::new(Places::new(CALLS));
        let mut taken: Vec<_> =
            (0..CALLS_PER_HOST_MAX).map(|_| now(places.take("slow:443")).unwrap().unwrap()).collect();
        assert!(now(places.take("slow:443")).is_none(), "waits");
        assert!(now(places.take("other:443")).unwrap().is_some());
        taken.pop();
        assert!(now(places.take("slow:443")).unwrap().is_some());
        taken.clear();
        assert!(places.hosts.lock().unwrap().by_name.is_empty());
        assert_eq!(places.hosts.lock().unwrap().calls, 0);
    }

    #[test]
    fn too_many_that_wait_are_refused() {
        let places = Arc::new(Places::new(CALLS));
        let noted: Vec<_> = (0..WAITING_PER_HOST_MAX).map(|_| places.note("slow:443").unwrap()).collect();
        assert!(now(places.take("slow:443")).unwrap().is_none());
        assert!(now(places.take("other:443")).unwrap().is_some());
        drop(noted);
        assert!(now(places.take("slow:443")).unwrap().is_some());
    }
}
