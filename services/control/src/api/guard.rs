//! Middleware around every request: time limit, size limit, recording of denials, and headers for browsers.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use tokio::time::timeout;
use uuid::Uuid;

use super::Api;
use super::problem::{DenialReason, Problem};
use super::rates::with_rate_limits;
use super::request_id::with_id;
use super::shares::Share;
use crate::domain::Caller;
use crate::limits::{IN_FORCE_MS, REQUEST_TIME_MAX};

const HEADERS: [(header::HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

/// Time at which a change is in force on all pods that can reach the store, in unix milliseconds.
pub(super) const IN_FORCE_AT: header::HeaderName = header::HeaderName::from_static("millrace-in-force-at-ms");

/// Notes of the caller's extractor about a request, which live until its answer.
#[derive(Clone, Default)]
pub(crate) struct RequestNotes(pub(crate) Arc<GuardContext>);

#[derive(Default)]
pub(crate) struct GuardContext {
    pub(crate) caller: OnceLock<Caller>,
    /// Held until the change has ended.
    pub(crate) change: OnceLock<Share>,
}

pub(crate) fn around(router: Router<Api>, api: &Api) -> Router<Api> {
    router
        .layer(from_fn_with_state(api.clone(), with_caller))
        .layer(from_fn_with_state(api.clone(), say_when))
        .layer(from_fn(in_time))
        .layer(from_fn(with_rate_limits))
        .layer(from_fn(with_headers))
        .layer(from_fn(with_id))
}

/// Writes an entry about a denied request, and counts a long answer, once the caller is known.
async fn with_caller(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let known = RequestNotes::default();
    request.extensions_mut().insert(known.clone());
    let what = format!("{} {}", request.method(), request.uri().path());
    let is_safe = request.method().is_safe();
    let response = next.run(request).await;
    if response.status() == StatusCode::FORBIDDEN {
        let reason = response.extensions().get().map_or("", |DenialReason(reason)| reason.as_str());
        note_denial(&api, &known, (&what, reason)).await;
    }
    api.answers().hold(known.0.caller.get(), !is_safe, response).await
}

async fn note_denial(api: &Api, known: &RequestNotes, (what, reason): (&str, &str)) {
    let organisation = what.split_once("/organisations/").map_or("", |(_, rest)| rest);
    // Decoded as the router decodes it, so that an encoded id is recorded too.
    let organisation =
        percent_decode_str(organisation.split('/').next().unwrap_or_default()).decode_utf8_lossy();
    let organisation = Uuid::try_parse(&organisation);
    if let (Some(caller), Ok(organisation)) = (known.0.caller.get(), organisation)
        && api.rates().denial(caller)
        && let Err(error) = api.control().note_denied(caller, organisation, (what, reason)).await
    {
        tracing::warn!(%error, "a request was denied, and the audit log lacks its entry: see whether the store answers");
    }
}

/// Parts of a broker that pods read again after a change.
const READ_BY_PODS: [&str; 8] = [
    "access",
    "credentials",
    "credential-batches",
    "groups",
    "jwt-issuers",
    "client-cas",
    "bans",
    "webhooks",
];

async fn say_when(State(api): State<Api>, request: Request, next: Next) -> Response {
    let is_change = !request.method().is_safe() && is_read_by_pods(request.uri().path());
    let mut response = next.run(request).await;
    if is_change && response.status().is_success() {
        let at_ms = HeaderValue::from(api.control().now_ms() + IN_FORCE_MS);
        response.headers_mut().insert(IN_FORCE_AT, at_ms);
    }
    response
}

/// Whether a change at this path, or at paths of this form, is one that pods read.
pub(super) fn is_read_by_pods(path: &str) -> bool {
    let Some((_, of_broker)) = path.split_once("/brokers/") else { return false };
    let mut parts = of_broker.split('/').skip(1);
    parts.next().is_none_or(|part| READ_BY_PODS.contains(&part) || matches!(part, "suspend" | "resume"))
}

/// The transaction of a late request may still commit; a repeated request with the same key gets its answer.
pub(crate) async fn in_time(request: Request, next: Next) -> Response {
    timeout(REQUEST_TIME_MAX, next.run(request)).await.unwrap_or_else(|_| Problem::given_up().into_response())
}

pub(crate) async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_given_up_may_be_repeated_soon() {
        let response = Problem::given_up().into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers().get(header::RETRY_AFTER), Some(&HeaderValue::from(5)));
    }
}
