//! Resolves the host names of outgoing calls, with a limit of concurrent lookups for each share, such as a tenant. So names
//! that no server answers delay other names of the same share, as long as not all lookups are in use.
//!
//! A result answers calls of all shares for [`LOOKUP_KEPT`], whatever its DNS time to live.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::CallError;
use crate::limits::{
    LOOKUP_KEPT, LOOKUP_MAX, LOOKUP_STALE_AFTER, LOOKUP_STALE_MAX, LOOKUPS_KEPT_MAX, LOOKUPS_MAX,
    LOOKUPS_PER_SHARE_MAX, WAITING_MAX, WAITING_PER_HOST_MAX,
};
use crate::permits::{PermitLimits, Permits};
use crate::resolver::SystemResolver;

type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;
type Resolve = dyn Fn(String) -> ResolveFuture + Send + Sync;
type LookupResult = Result<Vec<SocketAddr>, CallError>;

pub(crate) struct Lookups {
    shares: Arc<Permits>,
    resolve: Box<Resolve>,
    longest: Duration,
    kept: LookupCache,
}

/// Addresses of resolved hosts. Failures are not kept: a lookup can fail because its share
/// has no permit, which must not fail other shares.
#[derive(Default)]
struct LookupCache(Mutex<HashMap<(String, u16), Resolved>>);

struct Resolved {
    at: Instant,
    addresses: Vec<SocketAddr>,
    /// The share that resolved the host first, whatever shares have used it since.
    share: Arc<str>,
}

impl Lookups {
    pub(crate) fn of_the_system() -> Self {
        let resolver = Arc::new(SystemResolver::default());
        let resolve = move |host: String| -> ResolveFuture {
            let resolver = Arc::clone(&resolver);
            Box::pin(async move { resolver.addresses(&host).await })
        };
        Self::with(LOOKUP_MAX, resolve)
    }

    pub(crate) fn with(
        longest: Duration,
        resolve: impl Fn(String) -> ResolveFuture + Send + Sync + 'static,
    ) -> Self {
        let shares = Permits::new(PermitLimits {
            all: LOOKUPS_MAX,
            per_name: LOOKUPS_PER_SHARE_MAX,
            waiting: WAITING_MAX,
            waiting_per_name: WAITING_PER_HOST_MAX,
        });
        Self { shares: Arc::new(shares), resolve: Box::new(resolve), longest, kept: LookupCache::default() }
    }

    /// On failure, returns a result of at most [`LOOKUP_STALE_MAX`], if one is left.
    pub(crate) async fn look_up(&self, share: &str, host: &str, port: u16) -> LookupResult {
        if let Some(kept) = self.kept.get(host, port, LOOKUP_KEPT) {
            return Ok(kept);
        }
        let late = || CallError::Resolve(io::Error::from(io::ErrorKind::TimedOut).into());
        let stale = self.kept.get(host, port, LOOKUP_STALE_MAX);
        let longest = if stale.is_some() { LOOKUP_STALE_AFTER.min(self.longest) } else { self.longest };
        let found = timeout(longest, self.resolved(share, host, port)).await;
        found.unwrap_or_else(|_| Err(late())).or_else(|error| stale.ok_or(error))
    }

    async fn resolved(&self, share: &str, host: &str, port: u16) -> LookupResult {
        let _permit = self.shares.take(share).await.ok_or(CallError::Busy)?;
        // Another caller may have resolved the name while this one waited.
        if let Some(kept) = self.kept.get(host, port, LOOKUP_KEPT) {
            return Ok(kept);
        }
        let found =
            (self.resolve)(host.to_owned()).await.map_err(|error| CallError::Resolve(error.into()))?;
        let found: Vec<_> = found.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        self.kept.put(share, host.to_owned(), port, &found);
        Ok(found)
    }
}

impl LookupCache {
    fn get(&self, host: &str, port: u16, age_max: Duration) -> Option<Vec<SocketAddr>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get(&(host.to_owned(), port))?;
        (found.at.elapsed() < age_max).then(|| found.addresses.clone())
    }

    fn put(&self, share: &str, host: String, port: u16, addresses: &[SocketAddr]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, at, addresses) = ((host, port), Instant::now(), addresses.to_vec());
        if let Some(known) = kept.get_mut(&key) {
            (known.at, known.addresses) = (at, addresses);
            return;
        }
        if kept.len() >= LOOKUPS_KEPT_MAX {
            make_room(&mut kept);
        }
        kept.insert(key, Resolved { at, addresses, share: share.into() });
    }
}

