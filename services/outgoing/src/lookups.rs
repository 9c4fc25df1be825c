//! Resolves names. The system's resolver blocks a thread until it gives up, so each tenant has a share
//! of the threads, each zone has one, too, and no caller waits longer than [`LOOKUP_MAX`].
//!
//! A call looks its host up in the share of its tenant before it asks the pool for a connection; the
//! connector then finds the result. A call that finds a free connection so costs at most one lookup
//! in [`LOOKUP_KEPT`].

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::CallError;
use crate::limits::{
    LOOKUP_KEPT, LOOKUP_MAX, LOOKUP_STALE_MAX, LOOKUPS_KEPT_MAX, LOOKUPS_MAX, LOOKUPS_PER_SHARE_MAX,
    LOOKUPS_PER_ZONE_MAX, RESOLVED_MAX, WAITING_MAX, WAITING_PER_HOST_MAX,
};
use crate::permits::{PermitLimits, Permits};

/// Labels that country registries use as public suffixes, as in `co.uk` and `com.au`.
const SUFFIXES: [&str; 9] = ["ac", "co", "com", "edu", "gov", "ne", "net", "or", "org"];

/// The share of calls without a name of their own.
const NOBODYS: &str = "";

type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;
type Found = Result<Vec<SocketAddr>, CallError>;

pub(crate) struct Lookups {
    zones: Arc<Permits>,
    shares: Arc<Permits>,
    resolve: Arc<Resolve>,
    kept: Arc<Kept>,
}

/// Addresses of hosts that were resolved, with the time of it. Failures are not kept: a caller that got no permit in time would make
/// a failure of another tenant's host.
#[derive(Default)]
struct Kept(Mutex<HashMap<(String, u16), Resolved>>);

type Resolved = (Instant, Vec<SocketAddr>);

impl Lookups {
    pub(crate) fn of_the_system() -> Self {
        Self::with(|host, port| Ok((host, port).to_socket_addrs()?.take(RESOLVED_MAX).collect()))
    }

    fn with(resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        let limits = |per_host| PermitLimits {
            all: LOOKUPS_MAX,
            per_host,
            waiting: WAITING_MAX,
            waiting_per_host: WAITING_PER_HOST_MAX,
        };
        // Callers of a share wait for their zone with a permit of the share, so the shares together must have room for all of them.
        let shares = PermitLimits { all: Semaphore::MAX_PERMITS, ..limits(LOOKUPS_PER_SHARE_MAX) };
        Self {
            zones: Arc::new(Permits::new(limits(LOOKUPS_PER_ZONE_MAX))),
            shares: Arc::new(Permits::new(shares)),
            resolve: Arc::new(resolve),
            kept: Arc::default(),
        }
    }

    /// The kept result, or that of a lookup that only the share of the zone limits.
    pub(crate) async fn look_up(&self, host: &str, port: u16) -> Found {
        self.look_up_in(NOBODYS, host, port).await
    }

    /// Where the host cannot be resolved now, an older result counts.
    pub(crate) async fn look_up_in(&self, share: &str, host: &str, port: u16) -> Found {
        if let Some(kept) = self.kept.get(host, port, LOOKUP_KEPT) {
            return Ok(kept);
        }
        let late = || CallError::Resolve(io::Error::from(io::ErrorKind::TimedOut).into());
        let found = timeout(LOOKUP_MAX, self.resolved(share, host, port)).await;
        let found = found.unwrap_or_else(|_| Err(late()));
        found.or_else(|error| self.kept.get(host, port, LOOKUP_STALE_MAX).ok_or(error))
    }

    async fn resolved(&self, share: &str, host: &str, port: u16) -> Found {
        let own = match share {
            NOBODYS => None,
            _ => Some(self.shares.take(share).await.ok_or(CallError::Busy)?),
        };
        let permit = self.zones.take(&zone(host)).await.ok_or(CallError::Busy)?;
        // Another caller may have looked while this one waited.
        if let Some(kept) = self.kept.get(host, port, LOOKUP_KEPT) {
            return Ok(kept);
        }
        let (name, resolve, kept) = (host.to_owned(), Arc::clone(&self.resolve), Arc::clone(&self.kept));
        // The thread outlives a caller that gives up, so the thread owns the permits.
        let looked = tokio::task::spawn_blocking(move || {
            let found = resolve(&name, port);
            if let Ok(addresses) = &found {
                kept.put(name, port, addresses);
            }
            drop((permit, own));
            found
        });
        let found = looked.await.map_err(io::Error::other).and_then(|found| found);
        found.map_err(|error| CallError::Resolve(error.into()))
    }
}

