//! The HTTP client: it joins connection pool, guard, limits and TLS.

use std::error::Error as StdError;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Uri};
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::{self, Client as Pool};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use ipnet::IpNet;
use rustls::crypto::ring::default_provider;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::body;
use crate::connector::{Connector, FOUND, Tcp, host_and_port};
use crate::guard::Guard;
use crate::limits::{CALLS_MAX, CONNECTIONS_MAX, HEAD_BYTES_MAX, IDLE_MAX, IDLE_PER_HOST_MAX};
use crate::lookups::Lookups;
use crate::permits::{HOSTS, Permits, SHARES};
use crate::{Call, CallError, Response};

#[derive(Clone, Debug, Default)]
pub struct CallSettings {
    /// Networks that may be called although they are not public, by `http` too.
    pub allow: Vec<IpNet>,
    pub plain_http: bool,
    /// Trusted authorities in addition to the system's (`SSL_CERT_FILE`, `SSL_CERT_DIR` or the
    /// usual paths).
    pub roots: Vec<CertificateDer<'static>>,
}

/// Clones share connections and limits.
#[derive(Clone)]
pub struct HttpClient {
    pool: Pool<Connector, Full<Bytes>>,
    shares: Arc<Permits>,
    hosts: Arc<Permits>,
    connections: Arc<Semaphore>,
    lookups: Arc<Lookups>,
}

impl HttpClient {
    /// Reads the system's authorities; without any, `https` calls fail.
    #[must_use]
    pub fn new(settings: CallSettings) -> Self {
        Self::with(settings, Lookups::of_the_system())
    }

    pub(crate) fn with(settings: CallSettings, lookups: Lookups) -> Self {
        let tls = tls(settings.roots);
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let guard = Guard { allow: settings.allow, plain_http: settings.plain_http };
        let tcp = Tcp::new(guard, Arc::clone(&connections));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(Connector(connector));
        let (shares, hosts) = (Arc::new(Permits::new(SHARES)), Arc::new(Permits::new(HOSTS)));
        Self { pool, shares, hosts, connections, lookups: Arc::new(lookups) }
    }

    /// Makes one call, on a tokio runtime with time and I/O. Dropping the future cancels the call
    /// and closes its connection. A response of any status is `Ok`.
    pub async fn call(&self, call: Call<'_>) -> Result<Response, CallError> {
        let until = Instant::now() + call.timeout;
        let (answer_bytes_max, share) = (call.answer_bytes_max, call.share);
        let request = call.into_request()?;
        // A call that waits for a slow host holds no permit of its share.
        let authority = request.uri().authority().map_or("", |authority| authority.as_str());
        let host = format!("{share} {}", authority.to_lowercase());
        let of_host = timeout_at(until, self.hosts.take(&host)).await;
        let _host = of_host.ok().flatten().ok_or(CallError::Busy)?;
        let of_share = timeout_at(until, self.shares.take(share)).await;
        let _share = of_share.ok().flatten().ok_or(CallError::Busy)?;
        let found = timeout_at(until, self.look_up(share, request.uri())).await;
        let found = found.map_err(|_| CallError::Timeout)??;
        let exchange = FOUND.scope(found, self.exchange(request, answer_bytes_max));
        timeout_at(until, exchange).await.unwrap_or(Err(CallError::Timeout))
    }

    async fn look_up(&self, share: &str, uri: &Uri) -> Result<Vec<SocketAddr>, CallError> {
        let (host, port) = host_and_port(uri);
        match host.parse::<IpAddr>() {
            Ok(address) => Ok(vec![SocketAddr::new(address, port)]),
            Err(_) => self.lookups.look_up(share, host, port).await,
        }
    }

