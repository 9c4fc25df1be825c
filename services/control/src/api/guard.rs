//! What is around every request: its time, its size, and the headers that tell browsers what not to do with an answer.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::Api;
use super::problem::Problem;
use crate::limits::REQUEST_TIME_MAX;

const HEADERS: [(header::HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

pub(crate) fn around(router: Router<Api>) -> Router<Api> {
    router.layer(from_fn(in_time)).layer(from_fn(with_headers))
}

/// Ends what takes too long. A transaction that was handed to the store goes on; one that comes again with its key has its answer.
async fn in_time(request: Request, next: Next) -> Response {
    timeout(REQUEST_TIME_MAX, next.run(request)).await.unwrap_or_else(|_| {
        let detail = "it was given up; whether it was done can be seen by reading, or by sending it again with its Idempotency-Key";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
    })
}

async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
