//! The HTTP client: it joins connection pool, guard, limits and TLS.

use std::error::Error as StdError;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
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
use tokio::time::{Instant, timeout_at};

use crate::body;
use crate::connector::{Connector, Tcp, place};
use crate::guard::Guard;
use crate::limits::{HEAD_BYTES_MAX, IDLE_MAX, IDLE_PER_HOST_MAX};
use crate::lookups::Lookups;
use crate::permits::{CALLS, Permits};
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
    permits: Arc<Permits>,
    lookups: Arc<Lookups>,
}

impl HttpClient {
    /// Reads the system's authorities; without any, `https` calls fail.
    #[must_use]
    pub fn new(settings: CallSettings) -> Self {
        let tls = tls(settings.roots);
        let lookups = Arc::new(Lookups::of_the_system());
        let guard = Guard { allow: settings.allow, plain_http: settings.plain_http };
        let tcp = Tcp::new(guard, Arc::clone(&lookups));
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
        Self { pool, permits: Arc::new(Permits::new(CALLS)), lookups }
    }

    /// Makes one call, on a tokio runtime with time and I/O. Dropping the future cancels the call
    /// and closes its connection. A response of any status is `Ok`.
    pub async fn call(&self, call: Call<'_>) -> Result<Response, CallError> {
        let until = Instant::now() + call.timeout;
        let (answer_bytes_max, share) = (call.answer_bytes_max, call.share);
        let request = call.into_request()?;
        let host = request.uri().authority().map_or_else(String::new, |host| host.as_str().to_lowercase());
        let permit = timeout_at(until, self.permits.take(&host)).await;
        let _permit = permit.ok().flatten().ok_or(CallError::Busy)?;
        let exchange = async {
            self.look_up(share, request.uri()).await?;
            self.exchange(request, answer_bytes_max).await
        };
        timeout_at(until, exchange).await.unwrap_or(Err(CallError::Timeout))
    }

    /// Looks the host up for the connector, in the share of the call.
    async fn look_up(&self, share: &str, uri: &Uri) -> Result<(), CallError> {
        let (host, port) = place(uri);
        if host.parse::<IpAddr>().is_ok() {
            return Ok(());
        }
        self.lookups.look_up_in(share, host, port).await.map(drop)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, bytes_max: usize) -> Result<Response, CallError> {
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
        tracing::warn!(%error, "some of the system's certificate authorities cannot be read");
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
