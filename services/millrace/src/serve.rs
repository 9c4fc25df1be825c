//! `millrace serve`: makes a running server from settings, and ends it in order.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use millrace_edge::{DrainRate, Edge};
use millrace_storage::Embedded;
use millrace_telemetry::{TelemetryQueue, TelemetrySource};
use signal_hook::consts::{SIGHUP, SIGTERM, TERM_SIGNALS};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::control::Plane;
use crate::failure::Failure;
use crate::http::HttpMetrics;
use crate::http::connections::Connections;
use crate::listeners::{BoundAddresses, bare, reachable};
use crate::running::Running;
use crate::service_manager::ServiceManager;
use crate::settings::{AdminListen, Settings};
use crate::store::{Opened, StoreLocation};
use crate::telemetry::{self, Telemetry};
use crate::{freed_memory, http, inspect, logs, panics, pods};

/// Interval of the log line with the number of clients left during a drain.
const DRAIN_PROGRESS: Duration = Duration::from_secs(3);

/// Files for which [`reserve_files`] makes room: 8 bytes each.
const FILES_RESERVED: u64 = 65_536;
/// Time to close the store, after drain and grace.
const STOP_SPARE: Duration = Duration::from_secs(30);

/// Runs the server until a signal; `ignored` are environment variables that are no setting.
pub(crate) fn run(settings: &Settings, ignored: &[String]) -> Result<(), Failure> {
    let telemetry = Telemetry::new(&settings.telemetry);
    logs::start(&settings.log_level, settings.log_format, telemetry.log_layer());
    panics::end_the_process();
    warn_of(settings, ignored);
    // Registered before the listeners open, so that no signal is lost.
    let mut signals =
        signals().map_err(|error| Failure::Run(format!("signals cannot be received: {error}")))?;
    raise_open_files();
    let pods = pods::all(settings).map_err(Failure::Settings)?;
    let https = Https::bind_all(&pods, settings)?;

    let store = settings.store.open()?;
    let plane = store
        .as_ref()
        .map(|store| {
            let (oidc, smtp) = (settings.oidc.clone(), settings.smtp.as_ref());
            Plane::open(store, &settings.control, oidc, smtp, settings.is_local())
        })
        .transpose()?;
    let durable = store.as_ref().zip(plane.as_ref());
    let started = pods.into_iter().zip(https).enumerate().map(|(number, (pod, https))| {
        let edge = millrace_edge::Config { tracer: telemetry.tracer(number), ..pod.edge };
        start(edge, https, durable, settings, telemetry.queue())
    });
    let started: Vec<Started> = started.collect::<Result<_, _>>()?;
    let queue = telemetry.queue().cloned();
    let sources = started.iter().map(|pod| pod.telemetry_source(queue.clone())).collect();
    let exporter = freed_memory::start().and_then(|()| telemetry.start(sources)).map_err(Failure::Run)?;
    // Opened before the server reports that it is ready.
    let admin = match (&settings.store, &store, started.first()) {
        (StoreLocation::Folder(path), Some(Opened::Folder(store)), Some(first)) => {
            admin(path, store.clone(), &first.running)
        }
        _ => None,
    };
    for pod in &started {
        greet(pod, settings);
    }
    if let (Some(plane), Some(http)) = (&plane, started.first().and_then(|first| first.http)) {
        plane.greet(http);
    }
    settings.store.greet(settings.edge.pod.as_deref());
    if let (Some(plane), Some(http)) = (&plane, started.first().and_then(|first| first.http)) {
        plane.print_link(http);
    }

    let all: Vec<Running> = started.iter().map(|pod| Arc::clone(&pod.running)).collect();
    let manager = ServiceManager::ready(move || all.iter().all(is_turning));

    let signal = end(&mut signals, &started);
    if let Some(manager) = manager {
        manager.stopping(settings.drain.at_most + settings.shutdown_grace + STOP_SPARE);
    }
    let name = signal.and_then(signal_hook::low_level::signal_name).unwrap_or("signal");
    if signal == Some(SIGTERM) && settings.drain.per_second > 0 {
        for_all(&started, |running| drain(running, &settings.drain));
    }
    info!(
        signal = name,
        grace_s = settings.shutdown_grace.as_secs(),
        "stopping; a second signal stops at once"
    );
    drop(admin);
    for_all(&started, |running| {
        let edge = running.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(edge) = edge {
            edge.shutdown(settings.shutdown_grace);
        }
    });
    drop(store);
    info!("stopped");
    // Dropping the exporter sends the last lines and spans, if the collector takes them at once.
    drop(exporter);
    Ok(())
}

fn warn_of(settings: &Settings, ignored: &[String]) {
    if !ignored.is_empty() {
        warn!(names = %ignored.join(", "), "environment variables that name no setting are ignored: check their spelling");
    }
    settings.exposed_files.iter().for_each(|exposed| warn!("{exposed}"));
}

