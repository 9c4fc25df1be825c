//! The HTTP ports. The public one has pages, health and the API of the control plane, on threads of its own. The operator's one has
//! health and metrics, on another thread, so that it answers whatever tenants ask of the API.

mod idle;
mod places;
mod server;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ipnet::IpNet;
use places::Places;
use tokio::runtime::Runtime;
use tracing::error;

use crate::serve::Running;

const PAGE: &str = include_str!("../pages/start.html");
const STYLE: &str = include_str!("../pages/page.css");
const SIGN_UP: &str = include_str!("../pages/sign-up.html");
const SIGN_UP_SCRIPT: &str = include_str!("../pages/sign-up.js");

/// Threads of the public port: two at least, so that one long answer holds up nobody.
const API_THREADS_MIN: usize = 2;
const API_THREADS_MAX: usize = 8;

/// Where an account is made with a secret that stands behind `#`.
pub(crate) const SIGN_UP_PATH: &str = "/sign-up";

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// MQTT over TCP.
    pub(crate) mqtt: Vec<SocketAddr>,
    /// MQTT over WebSocket, path `/mqtt`.
    pub(crate) ws: Vec<SocketAddr>,
}

impl Addresses {
    /// The bound addresses of a running edge.
    pub(crate) fn of(edge: &millrace_edge::Edge) -> Self {
        Self { mqtt: edge.mqtt_addresses().to_vec(), ws: edge.ws_addresses().to_vec() }
    }
}

/// The API of the control plane, and what it does beside answering.
pub(crate) struct Api {
    pub(crate) router: Router,
    pub(crate) upkeep: Pin<Box<dyn Future<Output = Infallible> + Send>>,
}

#[derive(Clone)]
struct Shared {
    running: Running,
    at: Arc<Addresses>,
}

/// How a port is served.
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    pub(crate) running: Running,
    pub(crate) at: Addresses,
    /// Proxies that stand for many people.
    pub(crate) proxies: Vec<IpNet>,
}

/// Serves the public HTTP port until the process ends. `listener` is non-blocking.
pub(crate) fn start(port: Port, api: Option<Api>) -> std::io::Result<()> {
    let threads = std::thread::available_parallelism().map_or(API_THREADS_MIN, usize::from);
    let threads = threads.clamp(API_THREADS_MIN, API_THREADS_MAX);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(threads).thread_name("http").enable_all().build()?;
    // Metrics name the brokers of all tenants: they are for this machine.
    let is_loopback = port.listener.local_addr()?.ip().to_canonical().is_loopback();
    let shared = Shared { running: port.running, at: Arc::new(port.at) };
    let mut app = pages(is_loopback).with_state(shared);
    if let Some(api) = api {
        app = app
            .nest(millrace_control::PATH, api.router)
            .route(SIGN_UP_PATH, get(async || shown("text/html", SIGN_UP)))
            .route("/sign-up.js", get(async || shown("text/javascript", SIGN_UP_SCRIPT)));
        runtime.spawn(api.upkeep);
    }
    serve("http", runtime, port.listener, app, Places::new(port.proxies))
}

/// Serves the operator's port until the process ends.
pub(crate) fn start_admin(listener: TcpListener, running: Running) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let at = Addresses { mqtt: Vec::new(), ws: Vec::new() };
    let app = Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .fallback(async || nothing_here("/healthz and /metrics"))
        .with_state(Shared { running, at: Arc::new(at) });
    serve("admin-http", runtime, listener, app, Places::default())
}

fn serve(
    name: &'static str,
    runtime: Runtime,
    listener: TcpListener,
    app: Router,
    places: Places,
) -> std::io::Result<()> {
    let serve = move || {
        let served: std::io::Result<Infallible> = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            Ok(server::serve(listener, app, places).await)
        });
        if let Err(error) = served {
            error!(%error, name, "an HTTP port stopped; clients are not affected");
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(serve)?;
    Ok(())
}

fn pages(with_metrics: bool) -> Router<Shared> {
    let router = Router::new()
        .route("/", get(page))
        .route("/page.css", get(async || shown("text/css", STYLE)))
        .route("/healthz", get(health));
    match with_metrics {
        true => {
            router.route("/metrics", get(metrics)).fallback(async || nothing_here("/, /healthz and /metrics"))
        }
        false => router
            .fallback(async || nothing_here("/ and /healthz; metrics are at admin_listen, for the operator")),
    }
}

async fn health(State(shared): State<Shared>) -> (StatusCode, String) {
    match shared
        .running
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .map(|edge| edge.health().map(|()| edge.fabric_health()))
    {
        Some(Ok(None)) => (StatusCode::OK, "ok\n".into()),
        // Without NATS a pod goes on: to take it out would leave its clients without any.
        Some(Ok(Some(fabric))) => (StatusCode::OK, format!("ok\nNATS: {fabric}\n")),
        Some(Err(what)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{what}\n")),
        None => stopping(),
    }
}

async fn metrics(State(shared): State<Shared>) -> Response {
    let running = shared.running.lock().unwrap_or_else(PoisonError::into_inner);
    match running.as_ref().map(millrace_edge::Edge::metrics) {
        Some(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        None => stopping().into_response(),
    }
}

fn stopping() -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, "the server is stopping\n".into())
}

fn nothing_here(pages: &str) -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, format!("There is nothing at this path. The pages of this server are {pages}.\n"))
}

async fn page(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    shown("text/html", render(&shared.at, host))
}

