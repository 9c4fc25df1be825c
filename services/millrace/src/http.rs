//! The HTTP ports. The public port has pages, `/healthz` and the API of the control plane; the
//! admin port ([`admin`]) has health and metrics.
//!
//! ```text
//! everybody ── http_listen ──> thread "http": pages, /healthz ──> threads "api": the API
//! operators ── admin_listen ─> thread "admin": /healthz, /livez, /metrics
//! ```

pub(crate) mod admin;
mod changes;
pub(crate) mod connections;
mod host;
mod threads;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use millrace_control::RequestMetrics;
use millrace_edge::Edge;
use tracing::error;

use crate::console;
use crate::listeners::{BoundAddresses, reachable};
use crate::panics;
use crate::running::Running;
use connections::Connections;

const PAGE: &str = include_str!("pages/start.html");
const STYLE: &str = include_str!("pages/page.css");
// For a build without the console, which has these pages itself.
const SIGN_UP: &str = include_str!("pages/sign-up.html");
const SIGN_UP_SCRIPT: &str = include_str!("pages/sign-up.js");
const CONFIRM: &str = include_str!("pages/confirm.html");
const CONFIRM_SCRIPT: &str = include_str!("pages/confirm.js");

/// Path of the page that makes an account with the secret after `#`.
pub(crate) const SIGN_UP_PATH: &str = "/sign-up";

#[derive(Clone, Default)]
pub(crate) struct HttpMetrics {
    /// Connections of the public port; `None` without one.
    pub(crate) connections: Option<Arc<Connections>>,
    pub(crate) requests: Arc<RequestMetrics>,
}

impl HttpMetrics {
    fn write(&self, out: &mut String) {
        if let Some(connections) = &self.connections {
            connections.write_metrics(out);
        }
        self.requests.write(out);
    }
}

/// The thread of the control plane's background work.
pub(crate) const UPKEEP: &str = "upkeep";

/// The API of the control plane, and its background work.
pub(crate) struct ControlApi {
    pub(crate) router: Router,
    pub(crate) upkeep: Pin<Box<dyn Future<Output = Infallible> + Send>>,
    /// For the console: MQTT over WebSocket through a gateway.
    pub(crate) gateway_socket: Option<String>,
}

#[derive(Clone)]
struct HttpState {
    health: HealthzState,
    at: Arc<BoundAddresses>,
}

#[derive(Clone)]
struct HealthzState(Running);

/// `listener` must be non-blocking.
pub(crate) fn start(
    listener: TcpListener,
    running: &Running,
    at: &BoundAddresses,
    api: Option<ControlApi>,
    connections: Arc<Connections>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut app = router(HttpState { health: HealthzState::of(running), at: Arc::new(at.clone()) });
    if let Some(api) = api {
        let pools = threads::Pools::start()?;
        // A thread of its own, because a panic of the background work must end the process, and one of a request must not.
        let (handle, upkeep) = (pools.normal.clone(), api.upkeep);
        std::thread::Builder::new().name(UPKEEP.into()).spawn(move || handle.block_on(upkeep))?;
        app = app
            .nest(millrace_control::PATH, threads::run_on(pools, api.router))
            .route(SIGN_UP_PATH, get(async || shown("text/html", SIGN_UP)))
            .route("/sign-up.js", get(async || shown("text/javascript", SIGN_UP_SCRIPT)))
            .route("/confirm", get(async || shown("text/html", CONFIRM)))
            .route("/confirm.js", get(async || shown("text/javascript", CONFIRM_SCRIPT)));
        // The console is one more client of the API.
        let (ws, wss) = (at.ws.clone(), at.wss.clone());
        app = console::around(app, console::Sockets { ws, wss, gateway: api.gateway_socket });
    }
    spawn(panics::HTTP, runtime, listener, connections, app)
}

