//! Runs the API on threads of its own, so that pages and `/healthz` never wait for it. The thread of the HTTP port
//! still reads the requests and writes the answers.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::limits::STREAM_STALL_MAX;

/// Ends the task when no receiver is left.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) fn on(threads: &Handle, router: Router) -> Router {
    router.layer(from_fn_with_state(threads.clone(), run))
}

async fn run(State(threads): State<Handle>, request: Request, next: Next) -> Response {
    let asked = threads.spawn(next.run(request));
    let _ends_with_its_client = AbortOnDrop(asked.abort_handle());
    match asked.await {
        Ok(response) if response.body().size_hint().exact().is_none() => {
            streamed(&threads, response, STREAM_STALL_MAX)
        }
        Ok(response) => response,
        Err(_) => millrace_control::unanswered().await,
    }
}

/// Makes the parts of an endless answer on the other threads. At most one part waits for the client, at most for `stall_max`.
fn streamed(threads: &Handle, response: Response, stall_max: Duration) -> Response {
    let (head, body) = response.into_parts();
    let (send, receive) = mpsc::channel::<Result<Bytes, axum::Error>>(1);
    threads.spawn(async move {
        let mut parts = body.into_data_stream();
        loop {
            let part = tokio::select! {
                part = parts.next() => part,
                () = send.closed() => return,
            };
            let Some(part) = part else { return };
            // The body checks between its parts whether the client is still authorized, so a client that does not
            // read must not keep the answer open.
            if !matches!(timeout(stall_max, send.send(part)).await, Ok(Ok(()))) {
                return;
            }
        }
    });
    let parts = stream::unfold(receive, async |mut receive| Some((receive.recv().await?, receive)));
    Response::from_parts(head, Body::from_stream(parts))
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::StatusCode;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_request_whose_handler_panics_has_an_answer_with_an_id() {
        let router = Router::new().route("/", get(async || -> &'static str { panic!("a bug") }));
        let request = Request::get("/").body(Body::empty()).unwrap();
        let response = on(&Handle::current(), router).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let id = response.headers()["x-request-id"].clone();
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["request_id"], id.to_str().unwrap());
    }

    #[tokio::test]
    async fn an_answer_that_is_not_read_ends() {
        let (held, mut ended) = mpsc::channel::<()>(1);
        let parts = stream::repeat_with(move || {
            let _held_by_the_answer = &held;
            Ok::<_, std::convert::Infallible>("part")
        });
        let response = Response::new(Body::from_stream(parts));
        let stalled = streamed(&Handle::current(), response, Duration::from_millis(10));
        assert_eq!(ended.recv().await, None);
        drop(stalled);
    }
}
