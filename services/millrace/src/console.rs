//! Serves the web console on the HTTP port, and the pages of operators on the admin port. The files
//! are part of the binary. A path that a browser opens and that nothing else serves gets the page,
//! whose script shows the right view. This module knows of the APIs only the prefixes of their
//! paths.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::listeners::reachable;

struct ConsoleFile {
    path: &'static str,
    plain: &'static [u8],
    brotli: Option<&'static [u8]>,
}

/// build.rs makes this list, sorted by path for the binary search; it is empty without a built console.
const FILES: &[ConsoleFile] = include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The page of tenants, and the page of operators. Neither port serves the other's page.
const PAGE: &str = "/index.html";
const OPERATOR_PAGE: &str = "/operator.html";
/// Vite names these files by a hash of their contents, so browsers may cache them for ever.
const ASSETS: &str = "/assets/";
/// Placeholder in the page that a nonce replaces.
const NONCE: &str = "__CSP_NONCE__";
const NONCE_BYTES: usize = 16;
/// Prefixes of paths that never get the page.
const OTHERS: [&str; 4] = ["/api/", "/v1/", "/healthz", "/metrics"];

const SECURITY: [(HeaderName, &str); 5] = [
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
];

/// Puts the console before `app`, so that it sees each request first.
pub(crate) fn around(app: Router, sockets: Sockets) -> Router {
    with_page(app, PAGE, sockets)
}

/// Puts the pages of operators before `app`, if they were built. They use the operator API only.
pub(crate) fn around_operators(app: Router) -> Router {
    with_page(app, OPERATOR_PAGE, Sockets::default())
}

pub(crate) fn has_operator_pages() -> bool {
    find(OPERATOR_PAGE).is_some()
}

fn with_page(app: Router, page: &'static str, sockets: Sockets) -> Router {
    match find(page) {
        Some(_) => app.layer(from_fn_with_state(Arc::new(ConsoleSite { page, sockets }), serve)),
        None => app,
    }
}

struct ConsoleSite {
    page: &'static str,
    sockets: Sockets,
}

/// WebSocket listeners that the page may connect to.
#[derive(Default)]
pub(crate) struct Sockets {
    pub(crate) ws: Vec<SocketAddr>,
    pub(crate) wss: Vec<SocketAddr>,
    /// WebSocket origin of the gateway, such as `wss://*.mqtt.example.org:443`.
    pub(crate) gateway: Option<String>,
}

async fn serve(State(site): State<Arc<ConsoleSite>>, request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    if !is_read || OTHERS.iter().any(|other| path.starts_with(other)) {
        return next.run(request).await;
    }
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let answer = match path {
        PAGE | OPERATOR_PAGE => StatusCode::NOT_FOUND.into_response(),
        _ if find(path).is_some() => asset(path, headers),
        _ if path.starts_with(ASSETS) => StatusCode::NOT_FOUND.into_response(),
        _ if path == "/" || wants_page(headers) => page(&site, host),
        _ => return next.run(request).await,
    };
    secured(answer)
}

fn find(path: &str) -> Option<&'static ConsoleFile> {
    FILES.binary_search_by(|file| file.path.cmp(path)).ok().map(|found| &FILES[found])
}

/// True for a browser that opens a page: nothing else asks for HTML.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

fn asset(path: &str, headers: &HeaderMap) -> Response {
    let Some(file) = find(path) else { return StatusCode::NOT_FOUND.into_response() };
    let accepts = headers.get(header::ACCEPT_ENCODING).and_then(|accepts| accepts.to_str().ok());
    let takes_brotli = accepts.is_some_and(|accepts| accepts.split(',').any(is_brotli));
    let age = if path.starts_with(ASSETS) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut response = match file.brotli.filter(|_| takes_brotli) {
        Some(body) => ([(header::CONTENT_ENCODING, "br")], Bytes::from_static(body)).into_response(),
        None => Bytes::from_static(file.plain).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(path)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(age));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    response
}

/// True for `br`, but not for `br;q=0`.
fn is_brotli(coding: &str) -> bool {
    let mut parts = coding.split(';').map(str::trim);
    parts.next() == Some("br") && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

/// The nonce lets the page's components add style elements.
fn page(site: &ConsoleSite, host: Option<&str>) -> Response {
    let mut bytes = [0; NONCE_BYTES];
    let text = find(site.page).and_then(|file| std::str::from_utf8(file.plain).ok());
    let (Some(text), Ok(())) = (text, getrandom::fill(&mut bytes)) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let nonce = STANDARD_NO_PAD.encode(bytes);
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_SECURITY_POLICY, policy(&nonce, &site.sockets, host)),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, text.replace(NONCE, &nonce)).into_response()
}

