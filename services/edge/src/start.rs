//! Starts and stops the event loops of a process.

mod bound;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_access::scram::METHOD;
use millrace_layers::Store as Layers;
use millrace_session::SessionSettings;
use millrace_storage::Database;
use millrace_transport::addresses::Addresses;
use millrace_transport::listeners::{Listener, Listeners};
use mio::{Poll, Waker};

use self::bound::Bound;
use crate::access::AuthenticationService;
use crate::authenticator::Authenticator;
use crate::broker::{Broker, Brokers};
use crate::clock::Clock;
use crate::config::Config;
use crate::core::Core;
use crate::drain::{Drain, DrainRate, Draining};
use crate::files;
use crate::home::Loads;
use crate::limits::EdgeLimits;
use crate::mailbox::Mailbox;
use crate::memory::Memory;
use crate::metrics::LoudestBrokers;
use crate::process::{LogThrottles, PerCore, Process};
use crate::recent_peers::{RecentPeer, RecentPeers};
use crate::region::PodNetwork;
use crate::reload::Reloader;
use crate::reporters::Reporters;
use crate::store::StoreService;
use crate::tls::Tls;
use crate::webhooks::Webhooks;

/// The text says what happened and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// A running edge: event loops, listeners and their state; dropping it without [`Edge::shutdown`] stops the loops at once.
pub struct Edge {
    pub(crate) process: Arc<Process>,
    mqtt_addresses: Vec<SocketAddr>,
    ws_addresses: Vec<SocketAddr>,
    mqtts_addresses: Vec<SocketAddr>,
    wss_addresses: Vec<SocketAddr>,
    gateway_addresses: Vec<SocketAddr>,
    grace: Arc<OnceLock<Duration>>,
    threads: Vec<JoinHandle<()>>,
    reloader: Reloader,
}

/// Binds the listeners and starts the event loops. Fails when an address cannot be bound or a configured file cannot be read.
pub fn start(config: Config) -> Result<Edge, StartError> {
    start_with(config, None, run)
}

/// As [`start`], with persistent state in a store, which must be readable.
pub fn start_on(config: Config, database: Database) -> Result<Edge, StartError> {
    start_with(config, Some(database), run)
}

/// The event loops without threads, and where they listen for MQTT over TCP.
#[cfg(test)]
pub(crate) fn start_for_turns(
    config: Config,
    database: Option<Database>,
) -> Result<(Vec<Core>, SocketAddr), StartError> {
    start_with(config, database, |process, polls, bound| {
        let cores: Result<_, _> = cores(&process, polls, bound.listeners).collect();
        Ok((cores?, bound.mqtt[0]))
    })
}

type LoopStarter<T> = fn(Arc<Process>, Vec<Poll>, Bound) -> Result<T, StartError>;

fn start_with<T>(config: Config, database: Option<Database>, run: LoopStarter<T>) -> Result<T, StartError> {
    let cores = event_loops(&config);
    let bound = Bound::new(&config, cores)?;
    if config.listens_with_tls() && config.tls.is_none() {
        return Err(StartError("listening with TLS needs a certificate and its key".into()));
    }
    let tls = config.tls_in_use().map(Tls::start).transpose()?;
    let (polls, mailboxes) = event_queues(cores)?;
    let clock = Clock::start().ahead(config.clock_ahead_ms);
    let (layers, memory) = (database.map(Layers::new), Memory::new(config.limits.memory_max));
    let limits = files::limited(config.limits.clone().with_memory(memory.budget()));
    let loads = Loads::new(cores, limits.home_clients_max as usize);
    let brokers = Brokers::new(limits.queue_memory_max, limits.queue_memory_per_broker_max, loads);
    let brokers = Arc::new(brokers.with_retained_max(limits.retained_memory_max));
    let region = start_region(&config, layers.is_some(), clock, &brokers, &mailboxes)?;
    let authentication = |layers: &Layers| {
        AuthenticationService::start(
            layers.clone(),
            clock,
            brokers.clone(),
            mailboxes.clone(),
            &config.outgoing,
        )
    };
    let authentication = layers.as_ref().map(authentication).transpose()?;
    let reporters = |layers: &Layers| Reporters::start(layers, clock, &brokers, &config);
    let reporters = layers.as_ref().map(reporters).transpose()?;
    let webhook_layers = layers.clone();
    let files = Arc::new(Authenticator::start(&config.authentication, clock, &mailboxes)?);
    let store = match layers {
        Some(layers) => {
            let (brokers, mailboxes, region) = (brokers.clone(), mailboxes.clone(), region.clone());
            Some(StoreService::start(layers, clock, brokers, &config, mailboxes, region, files.clone())?)
        }
        None => {
            for (number, name) in config.broker_names().enumerate() {
                // Ids begin at 1, because 0 stands for no broker.
                brokers.insert(&Arc::new(Broker::new(number as u64 + 1, name, cores)));
            }
            None
        }
    };
    let webhooks = |(layers, store): (Layers, &StoreService)| {
        Webhooks::start(layers, clock, store.queued_webhooks().clone(), &config, brokers.clone())
    };
    let webhooks = webhook_layers.zip(store.as_ref()).map(webhooks).transpose()?;
    let process = Arc::new(Process {
        clock,
        webhooks,
        store,
        region,
        settings: SessionSettings {
            // SCRAM needs the verifiers of users, which only a store has.
            authentication_method: authentication.is_some().then_some(METHOD),
            ..settings(&config.limits)
        },
        memory: memory.with_input(limits.input_memory_max),
        limits,
        authentication,
        _reporters: reporters,
        addresses: Addresses::new(files::address_limits(&config.limits), config.unlimited_from.clone()),
        tls,
        log_throttles: LogThrottles::default(),
        gateways: RecentPeers::default(),
        health_checks: RecentPeers::default(),
        authenticator: files,
        config,
        brokers,
        cores: (0..cores).map(|_| PerCore::default()).collect(),
        loudest: LoudestBrokers::default(),
        mailboxes,
        drain: OnceLock::new(),
        stopping: AtomicBool::new(false),
        owners: foldhash::fast::RandomState::default(),
    });
    run(process, polls, bound)
}

