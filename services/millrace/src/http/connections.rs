//! Limits the connections of an HTTP port, in number and in idle time.
//!
//! A connection beyond a limit is closed and counted, so that strangers cannot use up the memory
//! and the descriptors that MQTT needs. At the limit of all connections, a new connection replaces
//! the one that has been idle for longest, and at the limit of its address that one of the address.
//! So silent strangers cannot keep out clients with requests, also not those behind their address.
//! A connection is idle until a whole request has arrived, with its body.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use millrace_control::network;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tower_service::Service as _;

use crate::limits::{ConnectionLimits, HTTP_ACCEPT_PAUSE, HTTP_BUFFER_BYTES};

#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
    refused: AtomicU64,
    refused_address: AtomicU64,
    evicted: AtomicU64,
    timed_out: AtomicU64,
}

#[derive(Debug, Default)]
struct OpenConnections {
    all: ConnectionCount,
    by_address: HashMap<IpAddr, ConnectionCount>,
    /// Connections without a request under way, longest idle first.
    idle: BTreeMap<u64, (Option<IpAddr>, Arc<Eviction>)>,
    last_idle: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ConnectionCount {
    open: usize,
    /// Evicted connections that still take memory, because another thread has not dropped their
    /// request yet.
    closing: usize,
}

impl ConnectionCount {
    fn is_at(self, limit: usize) -> bool {
        self.open - self.closing >= limit
    }