/// Returns the signal that ends the server; on SIGHUP the server reads its files again.
fn end(signals: &mut Signals, started: &[Started]) -> Option<i32> {
    for signal in signals.forever() {
        if signal != SIGHUP {
            return Some(signal);
        }
        info!("SIGHUP: certificates, passwords and rules are read again");
        for pod in started {
            if let Some(edge) = &*pod.running.read().unwrap_or_else(PoisonError::into_inner) {
                edge.reload();
            }
        }
    }
    None
}

/// False when an event loop hangs.
fn is_turning(running: &Running) -> bool {
    let edge = running.read().unwrap_or_else(PoisonError::into_inner);
    edge.as_ref().is_some_and(|edge| edge.liveness().is_ok())
}

/// Disconnects clients at the drain rate, and logs how many are left. The HTTP port continues
/// meanwhile.
fn drain(running: &Running, drain_rate: &DrainRate) {
    let edge = || running.read().unwrap_or_else(PoisonError::into_inner);
    let Some(draining) = edge().as_ref().map(|edge| edge.drain(drain_rate)) else { return };
    let left = || edge().as_ref().map_or(0, Edge::connections);
    info!(
        connections = left(),
        per_second = draining.per_second(),
        "draining: clients are disconnected; a second signal stops at once"
    );
    let mut waited = Duration::ZERO;
    while !draining.wait(DRAIN_PROGRESS) {
        waited += DRAIN_PROGRESS;
        info!(connections = left(), "draining");
        if waited > drain_rate.at_most {
            return warn!(
                "the drain took longer than drain_max_s: the remaining clients are disconnected at once"
            );
        }
    }
}

fn for_all(pods: &[Started], what: impl Fn(&Running) + Sync) {
    std::thread::scope(|threads| {
        for pod in pods {
            threads.spawn(|| what(&pod.running));
        }
    });
}

pub(crate) struct Started {
    pub(crate) name: Option<String>,
    pub(crate) running: Running,
    at: BoundAddresses,
    gateway: Vec<SocketAddr>,
    pub(crate) http: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    has_operator_pages: bool,
    http_metrics: HttpMetrics,
}

impl Started {
    fn telemetry_source(&self, queue: Option<TelemetryQueue>) -> TelemetrySource {
        let (running, http) = (Arc::clone(&self.running), self.http_metrics.clone());
        telemetry::source(self.name.as_deref(), self.http, move || {
            http::admin::page_of_metrics(&running, &http, queue.as_ref())
        })
    }
}

struct Https {
    public: Option<(TcpListener, SocketAddr)>,
    admin: Option<(TcpListener, SocketAddr)>,
    connections: Arc<Connections>,
}

impl Https {
    /// Binds all public ports before the first admin port. From eleven pods on, the default admin
    /// port of one pod is the public port of another.
    fn bind_all(pods: &[pods::PodSettings], settings: &Settings) -> Result<Vec<Self>, Failure> {
        let public = |pod: &pods::PodSettings| pod.http_listen.map(|at| bind(at, "http-listen")).transpose();
        let public: Vec<_> = pods.iter().map(public).collect::<Result<_, _>>()?;
        let http_limits = settings.http_limits.clone().within(panics::HTTP, millrace_edge::reserved_files());
        let with_admin = |(pod, public): (&pods::PodSettings, _)| {
            let admin = pod.admin_listen.map(bind_admin).transpose()?;
            Ok(Self { public, admin, connections: Connections::new(http_limits.clone()) })
        };
        pods.iter().zip(public).map(with_admin).collect()
    }
}

fn bind_admin(admin: AdminListen) -> Result<(TcpListener, SocketAddr), Failure> {
    match bind(admin.at, "admin-listen") {
        Err(_) if admin.is_default => {
            warn!(at = %admin.at, "the default address for operators is taken, so another port is used; --admin-listen sets one");
            bind(SocketAddr::new(admin.at.ip(), 0), "admin-listen")
        }
        bound => bound,
    }
}

/// Starts a pod: the event loops first, then the HTTP ports.
fn start(
    edge: millrace_edge::Config,
    https: Https,
    durable: Option<(&Opened, &Plane)>,
    settings: &Settings,
    telemetry: Option<&TelemetryQueue>,
) -> Result<Started, Failure> {
    let name = edge.pod.clone();
    let edge = match durable {
        Some((store, _)) => millrace_edge::start_on(edge, store.database()),
        None => millrace_edge::start(edge),
    };
    let edge = edge.map_err(|error| Failure::Run(error.to_string()))?;
    let (at, gateway) = (BoundAddresses::of(&edge), edge.gateway_addresses().to_vec());
    if let Some((_, plane)) = durable {
        plane.reached_at(&at, &settings.edge);
    }
    let running: Running = Arc::new(RwLock::new(Some(edge)));
    let address_of = |bound: &Option<(TcpListener, SocketAddr)>| bound.as_ref().map(|(_, address)| *address);
    let Https { public, admin, connections } = https;
    let (http_address, admin_address) = (address_of(&public), address_of(&admin));
    let http_metrics = HttpMetrics {
        connections: public.is_some().then(|| Arc::clone(&connections)),
        ..HttpMetrics::default()
    };
    if let Some((listener, address)) = public {
        let api = durable.map(|(store, plane)| http::ControlApi {
            router: http_metrics.requests.around(plane.api(store.database(), &running)),
            upkeep: Box::pin(plane.upkeep()),
            gateway_socket: plane.gateway_socket(),
        });
        http::start(listener, &running, &at, api, connections)
            .map_err(|error| Failure::Run(format!("the HTTP port {address} cannot be served: {error}")))?;
    }
    let mut has_operator_pages = false;
    if let Some((listener, address)) = admin {
        let operator = durable.and_then(|(_, plane)| {
            plane.operator_api(
                &running,
                name.clone(),
                address,
                settings.operator_tokens.clone(),
                &settings.drain,
            )
        });
        let operator = operator.map(|router| http_metrics.requests.around(router));
        has_operator_pages =
            http::admin::start(listener, &running, http_metrics.clone(), telemetry.cloned(), operator)
                .map_err(|error| {
                    Failure::Run(format!("the admin port {address} cannot be served: {error}"))
                })?;
    }
    Ok(Started {
        name,
        running,
        at,
        gateway,
        http: http_address,
        admin: admin_address,
        has_operator_pages,
        http_metrics,
    })
}

