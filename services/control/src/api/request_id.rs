//! Ids of requests: the header `X-Request-Id` of every answer, which log lines and bodies of server errors repeat.
//!
//! The server makes each id, so that no client can make two requests look like one in the log. A client's own id is
//! logged beside it.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use uuid::{Builder, Uuid};

use super::problem::Problem;
use crate::limits::CLIENT_REQUEST_ID_BYTES_MAX;
use crate::secret::random;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static CURRENT: Uuid;
}

pub(crate) fn current() -> Option<Uuid> {
    CURRENT.try_with(|id| *id).ok()
}

/// Middleware that gives the request its id, and logs an answer with a server error.
pub(crate) async fn with_id(request: Request, next: Next) -> Response {
    let id = new();
    let client_request_id = plain(request.headers()).map(str::to_owned);
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let response = CURRENT.scope(id, next.run(request)).await;
    let status = response.status();
    // 501 means that this server lacks the function, so nothing has failed.
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        tracing::warn!(
            request_id = %id,
            client_request_id,
            %method,
            path = path.as_ref().map(MatchedPath::as_str),
            status = status.as_u16(),
            "a request was answered with a server error"
        );
    }
    named(response, id)
}

/// The answer to a request whose handler ended without one, because the server stops or has a bug.
pub async fn unanswered() -> Response {
    let id = new();
    let response = CURRENT.scope(id, async { Problem::given_up().into_response() }).await;
    tracing::warn!(request_id = %id, "a request ended without an answer, because the server stops or has a bug: see the log before it");
    named(response, id)
}

fn new() -> Uuid {
    random().map_or(Uuid::nil(), |bytes| Builder::from_random_bytes(bytes).into_uuid())
}

fn named(mut response: Response, id: Uuid) -> Response {
    if let Ok(id) = HeaderValue::try_from(id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The client's own id, if it cannot spoil a log line.
fn plain(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    ((1..=CLIENT_REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_plain)).then_some(id)
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt as _;
    use tracing::field::{Field, Visit};
    use tracing::{Event, Metadata, Subscriber, span};

    use super::*;
    use crate::domain::Error;

    /// Records the fields of each event as a line.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0 += &format!("{field}={value:?} ");
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[tokio::test]
    async fn a_server_error_is_logged_under_the_id_of_its_answer() {
        let lines = Lines::default();
        let _collecting = tracing::subscriber::set_default(lines.clone());
        let broken = async || Problem::from(Error::Internal("broken"));
        let router = Router::new().route("/a/{b}", get(broken)).layer(from_fn(with_id));
        let request = Request::get("/a/secret").header(REQUEST_ID, "mine").body(Body::empty()).unwrap();
        let answer = router.oneshot(request).await.unwrap();
        let id = answer.headers()[REQUEST_ID].to_str().unwrap().to_owned();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["request_id"], id);
        let lines = lines.0.lock().unwrap();
        let of_request: Vec<_> =
            lines.iter().filter(|line| line.contains(&format!("request_id={id} "))).collect();
        assert_eq!(of_request.len(), 2, "{lines:?}");
        assert!(of_request[0].contains("broken"), "{lines:?}");
        for part in ["client_request_id=\"mine\"", "path=\"/a/{b}\"", "status=500"] {
            assert!(of_request[1].contains(part), "{part}: {lines:?}");
        }
    }

    #[test]
    fn only_a_short_and_plain_id_of_a_client_is_logged() {
        let read = |id: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(id).unwrap());
            plain(&headers).map(str::to_owned)
        };
        assert_eq!(read(b"a-1_B.c").as_deref(), Some("a-1_B.c"));
        assert!(read(&[b'x'; CLIENT_REQUEST_ID_BYTES_MAX]).is_some());
        assert_eq!(read(&[b'x'; CLIENT_REQUEST_ID_BYTES_MAX + 1]), None);
        for id in ["", "a b", "a\tlevel=error", "a\"b", "é", "{}"] {
            assert_eq!(read(id.as_bytes()), None, "{id}");
        }
        assert_eq!(plain(&HeaderMap::new()), None);
    }
}
