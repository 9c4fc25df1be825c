//! The state of the connection, derived from the events of the NATS client.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_nats::{ClientError, Event, ReconnectToServer, Server, ServerError};
use tokio::sync::{Notify, watch};

use crate::clock::instant;
use crate::counters::Counts;
use crate::health::{self, Health};

use super::servers::NatsServers;

pub(crate) struct Link {
    counts: Arc<Counts>,
    inner: Mutex<Inner>,
    connected: watch::Sender<bool>,
    /// The number of the last round-trip probe that the server has answered.
    echoed: watch::Sender<u64>,
    pub(crate) changed: Notify,
    /// Subjects that the NATS user needs permission for; shown when the server denies one.
    subjects: String,
}

struct Inner {
    health: Health,
    servers: NatsServers,
    transitions: Vec<bool>,
    is_lame_duck: bool,
    /// The probe in flight: its number, and when it was sent.
    echo: Option<(u64, Instant)>,
    echoes: u64,
    health_changed: bool,
}

pub(crate) struct LinkChanges {
    /// Connections (true) and disconnections in order.
    pub(crate) transitions: Vec<bool>,
    /// The server asks its clients to leave.
    pub(crate) is_lame_duck: bool,
    /// Set when it has changed.
    pub(crate) health: Option<Health>,
}

impl Link {
    pub(crate) fn new(servers: usize, reconnect_ms_max: u32, subjects: String, counts: Arc<Counts>) -> Self {
        let health = Health {
            connected: false,
            server: None,
            since: instant(),
            reconnects: 0,
            rtt: None,
            pods: 0,
            problem: Some("it was not reached yet".into()),
        };
        let inner = Inner {
            health,
            servers: NatsServers::new(servers, reconnect_ms_max),
            transitions: Vec::new(),
            is_lame_duck: false,
            echo: None,
            echoes: 0,
            health_changed: false,
        };
        Self {
            counts,
            inner: Mutex::new(inner),
            connected: watch::Sender::new(false),
            echoed: watch::Sender::new(0),
            changed: Notify::new(),
            subjects,
        }
    }

    pub(crate) fn health(&self) -> Health {
        let pods = usize::try_from(self.counts.pods.get()).unwrap_or(usize::MAX);
        Health { pods, ..self.lock().health.clone() }
    }

    pub(crate) fn is_connected(&self) -> bool {
        *self.connected.borrow()
    }

    pub(crate) async fn until(&self, connected: bool) {
        // Cannot fail: this object owns the sender.
        let _ = self.connected.subscribe().wait_for(|now| *now == connected).await;
    }

    pub(crate) fn take_changes(&self) -> LinkChanges {
        let mut inner = self.lock();
        let transitions = std::mem::take(&mut inner.transitions);
        let is_lame_duck = std::mem::take(&mut inner.is_lame_duck);
        let health = std::mem::take(&mut inner.health_changed);
        drop(inner);
        LinkChanges { transitions, is_lame_duck, health: health.then(|| self.health()) }
    }

    /// Called before each attempt to connect, with the results of the last attempts.
    pub(crate) fn choose(&self, pool: &[Server]) -> Option<ReconnectToServer> {
        let mut inner = self.lock();
        let failed = inner.health.server.as_ref();
        let failed = failed.and_then(|shown| pool.iter().find(|server| show(server) == *shown));
        let problem = failed
            .and_then(|server| Some(health::explain_connect(&show(server), server.last_error.as_ref()?)));
        if !inner.health.connected && problem.is_some() {
            self.problem(&mut inner, problem);
        }
        let (index, delay) = inner.servers.next();
        let server = pool.get(index)?;
        inner.health.server = Some(show(server));
        Some(ReconnectToServer { addr: server.addr.clone(), delay: Some(delay) })
    }

    pub(crate) fn event(&self, event: &Event) {
        match event {
            Event::Connected => self.transition(true),
            Event::Disconnected => self.transition(false),
            Event::LameDuckMode => {
                self.lock().is_lame_duck = true;
                self.changed.notify_one();
            }
            Event::SlowConsumer(_) => self.counts.slow_consumer.add(1),
            Event::ServerError(error) => self.server_error(error),
            // For other errors, `choose` gets the details.
            Event::ClientError(ClientError::Other(error)) if error.to_lowercase().contains("dns") => {
                let mut inner = self.lock();
                let server = inner.health.server.clone().unwrap_or_default();
                self.problem(&mut inner, Some(health::explain_connect(&server, error)));
            }
            Event::ClientError(_) | Event::Draining | Event::Closed => {}
        }
    }

    /// Compares with the client's own state, in case that an event was lost.
    pub(crate) fn check(&self, connected: bool) {
        if connected != self.is_connected() {
            self.transition(connected);
        }
    }

    /// Starts a probe of the round-trip time, and returns its number.
    pub(crate) fn echo(&self) -> u64 {
        let mut inner = self.lock();
        inner.echoes += 1;
        let number = inner.echoes;
        inner.echo = Some((number, instant()));
        number
    }

    pub(crate) fn echoed(&self, number: u64) {
        let mut inner = self.lock();
        if let Some((_, at)) = inner.echo.take_if(|(sent, _)| *sent == number) {
            inner.health.rtt = Some(at.elapsed());
        }
        drop(inner);
        self.echoed.send_replace(number);
    }

    /// Waits until the server has answered this probe, and therefore has everything that was sent
    /// before it.
    pub(crate) async fn until_echoed(&self, number: u64) {
        let _ = self.echoed.subscribe().wait_for(|last| *last >= number).await;
    }

    pub(crate) fn fail(&self, problem: &str) {
        let mut inner = self.lock();
        inner.health.connected = false;
        inner.health.since = instant();
        self.counts.connected.set(0);
        self.problem(&mut inner, Some(problem.into()));
    }

    fn transition(&self, connected: bool) {
        let mut inner = self.lock();
        if inner.health.connected == connected {
            return;
        }
        inner.transitions.push(connected);
        inner.health.connected = connected;
        inner.health.since = instant();
        inner.health.rtt = None;
        if connected {
            inner.health.reconnects = self.counts.connects.get();
            self.counts.connects.add(1);
            inner.servers.connected();
        }
        self.counts.connected.set(connected.into());
        let server = inner.health.server.as_deref().unwrap_or("NATS");
        inner.health.problem = (!connected).then(|| format!("the connection to {server} broke"));
        inner.health_changed = true;
        drop(inner);
        self.connected.send_replace(connected);
        self.changed.notify_one();
    }

    fn server_error(&self, error: &ServerError) {
        self.counts.server_errors.add(1);
        let error = error.to_string();
        if error.to_lowercase().contains("slow consumer") {
            self.counts.slow_consumer.add(1);
        }
        match health::explain_server(&error, &self.subjects) {
            Some(problem) => {
                let mut inner = self.lock();
                self.problem(&mut inner, Some(problem));
            }
            None => tracing::warn!(
                error,
                "NATS reports an error: live messages to other pods may be lost, and durable ones arrive later; check the log of the NATS server"
            ),
        }
    }

    fn problem(&self, inner: &mut Inner, problem: Option<String>) {
        if inner.health.problem != problem {
            inner.health.problem = problem;
            inner.health_changed = true;
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server's address without parts that may be secret.
fn show(server: &Server) -> String {
    format!("{}:{}", server.addr.host(), server.addr.port())
}
