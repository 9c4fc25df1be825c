//! Refuses requests that name no host or several, as RFC 9112 section 3.2 asks: a proxy and this server could
//! otherwise read different hosts in one request. The server speaks no HTTP/2, which needs no Host header.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

pub(super) async fn one(request: Request, next: Next) -> Response {
    if is_one(request.version(), request.headers()) {
        return next.run(request).await;
    }
    (StatusCode::BAD_REQUEST, "The request must have one Host header.\n").into_response()
}

fn is_one(version: Version, headers: &HeaderMap) -> bool {
    match headers.get_all(header::HOST).iter().count() {
        0 => version < Version::HTTP_11,
        hosts => hosts == 1,
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_request_has_one_host() {
        let router = Router::new().route("/", get(async || "ok")).layer(from_fn(one));
        for (version, hosts, expected) in [
            (Version::HTTP_11, &["a.test"][..], StatusCode::OK),
            (Version::HTTP_10, &[], StatusCode::OK),
            (Version::HTTP_11, &[], StatusCode::BAD_REQUEST),
            (Version::HTTP_11, &["a.test", "b.test"], StatusCode::BAD_REQUEST),
            (Version::HTTP_10, &["a.test", "a.test"], StatusCode::BAD_REQUEST),
        ] {
            let request = Request::get("/").version(version);
            let request = hosts.iter().fold(request, |request, host| request.header(header::HOST, *host));
            let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status(), expected, "{version:?} {hosts:?}");
        }
    }
}