/// Removes results that are too old, or else the older half of the results of the share with the most: the hosts of one tenant
/// leave the results of other tenants.
fn make_room(kept: &mut HashMap<(String, u16), Resolved>) {
    let before = kept.len();
    kept.retain(|_, found| found.at.elapsed() < LOOKUP_STALE_MAX);
    if kept.len() < before {
        return;
    }
    let mut by_share: HashMap<&Arc<str>, Vec<Instant>> = HashMap::new();
    for found in kept.values() {
        by_share.entry(&found.share).or_default().push(found.at);
    }
    let Some((share, mut times)) = by_share.into_iter().max_by_key(|(_, times)| times.len()) else { return };
    times.sort_unstable();
    let (share, last) = (share.clone(), times[(times.len() - 1) / 2]);
    kept.retain(|_, found| found.share != share || found.at > last);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const OPEN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[tokio::test]
    async fn names_that_nobody_answers_hold_up_no_other_tenant() {
        let begun = Arc::new(Mutex::new(0));
        let count = Arc::clone(&begun);
        let lookups = Arc::new(Lookups::with(HOUR, move |host| {
            *count.lock().unwrap() += 1;
            let is_silent = host.ends_with("-silent.test");
            Box::pin(async move { if is_silent { std::future::pending().await } else { Ok(vec![OPEN]) } })
        }));
        for number in 0..64 * 100 {
            let (lookups, tenant) = (Arc::clone(&lookups), format!("mallory{}", number % 64));
            let host = format!("a{number}-silent.test");
            tokio::spawn(async move { lookups.look_up(&tenant, &host, 443).await });
        }
        while *begun.lock().unwrap() < 64 * LOOKUPS_PER_SHARE_MAX {
            tokio::task::yield_now().await;
        }
        let found = timeout(HOUR, lookups.look_up("ann", "a.quick.test", 443));
        assert_eq!(found.await.unwrap().unwrap(), [SocketAddr::new(OPEN, 443)]);
    }

    #[tokio::test]
    async fn an_older_result_is_used_before_a_call_ends_when_name_servers_fall_silent() {
        let lookups = Lookups::with(HOUR, |_| Box::pin(std::future::pending()));
        let expected = vec![SocketAddr::new(OPEN, 443)];
        let at = Instant::now() - 2 * LOOKUP_KEPT;
        let resolved = Resolved { at, addresses: expected.clone(), share: "ann".into() };
        lookups.kept.0.lock().unwrap().insert(("a.test".into(), 443), resolved);
        assert_eq!(lookups.look_up("ann", "a.test", 443).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn many_hosts_of_one_tenant_leave_the_older_results_of_others() {
        let lookups = Lookups::with(HOUR, |_| Box::pin(async { Ok(vec![OPEN]) }));
        // Mallory calls Ann's host, too.
        for tenant in ["ann", "mallory"] {
            assert!(lookups.look_up(tenant, "a.test", 443).await.is_ok());
            lookups.kept.0.lock().unwrap().values_mut().for_each(|found| found.at -= 2 * LOOKUP_KEPT);
        }
        for number in 0..LOOKUPS_KEPT_MAX + 1_000 {
            assert!(lookups.look_up("mallory", &format!("{number}.m.test"), 443).await.is_ok());
        }
        assert!(lookups.kept.get("a.test", 443, LOOKUP_STALE_MAX).is_some());
        assert!(lookups.kept.0.lock().unwrap().len() <= LOOKUPS_KEPT_MAX);
    }

    #[tokio::test]
    async fn a_result_is_used_again_and_one_tenant_makes_no_failure_of_anothers_host() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let lookups = Lookups::with(HOUR, move |host| {
            let found =
                if host == "gone.test" { Err(io::ErrorKind::NotFound.into()) } else { Ok(vec![OPEN]) };
            noted.lock().unwrap().push(host);
            Box::pin(async move { found })
        });
        for tenant in ["ann", "bob"] {
            assert!(lookups.look_up(tenant, "a.test", 443).await.is_ok());
            assert!(matches!(lookups.look_up(tenant, "gone.test", 443).await, Err(CallError::Resolve(_))));
        }
        assert_eq!(*asked.lock().unwrap(), ["a.test", "gone.test", "gone.test"]);
    }
}
