//! Resolves names. The system's resolver blocks a thread until it gives up, so each zone gets a
//! share of the threads, and no caller waits longer than [`LOOKUP_MAX`]. The share belongs to the
//! zone rather than the tenant, because several tenants may share one fetch of a key set.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use tokio::time::timeout;

use crate::CallError;
use crate::limits::{
    LOOKUP_MAX, LOOKUPS_MAX, LOOKUPS_PER_ZONE_MAX, RESOLVED_MAX, WAITING_MAX, WAITING_PER_HOST_MAX,
};
use crate::permits::{PermitLimits, Permits};

/// Labels that country registries use as public suffixes, as in `co.uk` and `com.au`.
const SUFFIXES: [&str; 9] = ["ac", "co", "com", "edu", "gov", "ne", "net", "or", "org"];

type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

pub(crate) struct Lookups {
    permits: Arc<Permits>,
    resolve: Arc<Resolve>,
}

impl Lookups {
    pub(crate) fn of_the_system() -> Self {
        Self::with(|host, port| Ok((host, port).to_socket_addrs()?.take(RESOLVED_MAX).collect()))
    }

    fn with(resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        let limits = PermitLimits {
            all: LOOKUPS_MAX,
            per_host: LOOKUPS_PER_ZONE_MAX,
            waiting: WAITING_MAX,
            waiting_per_host: WAITING_PER_HOST_MAX,
        };
        Self { permits: Arc::new(Permits::new(limits)), resolve: Arc::new(resolve) }
    }

    pub(crate) async fn look_up(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, CallError> {
        let found = timeout(LOOKUP_MAX, async {
            let permit = self.permits.take(&zone(host)).await.ok_or(CallError::Busy)?;
            let (name, resolve) = (host.to_owned(), Arc::clone(&self.resolve));
            // The thread outlives a caller that gives up, so the thread owns the permit.
            let looked = tokio::task::spawn_blocking(move || {
                let found = resolve(&name, port);
                drop(permit);
                found
            });
            let found = looked.await.map_err(io::Error::other).and_then(|found| found);
            found.map_err(|error| CallError::Resolve(error.into()))
        });
        found
            .await
            .unwrap_or_else(|_| Err(CallError::Resolve(io::Error::from(io::ErrorKind::TimedOut).into())))
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
    use std::sync::{Condvar, Mutex};

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
}