fn event_loops(config: &Config) -> usize {
    match config.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads.min(usize::from(u16::MAX)),
    }
}

fn event_queues(cores: usize) -> Result<(Vec<Poll>, Arc<[Mailbox]>), StartError> {
    let failed = |error| cannot("create an event queue", &error);
    let mut polls = Vec::with_capacity(cores);
    let mut mailboxes = Vec::with_capacity(cores);
    for _ in 0..cores {
        let poll = Poll::new().map_err(failed)?;
        let waker = Waker::new(poll.registry(), Core::waker_token()).map_err(failed)?;
        polls.push(poll);
        mailboxes.push(Mailbox::new(waker));
    }
    Ok((polls, mailboxes.into()))
}

/// `None` without other pods, or where pods notice each other through the store alone.
fn start_region(
    config: &Config,
    has_store: bool,
    clock: Clock,
    brokers: &Arc<Brokers>,
    mailboxes: &Arc<[Mailbox]>,
) -> Result<Option<Arc<PodNetwork>>, StartError> {
    match (&config.fabric, &config.pod) {
        (Some(_), None) => Err(StartError("a pod of a region needs a name".into())),
        (Some(_), Some(_)) if !has_store => {
            Err(StartError("the pods of a region need a store that they share".into()))
        }
        (None, _) => Ok(None),
        (Some(fabric), Some(_)) => {
            let (fabric, tracer) = (fabric.clone(), config.tracer.clone());
            let region =
                PodNetwork::start(fabric, clock, brokers.clone(), mailboxes.clone(), &config.limits, tracer);
            Ok(Some(region.map_err(|error| StartError(error.to_string()))?))
        }
    }
}

fn run(process: Arc<Process>, polls: Vec<Poll>, bound: Bound) -> Result<Edge, StartError> {
    let grace = Arc::new(OnceLock::new());
    let threads = Vec::new();
    let reloader = Reloader::start(&process.config, &process)?;
    let mut edge = Edge {
        process,
        mqtt_addresses: bound.mqtt,
        ws_addresses: bound.ws,
        mqtts_addresses: bound.mqtts,
        wss_addresses: bound.wss,
        gateway_addresses: bound.gateway,
        grace,
        threads,
        reloader,
    };
    let process = edge.process.clone();
    for (index, core) in cores(&process, polls, bound.listeners).enumerate() {
        let (core, grace) = (core?, edge.grace.clone());
        let thread = std::thread::Builder::new()
            .name(format!("core-{index}"))
            .spawn(move || core.run(&grace))
            .map_err(|error| cannot("start a thread", &error))?;
        edge.threads.push(thread);
    }
    Ok(edge)
}