fn spawn(
    name: &'static str,
    runtime: tokio::runtime::Runtime,
    listener: TcpListener,
    connections: Arc<Connections>,
    app: Router,
) -> std::io::Result<()> {
    let serve = move || {
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)
        };
        match listener {
            Ok(listener) => runtime.block_on(connections.serve(listener, app.layer(from_fn(host::one)))),
            Err(error) => {
                error!(%error, port = name, "an HTTP port cannot be served, while MQTT clients are not affected: restart the server");
            }
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(serve)?;
    Ok(())
}

fn router(shared: HttpState) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/page.css", get(async || shown("text/css", STYLE)))
        .route("/healthz", get(health))
        .fallback(nothing_here)
        .with_state(shared)
}

impl HealthzState {
    fn of(running: &Running) -> Self {
        Self(Arc::clone(running))
    }

    fn answer(&self, peer: IpAddr) -> (StatusCode, String) {
        let running = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let asked = |edge: &Edge| {
            let health = edge.health();
            edge.note_health_check(peer, health.is_ok());
            // A pod without NATS stays healthy: taking it out of service would leave its clients
            // without any pod.
            health
                .map(|()| edge.fabric_health().map_or_else(String::new, |fabric| format!("NATS: {fabric}\n")))
        };
        status(running.as_ref().map(asked))
    }

    /// A supervisor restarts a process that is not live, so a process stays live while it drains.
    fn liveness(&self) -> (StatusCode, String) {
        let running = self.0.read().unwrap_or_else(PoisonError::into_inner);
        status(running.as_ref().map(|edge| edge.liveness().map(|()| String::new())))
    }
}

fn status(found: Option<Result<String, String>>) -> (StatusCode, String) {
    match found {
        Some(Ok(more)) => (StatusCode::OK, format!("ok\n{more}")),
        Some(Err(what)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{what}\n")),
        None => stopping(),
    }
}

async fn health(
    State(shared): State<HttpState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
) -> (StatusCode, String) {
    shared.health.answer(peer.ip())
}

fn stopping() -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, "the server is stopping\n".into())
}

async fn nothing_here(path: Uri) -> Response {
    let is_beside_api = path.path() == "/api" || path.path().starts_with("/api/");
    if is_beside_api {
        return millrace_control::outside().await;
    }
    let text = "There is nothing at this path. The pages of this server are / and /healthz; metrics are on the admin port.\n";
    (StatusCode::NOT_FOUND, text).into_response()
}

async fn page(State(shared): State<HttpState>, headers: HeaderMap) -> Response {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    shown("text/html", render(&shared.at, host))
}

/// A page with headers that let the browser load nothing from other hosts and send no referrer.
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