/// The Content-Security-Policy, which allows connections only to the HTTP port and the WebSocket
/// listeners.
fn policy(nonce: &str, sockets: &Sockets, host: Option<&str>) -> String {
    let own = |all: &[SocketAddr], scheme: &str| -> String {
        all.iter().map(|at| format!(" {scheme}://{}:{}", reachable(*at, host), at.port())).collect()
    };
    let own = [own(&sockets.ws, "ws"), own(&sockets.wss, "wss")];
    let sockets: String =
        own.into_iter().chain(sockets.gateway.iter().map(|gateway| format!(" {gateway}"))).collect();
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; font-src 'self'; img-src 'self' data:; \
         connect-src 'self'{sockets}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

fn secured(mut response: Response) -> Response {
    for (name, value) in SECURITY {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::routing::get;
    use tower_service::Service as _;

    use super::*;

    #[test]
    fn the_page_connects_to_the_listeners_and_runs_no_script_of_others() {
        let at = |gateway: Option<&str>| Sockets {
            ws: vec!["0.0.0.0:8083".parse().unwrap()],
            wss: Vec::new(),
            gateway: gateway.map(ToOwned::to_owned),
        };
        let own = policy("abc", &at(None), Some("console.example:8080"));
        assert!(own.contains("connect-src 'self' ws://console.example:8083;"), "{own}");
        assert!(own.contains("script-src 'self';") && own.contains("'nonce-abc'"), "{own}");
        assert!(!own.contains("unsafe"), "{own}");
        let none = policy("abc", &Sockets::default(), None);
        assert!(none.contains("connect-src 'self';"), "{none}");
        let gateway = policy("abc", &at(Some("wss://*.mqtt.example:443")), None);
        assert!(gateway.contains(" ws://127.0.0.1:8083 wss://*.mqtt.example:443;"), "{gateway}");
        let tls = Sockets { wss: vec!["0.0.0.0:8443".parse().unwrap()], ..Sockets::default() };
        let tls = policy("abc", &tls, Some("console.example:8080"));
        assert!(tls.contains("connect-src 'self' wss://console.example:8443;"), "{tls}");
        let hostile = policy("abc", &at(None), Some("x; script-src *"));
        assert!(!hostile.contains('*'), "{hostile}");
    }

    #[test]
    fn brotli_is_sent_only_to_clients_that_accept_it() {
        for (coding, takes) in
            [("br", true), (" br;q=0.5", true), ("br;q=0", false), ("gzip", false), ("brx", false)]
        {
            assert_eq!(is_brotli(coding), takes, "{coding}");
        }
    }

    #[test]
    fn files_are_found_by_their_path_and_in_order() {
        assert!(FILES.is_sorted_by_key(|file| file.path));
        assert!(FILES.iter().all(|file| find(file.path).is_some_and(|found| found.path == file.path)));
        assert!(find("/../Cargo.toml").is_none());
    }

    #[tokio::test]
    async fn a_browser_gets_the_console_for_mailed_links() {
        let site = Arc::new(ConsoleSite { page: PAGE, sockets: Sockets::default() });
        let mut app: Router = Router::new()
            .route("/confirm", get(async || "not for browsers"))
            .route("/confirm-address", get(async || "not for browsers"))
            .route("/reset-password", get(async || "not for browsers"))
            .route("/broker", get(async || "not for browsers"))
            .layer(from_fn_with_state(site, serve));
        let mut open = async |path: &str| {
            let accept = "text/html,application/xhtml+xml,*/*;q=0.8";
            let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty()).unwrap();
            let answer = app.call(request).await.unwrap();
            to_bytes(answer.into_body(), usize::MAX).await.unwrap()
        };
        for page in ["/broker", "/confirm", "/confirm-address", "/reset-password"] {
            assert_ne!(open(page).await, "not for browsers", "{page}");
        }
    }

    #[test]
    fn a_browser_gets_the_page_and_a_program_does_not() {
        let accept = |value| HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))]);
        assert!(wants_page(&accept("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")));
        assert!(!wants_page(&accept("*/*")) && !wants_page(&HeaderMap::new()));
    }
}