    /// A bound on evicted connections: even if none closes in time, there are never more than
    /// twice as many connections as allowed.
    fn may_evict(self, limit: usize) -> bool {
        self.closing < limit
    }
}

#[derive(Debug, Default)]
struct Eviction {
    notify: Notify,
    /// The connection is being evicted; changed under the lock of [`OpenConnections`].
    has_begun: AtomicBool,
}

/// Closes the connection of a request; an extension of each request.
#[derive(Clone, Debug)]
pub(super) struct Closer(Arc<Eviction>);

impl Closer {
    pub(super) fn close(&self) {
        self.0.notify.notify_one();
    }
}

/// Counts a connection until it is dropped.
struct ConnectionPermit {
    connections: Arc<Connections>,
    address: Option<IpAddr>,
    /// The connection's key in `idle`; 0 while a request is under way.
    idle: AtomicU64,
    /// Notified when the connection must close for a new one.
    evicted: Arc<Eviction>,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        let zero = AtomicU64::default;
        let open = Mutex::default();
        Arc::new(Self {
            limits,
            open,
            refused: zero(),
            refused_address: zero(),
            evicted: zero(),
            timed_out: zero(),
        })
    }

    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, app: Router) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // Closed without an answer, because an answer would cost what the limit saves.
                    let Some(permit) = self.take_permit(peer.ip()) else { continue };
                    tokio::spawn(Arc::new(permit).hold(stream, peer, app.clone()));
                    // Lets evicted connections close before the next is accepted.
                    tokio::task::yield_now().await;
                }
                // Without free descriptors, the connection stays in the kernel's queue and
                // accepting would fail again at once, so wait.
                Err(error) => {
                    tracing::debug!(%error, "the HTTP port could not accept a connection, and tries again: are there too many open files?");
                    tokio::time::sleep(HTTP_ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Takes a permit for a new connection, and evicts an idle connection if all are taken. `None`
    /// refuses the connection.
    fn take_permit(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionPermit> {
        let peer = peer.to_canonical();
        let is_proxy = self.limits.proxies.iter().any(|network| network.contains(&peer));
        let address = (!is_proxy).then(|| network(peer));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (self.limits.all, self.limits.per_address);
        let count = address.and_then(|address| open.by_address.get(&address).copied());
        if let Some(count) = count.filter(|count| count.is_at(own))
            && !(count.may_evict(own) && open.all.may_evict(all) && self.evict(&mut open, address))
        {
            self.refused_address.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if open.all.is_at(all) && !(open.all.may_evict(all) && self.evict(&mut open, None)) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if let Some(address) = address {
            open.by_address.entry(address).or_default().open += 1;
        }
        open.all.open += 1;
        drop(open);
        let (connections, evicted) = (Arc::clone(self), Arc::default());
        let permit = ConnectionPermit { connections, address, idle: AtomicU64::new(0), evicted };
        permit.mark_idle();
        Some(permit)
    }

    /// Evicts the connection that has been idle for longest, of this address or of all. False if
    /// there is none.
    fn evict(&self, open: &mut OpenConnections, of: Option<IpAddr>) -> bool {
        let is_meant = |address: Option<IpAddr>| of.is_none() || of == address;
        let longest = open.idle.iter().find(|(_, (address, _))| is_meant(*address));
        let Some(number) = longest.map(|(number, _)| *number) else { return false };
        let Some((address, idle)) = open.idle.remove(&number) else { return false };
        open.all.closing += 1;
        if let Some(address) = address {
            open.by_address.entry(address).or_default().closing += 1;
        }
        idle.has_begun.store(true, Ordering::Relaxed);
        idle.notify.notify_one();
        self.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(crate) fn write_metrics(&self, out: &mut String) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).all.open;
        let _ = write!(
            out,
            "# HELP millrace_http_connections_open Open connections of the HTTP port.\n\
             # TYPE millrace_http_connections_open gauge\n\
             millrace_http_connections_open {open}\n\
             # HELP millrace_http_connections_refused_total Connections of the HTTP port that were closed at once, because a limit was reached.\n\
             # TYPE millrace_http_connections_refused_total counter\n\
             millrace_http_connections_refused_total{{limit=\"all\"}} {}\n\
             millrace_http_connections_refused_total{{limit=\"address\"}} {}\n\
             # HELP millrace_http_connections_evicted_total Idle connections of the HTTP port that were closed to make room for another one.\n\
             # TYPE millrace_http_connections_evicted_total counter\n\
             millrace_http_connections_evicted_total {}\n\
             # HELP millrace_http_connections_timed_out_total Connections of the HTTP port that sent no whole head of a request in time.\n\
             # TYPE millrace_http_connections_timed_out_total counter\n\
             millrace_http_connections_timed_out_total {}\n",
            self.refused.load(Ordering::Relaxed),
            self.refused_address.load(Ordering::Relaxed),
            self.evicted.load(Ordering::Relaxed),
            self.timed_out.load(Ordering::Relaxed),
        );
    }
}

impl ConnectionPermit {
    async fn hold(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, app: Router) {
        let permit = Arc::clone(&self);
        let app = service_fn(move |request: Request<Incoming>| {
            let read = Arc::clone(&permit);
            let mut request = request.map(|body| Body::new(ReadingBody { body, permit: read }));
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(Closer(Arc::clone(&permit.evicted)));
            let (mut app, permit) = (app.clone(), Arc::clone(&permit));
            async move {
                if request.body().is_end_stream() {
                    permit.mark_busy();
                }
                let response = app.call(request).await?;
                // An endless answer, such as a stream of events, stays under way.
                match response.body().size_hint().exact() {
                    Some(_) => permit.mark_idle(),
                    None => permit.mark_busy(),
                }
                Ok::<_, Infallible>(response)
            }
        });
        let serve = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.connections.limits.head)
            .max_buf_size(HTTP_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), app);
        let served = tokio::select! {
            served = serve => served,
            () = self.evicted.notify.notified() => Ok(()),
        };
        if served.is_err_and(|error| error.is_timeout()) {
            self.connections.timed_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn mark_idle(&self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.idle.remove(&self.idle.load(Ordering::Relaxed));
        if self.evicted.has_begun.load(Ordering::Relaxed) {
            return;
        }
        open.last_idle += 1;
        let number = open.last_idle;
        open.idle.insert(number, (self.address, Arc::clone(&self.evicted)));
        self.idle.store(number, Ordering::Relaxed);
    }

    fn mark_busy(&self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.idle.remove(&self.idle.swap(0, Ordering::Relaxed));
    }
}

/// The body of a request; the connection counts as idle until it has arrived.
struct ReadingBody {
    body: Incoming,
    permit: Arc<ConnectionPermit>,
}

impl hyper::body::Body for ReadingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || polled.is_ready() && self.body.is_end_stream() {
            self.permit.mark_busy();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.idle.remove(self.idle.get_mut());
        let closing = usize::from(self.evicted.has_begun.load(Ordering::Relaxed));
        open.all.open -= 1;
        open.all.closing -= closing;
        let Some(address) = self.address else { return };
        let own = open.by_address.entry(address).or_default();
        own.open -= 1;
        own.closing -= closing;
        if own.open == 0 {
            open.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn connections(all: usize, per_address: usize, proxies: &[&str]) -> Arc<Connections> {
        let proxies = proxies.iter().map(|network| network.parse().unwrap()).collect();
        Connections::new(ConnectionLimits { all, per_address, proxies, head: Duration::from_secs(60) })
    }

    #[test]
    fn connections_that_are_not_closed_yet_do_not_keep_others_out() {
        let connections = connections(4, 100, &[]);
        let take = || connections.take_permit("192.0.2.1".parse().unwrap());
        let held: Vec<_> = (0..4).map(|_| take().unwrap()).collect();
        for _ in 0..4 {
            drop(take().expect("an idle one gives way"));
        }
        let next: Vec<_> = (0..4).map(|_| take().expect("four are closing")).collect();
        next.iter().for_each(ConnectionPermit::mark_busy);
        assert!(take().is_none(), "none is idle");
        next.iter().for_each(ConnectionPermit::mark_idle);
        assert!(take().is_none(), "twice as many as allowed are open");
        held.iter().for_each(ConnectionPermit::mark_idle);
        drop(held);
        assert!(take().is_some());
        drop(next);
        let open = connections.open.lock().unwrap();
        assert_eq!((open.all, open.idle.len()), (ConnectionCount::default(), 0));
    }

    #[test]
    fn silent_connections_of_an_address_give_way_to_a_later_one_of_it() {
        let connections = connections(10, 2, &[]);
        let take = |address: &str| connections.take_permit(address.parse().unwrap());
        let other = take("192.0.2.2").unwrap();
        let has_begun = |permit: &ConnectionPermit| permit.evicted.has_begun.load(Ordering::Relaxed);
        let silent = [take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap()];
        let (third, fourth) = (take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap());
        assert!(silent.iter().all(has_begun) && !has_begun(&other), "the address has evicted its own");
        [&third, &fourth].into_iter().for_each(ConnectionPermit::mark_busy);
        assert!(take("192.0.2.1").is_none(), "none of the address is idle");
        [&third, &fourth].into_iter().for_each(ConnectionPermit::mark_idle);
        assert!(take("192.0.2.1").is_none(), "twice as many as allowed are open");
        drop(silent);
        assert!(take("192.0.2.1").is_some());
        drop((third, fourth, other));
        let open = connections.open.lock().unwrap();
        assert_eq!((open.all, open.by_address.len(), open.idle.len()), (ConnectionCount::default(), 0, 0));
    }

    #[test]
    fn an_address_has_its_share_of_the_connections_and_gets_it_back() {
        let connections = connections(4, 2, &["10.0.0.0/8"]);
        let take = |address: &str| connections.take_permit(address.parse().unwrap());
        let held = [take("192.0.2.1"), take("::ffff:192.0.2.1")];
        held.iter().flatten().for_each(ConnectionPermit::mark_busy);
        assert!(held.iter().all(Option::is_some) && take("192.0.2.1").is_none());
        let six = [take("2001:db8::1"), take("2001:db8::ffff:1")];
        assert!(six.iter().all(Option::is_some));
        let all = || held.iter().chain(&six).flatten();
        all().for_each(ConnectionPermit::mark_busy);
        assert!(take("10.0.0.1").is_none(), "all are taken, and none is idle");
        all().for_each(ConnectionPermit::mark_idle);
        drop(take("10.0.0.1").expect("the one that is idle for longest gives way"));
        drop(six);
        let proxied = [take("10.0.0.1"), take("10.0.0.1")];
        assert!(proxied.iter().all(Option::is_some));
        let mut metrics = String::new();
        connections.write_metrics(&mut metrics);
        for line in [
            "millrace_http_connections_open 4\n",
            "millrace_http_connections_refused_total{limit=\"all\"} 1\n",
            "millrace_http_connections_refused_total{limit=\"address\"} 1\n",
            "millrace_http_connections_evicted_total 1\n",
        ] {
            assert!(metrics.contains(line), "{metrics}");
        }
        drop((held, proxied));
        let open = connections.open.lock().unwrap();
        assert_eq!((open.all, open.by_address.len(), open.idle.len()), (ConnectionCount::default(), 0, 0));
    }
}
