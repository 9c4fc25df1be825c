//! The HTTP port for operators: health, metrics, the operator API and its pages. Tenants cannot
//! reach it. The operator API reads the store on another thread, so that `/healthz` and `/metrics`
//! never wait for the store.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use millrace_telemetry::TelemetryQueue;

use super::connections::Connections;
use super::{HealthzState, HttpMetrics, spawn, stopping, threads};
use crate::console;
use crate::limits::{ADMIN_CONNECTIONS_MAX, ConnectionLimits, HTTP_HEAD_TIME};
use crate::panics;
use crate::process_metrics;
use crate::running::Running;

#[derive(Clone)]
struct AdminState {
    health: HealthzState,
    running: Running,
    http: HttpMetrics,
    /// `None` without a collector.
    telemetry: Option<TelemetryQueue>,
}

/// `listener` must be non-blocking; returns whether there are pages.
pub(crate) fn start(
    listener: TcpListener,
    running: &Running,
    http: HttpMetrics,
    telemetry: Option<TelemetryQueue>,
    operator: Option<Router>,
) -> std::io::Result<bool> {
    let has_pages = operator.is_some() && console::has_operator_pages();
    let shared =
        AdminState { health: HealthzState::of(running), running: Arc::clone(running), http, telemetry };
    let is_loopback = listener.local_addr()?.ip().to_canonical().is_loopback();
    let mut app = Router::new()
        .route("/healthz", get(health))
        .route("/livez", get(liveness))
        .route("/metrics", get(metrics).layer(from_fn_with_state(is_loopback, refuse_foreign_host)))
        .with_state(shared);
    if let Some(operator) = operator {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(panics::OPERATOR)
            .enable_all()
            .build()?;
        app = app.nest(
            millrace_control::OPERATOR_PATH,
            threads::run_on(threads::Pools::of_one(threads.handle()), operator),
        );
        app = console::around_operators(app);
        // The threads run until the process ends.
        std::mem::forget(threads);
    }
    // Half of the files that the tenants' port may use.
    let limits = ConnectionLimits {
        all: ADMIN_CONNECTIONS_MAX,
        per_address: ADMIN_CONNECTIONS_MAX,
        proxies: Vec::new(),
        head: HTTP_HEAD_TIME,
    }
    .within(panics::ADMIN, millrace_edge::reserved_files() / 2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    spawn(panics::ADMIN, runtime, listener, Connections::new(limits), app)?;
    Ok(has_pages)
}

/// On loopback, a page whose domain resolves to 127.0.0.1 (DNS rebinding) must not read the metrics, which name brokers; the operator
/// API has a check of its own.
async fn refuse_foreign_host(State(is_loopback): State<bool>, request: Request, next: Next) -> Response {
    if is_loopback && !millrace_control::is_loopback_host(request.headers()) {
        let what =
            "this port is for programs on this machine: ask for http://127.0.0.1 or http://localhost\n";
        return (StatusCode::FORBIDDEN, what).into_response();
    }
    next.run(request).await
}

async fn health(
    State(shared): State<AdminState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
) -> (StatusCode, String) {
    shared.health.answer(peer.ip())
}

async fn liveness(State(shared): State<AdminState>) -> (StatusCode, String) {
    shared.health.liveness()
}

async fn metrics(State(shared): State<AdminState>) -> Response {
    match page_of_metrics(&shared.running, &shared.http, shared.telemetry.as_ref()) {
        Some(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        None => stopping().into_response(),
    }
}

/// Metrics as Prometheus text; `None` while the pod stops.
pub(crate) fn page_of_metrics(
    running: &Running,
    http: &HttpMetrics,
    telemetry: Option<&TelemetryQueue>,
) -> Option<String> {
    let running = running.read().unwrap_or_else(PoisonError::into_inner);
    let mut text = running.as_ref().map(millrace_edge::Edge::metrics)?;
    drop(running);
    http.write(&mut text);
    Some(text + &process_metrics::text() + &telemetry.map(TelemetryQueue::metrics).unwrap_or_default())
}
