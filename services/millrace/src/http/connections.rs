//! The connections of an HTTP port: how many there may be, and for how long one may say nothing. Beyond that a connection is closed and
//! counted, so that strangers use up neither the memory nor the open files that MQTT needs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service as _;

use crate::limits::{HTTP_ACCEPT_PAUSE, HTTP_BUFFER_BYTES};

/// How many connections an HTTP port may have, and how long each may be silent.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimits {
    /// Connections in all.
    pub(crate) all: usize,
    /// Connections of one address, or of one IPv6 network of 64 bits.
    pub(crate) per_address: usize,
    /// Addresses that only `all` holds for, because many people come from them.
    pub(crate) proxies: Vec<IpNet>,
    /// Time for the head of a request, from the moment the connection is open or its last answer was sent.
    pub(crate) head: Duration,
}

/// The connections of one HTTP port.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    open: Mutex<Open>,
    refused: AtomicU64,
    refused_address: AtomicU64,
    timed_out: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The right to one connection. Dropping it gives the place back.
struct Place {
    connections: Arc<Connections>,
    address: Option<IpAddr>,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        let zero = AtomicU64::default;
        let open = Mutex::default();
        Arc::new(Self { limits, open, refused: zero(), refused_address: zero(), timed_out: zero() })
    }

    /// Answers requests with `app` until the process ends.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, app: Router) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // A connection over the limit is closed at once: an answer would cost what the limit is to save.
                    let Some(place) = self.place(peer.ip()) else { continue };
                    tokio::spawn(place.hold(stream, peer, app.clone()));
                }
                // Without file descriptors the connection stays in the queue, and accepting it would fail again at once.
                Err(error) => {
                    tracing::debug!(%error, "a connection of the HTTP port was not accepted");
                    tokio::time::sleep(HTTP_ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn place(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let peer = peer.to_canonical();
        let is_proxy = self.limits.proxies.iter().any(|network| network.contains(&peer));
        let address = (!is_proxy).then(|| network(peer));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.all >= self.limits.all {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if let Some(address) = address {
            let own = open.by_address.entry(address).or_default();
            if *own >= self.limits.per_address {
                self.refused_address.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            *own += 1;
        }
        open.all += 1;
        Some(Place { connections: Arc::clone(self), address })
    }

    /// Adds the metrics of the port to `out`, in Prometheus text format.
    pub(crate) fn write_metrics(&self, out: &mut String) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).all;
        let _ = write!(
            out,
            "# HELP millrace_http_connections_open Open connections of the HTTP port.\n\
             # TYPE millrace_http_connections_open gauge\n\
             millrace_http_connections_open {open}\n\
             # HELP millrace_http_connections_refused_total Connections of the HTTP port that were closed at once, because a limit was reached.\n\
             # TYPE millrace_http_connections_refused_total counter\n\
             millrace_http_connections_refused_total{{limit=\"all\"}} {}\n\
             millrace_http_connections_refused_total{{limit=\"address\"}} {}\n\
             # HELP millrace_http_connections_timed_out_total Connections of the HTTP port that sent no whole head of a request in time.\n\
             # TYPE millrace_http_connections_timed_out_total counter\n\
             millrace_http_connections_timed_out_total {}\n",
            self.refused.load(Ordering::Relaxed),
            self.refused_address.load(Ordering::Relaxed),
            self.timed_out.load(Ordering::Relaxed),
        );
    }
}

impl Place {
    async fn hold(self, stream: TcpStream, peer: SocketAddr, app: Router) {
        let app = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            app.clone().call(request)
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.connections.limits.head)
            .max_buf_size(HTTP_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), app)
            .await;
        if served.is_err_and(|error| error.is_timeout()) {
            self.connections.timed_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.all -= 1;
        let Some(address) = self.address else { return };
        let own = open.by_address.entry(address).or_default();
        *own -= 1;
        if *own == 0 {
            open.by_address.remove(&address);
        }
    }
}

/// An owner of an IPv6 address has a network of them.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(all: usize, per_address: usize, proxies: &[&str]) -> Arc<Connections> {
        let proxies = proxies.iter().map(|network| network.parse().unwrap()).collect();
        Connections::new(ConnectionLimits { all, per_address, proxies, head: Duration::from_secs(60) })
    }

    #[test]
    fn an_address_has_its_share_of_the_connections_and_gets_it_back() {
        let connections = connections(4, 2, &["10.0.0.0/8"]);
        let take = |address: &str| connections.place(address.parse().unwrap());
        let held = [take("192.0.2.1"), take("::ffff:192.0.2.1")];
        assert!(held.iter().all(Option::is_some) && take("192.0.2.1").is_none());
        let six = [take("2001:db8::1"), take("2001:db8::ffff:1")];
        assert!(six.iter().all(Option::is_some));
        assert!(take("10.0.0.1").is_none(), "all are taken");
        drop(six);
        let proxied = [take("10.0.0.1"), take("10.0.0.1")];
        assert!(proxied.iter().all(Option::is_some));
        let mut metrics = String::new();
        connections.write_metrics(&mut metrics);
        for line in [
            "millrace_http_connections_open 4\n",
            "millrace_http_connections_refused_total{limit=\"all\"} 1\n",
            "millrace_http_connections_refused_total{limit=\"address\"} 1\n",
        ] {
            assert!(metrics.contains(line), "{metrics}");
        }
        drop((held, proxied));
        let open = connections.open.lock().unwrap();
        assert_eq!((open.all, open.by_address.len()), (0, 0));
    }
}
