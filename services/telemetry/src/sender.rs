//! Sends requests to the collector, one after the other.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use rustls::{ClientConfig, RootCertStore};

use crate::endpoint::CollectorEndpoint;
use crate::items::Signal;

const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the longest response that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    ForNow(String),
    ForGood(String),
}

pub(crate) struct CollectorSender {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    pub(crate) endpoint: CollectorEndpoint,
}

impl CollectorSender {
    pub(crate) fn new(endpoint: CollectorEndpoint) -> std::io::Result<Self> {
        let tls = ClientConfig::builder();
        let tls = if endpoint.to_string().starts_with("https://") {
            tls.with_native_roots()?
        } else {
            tls.with_root_certificates(RootCertStore::empty())
        };
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls.with_no_client_auth()).https_or_http();
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector.enable_http1().build());
        Ok(Self { http, endpoint })
    }

    /// Sends one request; returns how many of its items the collector refused.
    pub(crate) async fn send(&self, signal: Signal, body: Vec<u8>) -> Result<u64, Failed> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.endpoint.of(signal.name()))
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::USER_AGENT, concat!("millrace/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Failed::ForGood(error.to_string()))?;
        let answer = async {
            let answer = self.http.request(request).await.map_err(|error| Failed::ForNow(cause(&error)))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok((status, body.map(http_body_util::Collected::to_bytes).unwrap_or_default()))
        };
        let late = |_| Failed::ForNow(format!("no answer within {} seconds", PATIENCE.as_secs()));
        let (status, body) = tokio::time::timeout(PATIENCE, answer).await.map_err(late)??;
        match status {
            status if status.is_success() => Ok(refused(&body)),
            // OTLP/HTTP names these as retryable.
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(Failed::ForNow(format!("it answers {status}"))),
            status => Err(Failed::ForGood(format!("it answers {status}"))),
        }
    }
}

/// The innermost error, because the outer errors only say that a request failed.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

/// The responses of all signals have the number of refused items in the same field.
fn refused(body: &[u8]) -> u64 {
    let answer = ExportTraceServiceResponse::decode(body).ok();
    let partial = answer.and_then(|answer| answer.partial_success);
    partial.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or(0))
}