    async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<Response, CallError> {
        let are_connections_short = self.connections.available_permits() < CALLS_MAX;
        if are_connections_short {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let (head, body) = self.pool.request(request).await.map_err(failed)?.into_parts();
        let body = body::read(body, bytes_max).await?;
        Ok(Response { status: head.status, headers: head.headers, body })
    }
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

fn tls(more: Vec<CertificateDer<'static>>) -> ClientConfig {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some of the system's certificate authorities cannot be read: calls to services that need them fail until the system's CA files are repaired and the server is restarted");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs.into_iter().chain(more));
    if roots.is_empty() {
        tracing::warn!("the system has no certificate authorities: https:// of tenants cannot be called");
    }
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("ring has what both versions need")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The [`Connector`] puts a [`CallError`] into the chain of causes. A connection error without one
/// comes from TLS.
fn failed(error: legacy::Error) -> CallError {
    let is_connect = error.is_connect();
    let mut cause: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(inner) = cause {
        if let Some(ours) = inner.downcast_ref::<CallError>() {
            return ours.clone();
        }
        cause = inner.source();
    }
    if is_connect { CallError::Tls(Arc::new(error)) } else { CallError::Http(Arc::new(error)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use http::Method;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::limits::CALLS_PER_SHARE_MAX;

    const HOUR: Duration = Duration::from_secs(3_600);

    async fn get(client: &HttpClient, tenant: &str, url: &str) -> Result<Response, CallError> {
        let (method, headers, body) = (Method::GET, http::HeaderMap::new(), Bytes::new());
        let call = Call { method, url, share: tenant, headers, body, timeout: HOUR, answer_bytes_max: 1_000 };
        client.call(call).await
    }

    /// A service that takes each connection and answers only one that asks for `/quick`.
    async fn service(connections: Arc<Mutex<usize>>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                *connections.lock().unwrap() += 1;
                tokio::spawn(async move {
                    let mut head = [0; 10];
                    stream.read_exact(&mut head).await.unwrap();
                    if head.ends_with(b"/quick") {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                    }
                    std::future::pending::<()>().await;
                });
            }
        });
        port
    }

    /// A client for which names that begin with `silent` are never resolved, and others lead to this machine.
    fn client() -> HttpClient {
        let lookups = Lookups::with(HOUR, |host| {
            Box::pin(async move {
                if host.starts_with("silent") {
                    std::future::pending::<()>().await;
                }
                Ok(vec![IpAddr::from([127, 0, 0, 1])])
            })
        });
        let settings =
            CallSettings { allow: vec!["127.0.0.0/8".parse().unwrap()], ..CallSettings::default() };
        HttpClient::with(settings, lookups)
    }

    async fn until(holds: impl Fn() -> bool) {
        while !holds() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn tenants_whose_names_nobody_answers_do_not_hold_up_the_webhook_of_another() {
        let (client, port) = (client(), service(Arc::default()).await);
        let begun = Arc::new(Mutex::new(0));
        for number in 0..64 * 2 * CALLS_PER_SHARE_MAX {
            let (client, tenant, begun) = (client.clone(), format!("mallory{}", number % 64), begun.clone());
            tokio::spawn(async move {
                *begun.lock().unwrap() += 1;
                get(&client, &tenant, &format!("http://silent{number}.test:{port}/")).await
            });
        }
        until(|| *begun.lock().unwrap() == 64 * 2 * CALLS_PER_SHARE_MAX).await;
        let answer = get(&client, "ann", &format!("http://a.test:{port}/quick")).await.unwrap();
        assert_eq!(answer.status.as_u16(), 200);
    }

    #[tokio::test]
    async fn slow_services_of_one_tenant_hold_up_no_other_however_many_hosts_it_names() {
        let connections = Arc::new(Mutex::new(0));
        let (client, port) = (client(), service(connections.clone()).await);
        for number in 0..4 * CALLS_PER_SHARE_MAX {
            let client = client.clone();
            let url = format!("http://slow{number}.test:{port}/");
            tokio::spawn(async move { get(&client, "mallory", &url).await });
        }
        until(|| *connections.lock().unwrap() == CALLS_PER_SHARE_MAX).await;
        assert!(get(&client, "ann", &format!("http://a.test:{port}/quick")).await.is_ok());
        assert_eq!(*connections.lock().unwrap(), CALLS_PER_SHARE_MAX + 1, "calls of the tenant in progress");
    }
}
