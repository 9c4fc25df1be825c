//! Connects to exactly the addresses that the guard has checked, so that a name cannot resolve to
//! another address in between.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower_service::Service;

use crate::CallError;
use crate::guard::Guard;
use crate::limits::{ADDRESS_MAX, ADDRESSES_MAX, CONNECT_MAX};
use crate::stream::OutgoingStream;

type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

#[derive(Clone)]
pub(crate) struct Tcp(Arc<ConnectorState>);

struct ConnectorState {
    guard: Guard,
    connections: Arc<Semaphore>,
}

tokio::task_local! {
    /// The addresses that the current call has found for its host. The pool asks for a connection in the task of the call.
    pub(crate) static FOUND: Vec<SocketAddr>;
}

#[derive(Clone)]
pub(crate) struct Connector(pub(crate) HttpsConnector<Tcp>);

impl Tcp {
    pub(crate) fn new(guard: Guard, connections: Arc<Semaphore>) -> Self {
        Self(Arc::new(ConnectorState { guard, connections }))
    }
}

/// Host and port of a URL, without the brackets of an IPv6 address.
pub(crate) fn host_and_port(uri: &Uri) -> (&str, u16) {
    let is_https = uri.scheme() == Some(&Scheme::HTTPS);
    let host = uri.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (host, uri.port_u16().unwrap_or(if is_https { 443 } else { 80 }))
}

impl Service<Uri> for Tcp {
    type Response = OutgoingStream;
    type Error = CallError;
    type Future = Boxed<OutgoingStream, CallError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (shared, found) = (self.0.clone(), FOUND.try_with(Vec::clone).unwrap_or_default());
        Box::pin(async move { shared.connect(&uri, &found).await })
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<OutgoingStream>;
    type Error = Box<dyn StdError + Send + Sync>;
    type Future = Boxed<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = self.0.call(uri);
        Box::pin(async move { timeout(CONNECT_MAX, connected).await.map_err(|_| CallError::Timeout)? })
    }
}

impl ConnectorState {
    async fn connect(&self, uri: &Uri, found: &[SocketAddr]) -> Result<OutgoingStream, CallError> {
        let addresses = self.guard.pass(found, uri.scheme() == Some(&Scheme::HTTPS))?;
        let permit = self.connections.clone().acquire_owned().await.map_err(|_| CallError::Busy)?;
        let stream = connect_to_one(&addresses).await.map_err(connect)?;
        // A request is one small packet, so waiting for more to send with it only delays it.
        stream.set_nodelay(true).map_err(connect)?;
        Ok(OutgoingStream::new(stream, permit))
    }
}

fn connect(error: io::Error) -> CallError {
    CallError::Connect(error.into())
}

async fn connect_to_one(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses.iter().take(ADDRESSES_MAX) {
        match timeout(ADDRESS_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}