/// The socket for `millrace sessions` and similar commands.
fn admin(path: &Path, store: Embedded, running: &Running) -> Option<inspect::socket::InspectSocket> {
    let opened = inspect::socket::InspectSocket::open(path, store, Arc::new(Arc::clone(running)));
    opened
        .inspect_err(|error| {
            warn!(%error, "the admin socket cannot be made; commands such as `millrace sessions` do not reach this server");
        })
        .ok()
}

/// Registers SIGHUP and the signals that end the process. A second such signal ends it at once.
fn signals() -> std::io::Result<Signals> {
    let second = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        // In this order: the first signal must find the flag unset, and sets it.
        signal_hook::flag::register_conditional_shutdown(*signal, 1, Arc::clone(&second))?;
        signal_hook::flag::register(*signal, Arc::clone(&second))?;
    }
    Signals::new(TERM_SIGNALS.iter().chain([&SIGHUP]))
}

/// Raises the limit of open files: each connection is one, and shells start programs with a low
/// limit.
fn raise_open_files() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(open_files_max) => {
            reserve_files(open_files_max);
            info!(open_files_max, "the limit of open files, which bounds the connections");
        }
        Err(error) => {
            warn!(%error, "the limit of open files cannot be raised, and bounds the connections: raise it outside (ulimit -n, LimitNOFILE)");
        }
    }
}

/// Makes the kernel's table of this process's files large at once. When it grows later, the call that needs a file waits up
/// to 20 ms (`synchronize_rcu`), because other threads may read the table: an event loop would stand still that long.
fn reserve_files(open_files_max: u64) {
    let last = open_files_max.min(FILES_RESERVED).saturating_sub(1);
    let reserved =
        rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), i32::try_from(last).unwrap_or(i32::MAX));
    if let Err(error) = reserved {
        tracing::debug!(%error, "no room was reserved for open files, so accepting many connections may block an event loop for up to 20 ms");
    }
}

fn bind(address: SocketAddr, setting: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let open = || -> std::io::Result<_> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    open().map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::AddrInUse => "another program listens there, so stop it or",
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege, so",
            std::io::ErrorKind::AddrNotAvailable => "this machine does not have that address, so",
            _ => "to continue,",
        };
        Failure::Run(format!(
            "HTTP cannot listen on {address} ({error}): {what} set another address with --{setting}, or \"off\""
        ))
    })
}

/// Logs the addresses, and how to send a first message if a client without a password may.
fn greet(pod: &Started, settings: &Settings) {
    let at = &pod.at;
    for address in &pod.gateway {
        info!("the gateway is expected at {address}, with PROXY protocol version 2");
    }
    for address in &at.mqtt {
        info!("MQTT over TCP is open at mqtt://{address}");
    }
    for address in &at.ws {
        info!("MQTT over WebSocket is open at ws://{address}/mqtt");
    }
    for address in &at.mqtts {
        info!("MQTT over TLS is open at mqtts://{address}");
    }
    for address in &at.wss {
        info!("MQTT over WebSocket over TLS is open at wss://{address}/mqtt");
    }
    if let Some(address) = pod.http {
        info!("HTTP is open at http://{address}/ (start page, /healthz)");
    }
    if let Some(address) = pod.admin {
        let pages = if pod.has_operator_pages { "their pages, " } else { "" };
        info!("operators find {pages}/healthz, /livez and /metrics at http://{address}/");
        if !address.ip().to_canonical().is_loopback() {
            warn!("{address} asks for no password, and /metrics names brokers: let only operators reach it");
        }
    }
    if settings.open_to_everybody {
        warn!("clients without a password are accepted from the network, as allow_anonymous says");
    }
    if settings.edge.authentication.allow_anonymous
        && let Some(address) = at.mqtt.first()
    {
        let (host, port) = (bare(&reachable(*address, None)), address.port());
        info!("to see a first message: mosquitto_sub -h {host} -p {port} -t 'hello/#' -v");
        info!("and in another terminal: mosquitto_pub -h {host} -p {port} -t hello/world -m hi");
    }
}