/// `host` is the name by which the browser reached this server, with or without port.
fn render(at: &BoundAddresses, host: Option<&str>) -> String {
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::RwLock;
    use std::time::Duration;

    use super::*;
    use crate::limits::{API_THREADS, ConnectionLimits};

    fn at(mqtt: &[&str], ws: &[&str]) -> BoundAddresses {
        let parse = |list: &[&str]| list.iter().map(|at| at.parse().unwrap()).collect();
        BoundAddresses { mqtt: parse(mqtt), ws: parse(ws), mqtts: Vec::new(), wss: Vec::new() }
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
        start(listener, &Arc::new(RwLock::new(None)), &at(&["127.0.0.1:1883"], &[]), None, connections(64))
            .unwrap();
        ask(address, path)
    }

    fn connections(all: usize) -> Arc<Connections> {
        let head = Duration::from_millis(200);
        Connections::new(ConnectionLimits { all, per_address: all, proxies: Vec::new(), head })
    }

    fn ask(address: SocketAddr, path: &str) -> String {
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
            ("/metrics", "HTTP/1.1 404", "There is nothing"),
            ("/other", "HTTP/1.1 404", "There is nothing at this path."),
        ];
        for (path, status, words) in cases {
            let text = answer(path);
            assert!(text.starts_with(status) && text.contains(words), "{path}: {text}");
        }
    }

    #[test]
    fn a_connection_that_sends_no_whole_head_in_time_is_closed_and_its_place_is_another_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (address, connections) = (listener.local_addr().unwrap(), connections(2));
        let running = Arc::new(RwLock::new(None));
        start(listener, &running, &at(&["127.0.0.1:1883"], &[]), None, Arc::clone(&connections)).unwrap();
        let mut silent = std::net::TcpStream::connect(address).unwrap();
        let mut slow = std::net::TcpStream::connect(address).unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nHost: a").unwrap();
        for stream in [&mut silent, &mut slow] {
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        }
        // One thread answers, so both closed connections are counted by then.
        let answered = ask(address, "/").starts_with("HTTP/1.1 200");
        let mut metrics = String::new();
        connections.write_metrics(&mut metrics);
        assert!(answered && metrics.contains("millrace_http_connections_timed_out_total 2\n"), "{metrics}");
    }

    #[test]
    fn a_connection_that_is_idle_after_an_answer_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let running = Arc::new(RwLock::new(None));
        start(listener, &running, &at(&["127.0.0.1:1883"], &[]), None, connections(2)).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server closes the connection");
        assert!(answer.starts_with("HTTP/1.1 503") && !answer.contains("connection: close"), "{answer}");
    }

    #[test]
    fn idle_strangers_on_all_places_do_not_keep_others_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (address, running) = (listener.local_addr().unwrap(), Arc::new(RwLock::new(None)));
        let limits = ConnectionLimits {
            all: 4,
            per_address: 100,
            proxies: Vec::new(),
            head: Duration::from_secs(600),
        };
        start(listener, &running, &at(&["127.0.0.1:1883"], &[]), None, Connections::new(limits)).unwrap();
        let _idle: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        for _ in 0..10 {
            assert!(ask(address, "/healthz").starts_with("HTTP/1.1 503"));
        }
    }

    #[test]
    fn requests_whose_bodies_do_not_come_do_not_keep_others_out() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        let reads = async move |request: axum::extract::Request| {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = axum::body::to_bytes(request.into_body(), 100).await;
        };
        let router = Router::new().route("/reads", axum::routing::post(reads));
        let api = ControlApi { router, upkeep: Box::pin(std::future::pending()), gateway_socket: None };
        let running = Arc::new(RwLock::new(None));
        let limits = ConnectionLimits {
            all: 4,
            per_address: 100,
            proxies: Vec::new(),
            head: Duration::from_secs(600),
        };
        start(listener, &running, &at(&["127.0.0.1:1883"], &[]), Some(api), Connections::new(limits))
            .unwrap();
        let path = format!("{}/reads", millrace_control::PATH);
        let held: Vec<_> = (0..4)
            .map(|_| {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                write!(stream, "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
                    .unwrap();
                stream
            })
            .collect();
        while begun.load(Ordering::SeqCst) < held.len() {
            std::thread::yield_now();
        }
        for _ in 0..10 {
            assert!(ask(address, "/healthz").starts_with("HTTP/1.1 503"));
        }
    }

    /// An API whose handlers never give their thread back.
    #[test]
    fn pages_and_health_do_not_wait_for_the_api() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (begun, gate) = (Arc::new(std::sync::Barrier::new(API_THREADS + 1)), Arc::new(RwLock::new(())));
        let (held, inside, waits) = (gate.write().unwrap(), Arc::clone(&begun), Arc::clone(&gate));
        let stuck = move || {
            inside.wait();
            drop(waits.read());
        };
        let router = Router::new().route("/stuck", get(async move || stuck()));
        let upkeep = Box::pin(std::future::pending());
        let api = ControlApi { router, upkeep, gateway_socket: None };
        let running = Arc::new(RwLock::new(None));
        start(listener, &running, &at(&["127.0.0.1:1883"], &[]), Some(api), connections(64)).unwrap();
        let path = format!("{}/stuck", millrace_control::PATH);
        let asked: Vec<_> = (0..API_THREADS)
            .map(|_| {
                std::thread::spawn({
                    let path = path.clone();
                    move || ask(address, &path)
                })
            })
            .collect();
        begun.wait();
        assert!(ask(address, "/healthz").starts_with("HTTP/1.1 503"));
        drop(held);
        for asked in asked {
            assert!(asked.join().unwrap().starts_with("HTTP/1.1 200"));
        }
    }
}
