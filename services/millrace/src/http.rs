//! The HTTP port: pages, health and metrics, and the API of the control plane. On a thread of its own, so that a scrape never waits for a client and
//! a client never waits for a scrape.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use millrace_telemetry::Queue;
use tracing::error;

use crate::console;
use crate::process_metrics;
use crate::serve::Running;

const PAGE: &str = include_str!("pages/start.html");
const STYLE: &str = include_str!("pages/page.css");
const SIGN_UP: &str = include_str!("pages/sign-up.html");
const SIGN_UP_SCRIPT: &str = include_str!("pages/sign-up.js");

/// Where an account is made with a secret that stands behind `#`.
pub(crate) const SIGN_UP_PATH: &str = "/sign-up";

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// MQTT over TCP.
    pub(crate) mqtt: Vec<SocketAddr>,
    /// MQTT over WebSocket, path `/mqtt`.
    pub(crate) ws: Vec<SocketAddr>,
    /// MQTT over TLS.
    pub(crate) mqtts: Vec<SocketAddr>,
    /// MQTT over WebSocket over TLS, path `/mqtt`.
    pub(crate) wss: Vec<SocketAddr>,
}

impl Addresses {
    /// The bound addresses of a running edge.
    pub(crate) fn of(edge: &millrace_edge::Edge) -> Self {
        Self {
            mqtt: edge.mqtt_addresses().to_vec(),
            ws: edge.ws_addresses().to_vec(),
            mqtts: edge.mqtts_addresses().to_vec(),
            wss: edge.wss_addresses().to_vec(),
        }
    }
}

/// The API of the control plane, and what it does beside answering.
pub(crate) struct Api {
    pub(crate) router: Router,
    pub(crate) upkeep: Pin<Box<dyn Future<Output = Infallible> + Send>>,
    /// Where the console connects through a gateway, with MQTT over WebSocket.
    pub(crate) gateway_socket: Option<String>,
}

#[derive(Clone)]
struct Shared {
    running: Running,
    at: Arc<Addresses>,
    /// Counts what is exported, where a collector is set.
    telemetry: Option<Queue>,
}

/// Serves HTTP on `listener` (non-blocking) until the process ends.
pub(crate) fn start(
    listener: TcpListener,
    running: Running,
    at: &Addresses,
    api: Option<Api>,
    telemetry: Option<Queue>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut app = router(Shared { running, at: Arc::new(at.clone()), telemetry });
    if let Some(api) = api {
        app = app
            .nest(millrace_control::PATH, api.router)
            .route(SIGN_UP_PATH, get(async || shown("text/html", SIGN_UP)))
            .route("/sign-up.js", get(async || shown("text/javascript", SIGN_UP_SCRIPT)));
        // The console is one more client of the API.
        app = console::around(app, console::Sockets { ws: at.ws.clone(), gateway: api.gateway_socket });
        runtime.spawn(api.upkeep);
    }
    let serve = move || {
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            // The API limits how often an address may ask.
            axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
        });
        if let Err(error) = served {
            error!(%error, "the HTTP port stopped; clients are not affected");
        }
    };
    std::thread::Builder::new().name("http".into()).spawn(serve)?;
    Ok(())
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/page.css", get(async || shown("text/css", STYLE)))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .fallback(nothing_here)
        .with_state(shared)
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
    match page_of_metrics(&shared.running, shared.telemetry.as_ref()) {
        Some(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        None => stopping().into_response(),
    }
}

/// All metrics of a pod, in Prometheus text; `None` while it stops.
pub(crate) fn page_of_metrics(running: &Running, telemetry: Option<&Queue>) -> Option<String> {
    let running = running.lock().unwrap_or_else(PoisonError::into_inner);
    let text = running.as_ref().map(millrace_edge::Edge::metrics)?;
    Some(text + &process_metrics::text() + &telemetry.map(Queue::metrics).unwrap_or_default())
}

fn stopping() -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, "the server is stopping\n".into())
}

async fn nothing_here() -> (StatusCode, &'static str) {
    (
        StatusCode::NOT_FOUND,
        "There is nothing at this path. The pages of this server are /, /healthz and /metrics.\n",
    )
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

    use super::*;

    fn at(mqtt: &[&str], ws: &[&str]) -> Addresses {
        let parse = |list: &[&str]| list.iter().map(|at| at.parse().unwrap()).collect();
        Addresses { mqtt: parse(mqtt), ws: parse(ws), mqtts: Vec::new(), wss: Vec::new() }
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
        start(listener, Arc::new(Mutex::new(None)), &at(&["127.0.0.1:1883"], &[]), None, None).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
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