impl Kept {
    fn get(&self, host: &str, port: u16, age_max: Duration) -> Option<Vec<SocketAddr>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, addresses) = kept.get(&(host.to_owned(), port))?;
        (at.elapsed() < age_max).then(|| addresses.clone())
    }

    fn put(&self, host: String, port: u16, addresses: &[SocketAddr]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= LOOKUPS_KEPT_MAX {
            kept.retain(|_, (at, _)| at.elapsed() < LOOKUP_KEPT);
        }
        if kept.len() < LOOKUPS_KEPT_MAX {
            kept.insert((host, port), (Instant::now(), addresses.to_vec()));
        }
    }
}

/// The registered domain of a host, guessed from its labels.
fn zone(host: &str) -> String {
    let host = host.trim_end_matches('.').to_lowercase();
    let mut labels = host.rsplit('.');
    let (last, second, third) = (labels.next(), labels.next(), labels.next());
    match (last, second, third) {
        (Some(last), Some(second), Some(third)) if last.len() == 2 && SUFFIXES.contains(&second) => {
            format!("{third}.{second}.{last}")
        }
        (Some(last), Some(second), _) => format!("{second}.{last}"),
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;

    use super::*;

    #[test]
    fn a_zone_is_what_one_owner_has_registered() {
        for (host, expected) in [
            ("a.b.Example.org.", "example.org"),
            ("example.org", "example.org"),
            ("a.acme.co.uk", "acme.co.uk"),
            ("a.b.io", "b.io"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(zone(host), expected, "{host}");
        }
    }

    #[tokio::test]
    async fn slow_names_of_one_zone_do_not_hold_up_those_of_others() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let waits = Arc::clone(&gate);
        let lookups = Arc::new(Lookups::with(move |host, port| {
            if host.ends_with("slow.test") {
                let (open, opened) = &*waits;
                drop(opened.wait_while(open.lock().unwrap(), |open| !*open));
            }
            Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))])
        }));
        for number in 0..10 * LOOKUPS_MAX {
            let lookups = Arc::clone(&lookups);
            tokio::spawn(async move { lookups.look_up(&format!("a{number}.slow.test"), 443).await });
        }
        tokio::task::yield_now().await;
        assert_eq!(lookups.look_up("a.quick.test", 443).await.unwrap().len(), 1);
        let (open, opened) = &*gate;
        *open.lock().unwrap() = true;
        opened.notify_all();
    }

    #[tokio::test]
    async fn slow_names_of_one_tenant_do_not_hold_up_those_of_others_however_many_zones_it_owns() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let waits = Arc::clone(&gate);
        let lookups = Arc::new(Lookups::with(move |host, port| {
            if host.ends_with("-slow.test") {
                let (open, opened) = &*waits;
                drop(opened.wait_while(open.lock().unwrap(), |open| !*open));
            }
            Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))])
        }));
        for number in 0..2 * LOOKUPS_MAX {
            let lookups = Arc::clone(&lookups);
            tokio::spawn(
                async move { lookups.look_up_in("mallory", &format!("a{number}-slow.test"), 443).await },
            );
        }
        tokio::task::yield_now().await;
        assert_eq!(lookups.look_up_in("ann", "a.quick.test", 443).await.unwrap().len(), 1);
        let (open, opened) = &*gate;
        *open.lock().unwrap() = true;
        opened.notify_all();
    }

    #[tokio::test]
    async fn a_result_is_used_again_and_one_tenant_makes_no_failure_of_anothers_host() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let lookups = Lookups::with(move |host, port| {
            noted.lock().unwrap().push(host.to_owned());
            match host {
                "gone.test" => Err(io::ErrorKind::NotFound.into()),
                _ => Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))]),
            }
        });
        for _ in 0..2 {
            assert!(lookups.look_up_in("ann", "a.test", 443).await.is_ok());
            assert!(lookups.look_up("a.test", 443).await.is_ok());
            assert!(matches!(lookups.look_up_in("ann", "gone.test", 443).await, Err(CallError::Resolve(_))));
        }
        assert_eq!(*asked.lock().unwrap(), ["a.test", "gone.test", "gone.test"]);
    }
}