/// What a browser gets; it loads nothing from elsewhere, and tells nobody where it was.
fn shown(kind: &str, text: impl Into<String>) -> Response {
    let security = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; \
                    form-action 'none'; frame-ancestors 'none'";
    let headers = [
        (header::CONTENT_TYPE, format!("{kind}; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, security.into()),
        (header::CACHE_CONTROL, "no-store".into()),
        (header::REFERRER_POLICY, "no-referrer".into()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".into()),
    ];
    (headers, text.into()).into_response()
}

/// The page for somebody who reached this server under the name `host` (with or without port).
fn render(at: &Addresses, host: Option<&str>) -> String {
    let list = |addresses: &[SocketAddr], scheme: &str, path: &str| match addresses {
        [] => "off".to_owned(),
        addresses => addresses
            .iter()
            .map(|at| format!("<code>{scheme}://{}:{}{path}</code>", reachable(*at, host), at.port()))
            .collect::<Vec<_>>()
            .join("<br>"),
    };
    let first = |addresses: &[SocketAddr], port: u16| match addresses.first() {
        Some(at) => (reachable(*at, host), at.port()),
        None => ("127.0.0.1".into(), port),
    };
    let (mqtt_host, mqtt_port) = first(&at.mqtt, 1883);
    let (ws_host, ws_port) = first(&at.ws, 8083);
    PAGE.replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{mqtt_list}", &list(&at.mqtt, "mqtt", ""))
        .replace("{ws_list}", &list(&at.ws, "ws", "/mqtt"))
        .replace("{mqtt_host}", mqtt_host.trim_matches(['[', ']']))
        .replace("{mqtt_port}", &mqtt_port.to_string())
        .replace("{ws_url}", &format!("ws://{ws_host}:{ws_port}/mqtt"))
}

/// The host part under which `at` can be reached: itself, or for "all addresses" the name that was asked for. A name
/// with any character that no host name has is not repeated.
pub(crate) fn reachable(at: SocketAddr, asked: Option<&str>) -> String {
    match at.ip() {
        ip if ip.is_unspecified() => asked.and_then(host_name).unwrap_or("127.0.0.1").to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn host_name(host: &str) -> Option<&str> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    (!name.is_empty() && name.bytes().all(allowed)).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Mutex;

    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt as _;

    use super::*;

    fn at(mqtt: &[&str], ws: &[&str]) -> Addresses {
        let parse = |list: &[&str]| list.iter().map(|at| at.parse().unwrap()).collect();
        Addresses { mqtt: parse(mqtt), ws: parse(ws) }
    }

    #[test]
    fn the_page_names_addresses_under_which_the_reader_can_connect() {
        let cases = [
            ("127.0.0.1:1883", None, "mqtt://127.0.0.1:1883"),
            ("127.0.0.1:1883", Some("elsewhere:8080"), "mqtt://127.0.0.1:1883"),
            ("0.0.0.0:1883", Some("broker.example:8080"), "mqtt://broker.example:1883"),
            ("0.0.0.0:1883", Some("<script>"), "mqtt://127.0.0.1:1883"),
            ("[::]:1883", Some("[fd00::1]:8080"), "mqtt://[fd00::1]:1883"),
            ("[::]:1883", Some("[fd00::1]"), "mqtt://[fd00::1]:1883"),
            ("[::1]:1883", None, "mqtt://[::1]:1883"),
        ];
        for (bound, host, expected) in cases {
            let page = render(&at(&[bound], &[]), host);
            assert!(page.contains(expected), "{bound} {host:?}");
            assert!(
                !page.contains("{mqtt") && !page.contains("{ws") && !page.contains("<script>\""),
                "{bound}"
            );
        }
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        let page = render(&at(&["127.0.0.1:1883"], &["127.0.0.1:8083"]), None);
        assert!(!page.contains("https://") && !page.contains("src=\"http"), "{page}");
    }

    fn answer(path: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (running, at) = (Arc::new(Mutex::new(None)), at(&["127.0.0.1:1883"], &[]));
        start(Port { listener, running, at, proxies: Vec::new() }, None).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_client_that_sends_nothing_is_disconnected_and_others_are_not_held_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        start_admin(listener, Arc::new(Mutex::new(None))).unwrap();
        let idle = |sent: &[u8]| {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(sent).unwrap();
            stream.set_read_timeout(Some(server::HEAD_WITHIN * 3)).unwrap();
            stream
        };
        let began = std::time::Instant::now();
        let mut streams = [idle(b""), idle(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ")];
        let mut asked = idle(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut text = String::new();
        asked.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 503") && began.elapsed() < server::HEAD_WITHIN, "{text}");
        for stream in &mut streams {
            let mut left = Vec::new();
            stream.read_to_end(&mut left).unwrap();
        }
        assert!(began.elapsed() >= server::HEAD_WITHIN, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn metrics_are_not_on_a_port_that_others_reach() {
        for (with_metrics, status) in
            [(true, StatusCode::SERVICE_UNAVAILABLE), (false, StatusCode::NOT_FOUND)]
        {
            let shared = Shared { running: Arc::new(Mutex::new(None)), at: Arc::new(at(&[], &[])) };
            let request = Request::get("/metrics").body(Body::empty()).unwrap();
            let answer = pages(with_metrics).with_state(shared).oneshot(request).await.unwrap();
            assert_eq!(answer.status(), status);
        }
    }

    #[test]
    fn a_stopping_server_says_so_and_unknown_paths_are_404() {
        let cases = [
            ("/", "HTTP/1.1 200", "mosquitto_sub"),
            ("/page.css", "HTTP/1.1 200", "color-scheme"),
            ("/sign-up", "HTTP/1.1 404", "There is nothing"),
            ("/healthz", "HTTP/1.1 503", "the server is stopping"),
            ("/metrics", "HTTP/1.1 503", "the server is stopping"),
            ("/other", "HTTP/1.1 404", "There is nothing at this path."),
        ];
        for (path, status, words) in cases {
            let text = answer(path);
            assert!(text.starts_with(status) && text.contains(words), "{path}: {text}");
        }
    }
}