fn cores(
    process: &Arc<Process>,
    polls: Vec<Poll>,
    listeners: Vec<Vec<Listener>>,
) -> impl Iterator<Item = Result<Core, StartError>> {
    polls.into_iter().zip(listeners).enumerate().map(|(index, (poll, listeners))| {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        let mut core = Core::new(index, process.clone(), poll, Listeners::new(listeners));
        core.listen().map_err(|error| cannot("watch a listener", &error))?;
        Ok(core)
    })
}

impl Edge {
    /// In the order of the configuration, as in the following functions.
    pub fn mqtt_addresses(&self) -> &[SocketAddr] {
        &self.mqtt_addresses
    }

    pub fn ws_addresses(&self) -> &[SocketAddr] {
        &self.ws_addresses
    }

    pub fn mqtts_addresses(&self) -> &[SocketAddr] {
        &self.mqtts_addresses
    }

    pub fn wss_addresses(&self) -> &[SocketAddr] {
        &self.wss_addresses
    }

    pub fn gateway_addresses(&self) -> &[SocketAddr] {
        &self.gateway_addresses
    }

    /// Peers that connected to the gateway addresses lately; those outside of `gateway_from` were refused.
    pub fn gateway_peers(&self) -> Vec<(IpAddr, RecentPeer)> {
        self.process.gateways.list()
    }

    pub fn note_health_check(&self, peer: IpAddr, is_healthy: bool) {
        self.process.health_checks.note(peer, is_healthy, self.process.clock.unix_now_ms());
    }

    pub fn health_checks(&self) -> Vec<(IpAddr, RecentPeer)> {
        self.process.health_checks.list()
    }

    /// In Prometheus text format.
    pub fn metrics(&self) -> String {
        self.process.metrics()
    }

    /// Fails while an event loop is stuck or accepts no clients, and during a drain; the text names the cause.
    pub fn health(&self) -> Result<(), String> {
        self.process.health()
    }

    /// An error when an event loop hangs. A draining pod is live, but not healthy.
    pub fn liveness(&self) -> Result<(), String> {
        self.process.liveness()
    }

    /// The state of the network to other pods, if there are any. A disconnected pod still serves its own clients and the stored
    /// messages.
    pub fn fabric_health(&self) -> Option<millrace_fabric::Health> {
        self.process.region.as_ref().and_then(|region| region.health())
    }

    pub fn is_draining(&self) -> bool {
        self.process.drain.get().is_some()
    }

    pub fn connections(&self) -> u64 {
        self.process.open_connections()
    }

    /// Reads certificates, passwords and rules again; this also happens when their files change. The log names refused files.
    pub fn reload(&self) {
        self.reloader.order();
    }

    /// Disconnects the clients at a rate: no new connections, DISCONNECT to 5.0 clients (0x9C with the server reference of the
    /// configuration, 0x8B without one), a close to others. Their sessions stay in the store. The remaining clients are served
    /// until their turn. A drain cannot be changed once begun.
    pub fn drain(&self, rate: &DrainRate) -> Draining {
        let (process, cores) = (&self.process, self.threads.len());
        let new = || Arc::new(Drain::new(rate, process.open_connections(), cores, process.clock.now()));
        let drain = process.drain.get_or_init(new).clone();
        process.wake();
        Draining(drain)
    }

    /// Orderly end: no new connections, DISCONNECT to all 5.0 clients at once as with [`Edge::drain`]. Written bytes are flushed
    /// (for at most `grace`), then the loops end.
    pub fn shutdown(mut self, grace: Duration) {
        // Cannot fail: only this sets it, and consumes the edge.
        let _ = self.grace.set(grace);
        self.stop();
    }

    fn stop(&mut self) {
        self.reloader.stop();
        self.process.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("an event loop ended with a panic: report it with the log before it");
            }
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = self.grace.set(Duration::ZERO);
        self.stop();
    }
}

fn cannot(what: &str, error: &io::Error) -> StartError {
    StartError(format!("cannot {what}: {error}"))
}

fn settings(limits: &EdgeLimits) -> SessionSettings {
    SessionSettings {
        receive_maximum: limits.receive_maximum.max(1),
        inflight_max: limits.inflight_max.max(1),
        packet_size_max: limits.packet_size_max,
        topic_alias_max: limits.topic_alias_max,
        topic_alias_outbound_max: limits.topic_alias_outbound_max,
        keep_alive_max_s: limits.keep_alive_max_s,
        session_expiry_max_s: limits.session_expiry_max_s,
        session_expiry_v3_s: limits.session_expiry_v3_s,
        client_id_bytes_max: limits.client_id_bytes_max,
        queue_messages_max: limits.queue_messages_max,
        queue_bytes_max: limits.queue_bytes_max,
        authentication_method: None,
    }
}
