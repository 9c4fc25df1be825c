//! The system's name servers (`/etc/resolv.conf`) and hosts (`/etc/hosts`), asked without a thread.
//! `/etc/nsswitch.conf` is not read.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::time::{Instant, timeout};

use crate::limits::{OTHER_FAMILY_MAX, RESOLVED_MAX, RESOLVER_KEPT, TRY_MAX};

type ResolverResult = io::Result<Vec<IpAddr>>;

#[derive(Default)]
pub(crate) struct SystemResolver(Mutex<Option<(Instant, TokioResolver)>>);

impl SystemResolver {
    /// The families take turns, because a connection is tried to the first addresses alone, and a server may
    /// have one family.
    pub(crate) async fn addresses(&self, host: &str) -> ResolverResult {
        let resolver = self.current()?;
        let mut four = pin!(of_family(&resolver, host, RecordType::A));
        let mut six = pin!(of_family(&resolver, host, RecordType::AAAA));
        let (four, six) = tokio::select! {
            found = &mut four => { let other = addresses_of_six(&found, six).await; (found, other) }
            // A network without IPv6 needs the others, so a lost packet must not leave them out.
            found = &mut six => (four.await, found),
        };
        match (four, six) {
            (Err(error), Err(_)) => Err(error),
            (four, six) => Ok(interleaved(four.unwrap_or_default(), six.unwrap_or_default())),
        }
    }

    /// Reads the files again after [`RESOLVER_KEPT`], because a machine may change its network.
    fn current(&self) -> io::Result<TokioResolver> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, resolver)) = &*current
            && made.elapsed() < RESOLVER_KEPT
        {
            return Ok(resolver.clone());
        }
        let mut builder = TokioResolver::builder_tokio().unwrap_or_else(|_| {
            // As resolv.conf(5) says: without the file the name server is on this machine.
            let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
            let config = ResolverConfig::from_name_servers(vec![local]);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        });
        let options = builder.options_mut();
        options.timeout = options.timeout.min(TRY_MAX);
        // `Lookups` keeps results for seconds: a tenant that moves its service is not called at the old address.
        options.cache_size = 0;
        let resolver = builder.build().map_err(io::Error::other)?;
        *current = Some((Instant::now(), resolver.clone()));
        Ok(resolver)
    }
}

async fn of_family(resolver: &TokioResolver, host: &str, family: RecordType) -> ResolverResult {
    // Underscores are usual in names of containers.
    let name = Name::from_str_relaxed(host).map_err(io::Error::other)?;
    let found = resolver.lookup(name, family).await.map_err(io::Error::other)?;
    Ok(LookupIp::from(found).iter().collect())
}

/// Some name servers do not answer for IPv6 where a host has none, so that answer is not waited for long.
async fn addresses_of_six(
    first: &ResolverResult,
    other: Pin<&mut impl Future<Output = ResolverResult>>,
) -> ResolverResult {
    match first {
        Ok(_) => timeout(OTHER_FAMILY_MAX, other).await.unwrap_or_else(|_| Ok(Vec::new())),
        Err(_) => other.await,
    }
}

fn interleaved(four: Vec<IpAddr>, six: Vec<IpAddr>) -> Vec<IpAddr> {
    let (mut four, mut six) = (four.into_iter(), six.into_iter());
    let mut all = Vec::new();
    loop {
        let pair = [four.next(), six.next()];
        if pair == [None, None] {
            all.truncate(RESOLVED_MAX);
            return all;
        }
        all.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use hickory_resolver::config::ConnectionConfig;
    use tokio::net::UdpSocket;

    use super::*;

    /// A name server that knows 192.0.2.1 for each name, and is silent about the other family.
    async fn name_server() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut query = [0; 1_024];
            while let Ok((length, from)) = socket.recv_from(&mut query).await {
                let name = query[12..length].iter().position(|byte| *byte == 0).unwrap();
                let question = &query[12..12 + name + 5];
                if question.ends_with(&[0, 1, 0, 1]) {
                    let header = [query[0], query[1], 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
                    let record = [0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1];
                    let answer = [&header[..], question, &record].concat();
                    socket.send_to(&answer, from).await.unwrap();
                }
            }
        });
        address
    }

    fn asking(server: SocketAddr) -> SystemResolver {
        let mut connection = ConnectionConfig::udp();
        connection.port = server.port();
        let server = NameServerConfig::new(server.ip(), true, vec![connection]);
        let config = ResolverConfig::from_name_servers(vec![server]);
        let resolver = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let current = Some((Instant::now(), resolver.build().unwrap()));
        SystemResolver(Mutex::new(current))
    }

    #[tokio::test]
    async fn a_name_server_that_is_silent_about_one_family_delays_no_address_of_the_other() {
        let found = asking(name_server().await).addresses("a.test.").await.unwrap();
        assert_eq!(found, [IpAddr::from([192, 0, 2, 1])]);
    }

    #[tokio::test]
    async fn a_name_with_an_underscore_is_resolved() {
        let found = asking(name_server().await).addresses("my_hook.test.").await.unwrap();
        assert_eq!(found, [IpAddr::from([192, 0, 2, 1])]);
    }

    #[test]
    fn both_families_are_among_the_first_addresses() {
        let addresses = |all: &[&str]| all.iter().map(|one| one.parse().unwrap()).collect::<Vec<IpAddr>>();
        let (four, six) = (addresses(&["192.0.2.1", "192.0.2.2"]), addresses(&["2001:db8::1"]));
        assert_eq!(interleaved(four.clone(), six), addresses(&["192.0.2.1", "2001:db8::1", "192.0.2.2"]));
        assert_eq!(interleaved(Vec::new(), four.clone()), four);
        assert_eq!(interleaved(vec![four[0]; 2 * RESOLVED_MAX], Vec::new()).len(), RESOLVED_MAX);
    }

    #[tokio::test]
    async fn a_name_of_the_hosts_file_is_resolved() {
        let found = SystemResolver::default().addresses("localhost").await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty(), "{found:?}");
    }
}
