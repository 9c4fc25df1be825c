//! The state that all cores of one edge process share.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use millrace_session::SessionSettings;
use millrace_storage::Stat;
use millrace_transport::addresses::Addresses;
use millrace_transport::throttle::Throttle;

use crate::access::{AuthenticationService, counts_as_metrics};
use crate::authenticator::Authenticator;
use crate::broker::{Broker, Brokers};
use crate::clock::{Clock, Millis};
use crate::config::Config;
use crate::drain::Drain;
use crate::home::Owner;
use crate::limits::EdgeLimits;
use crate::mailbox::Mailbox;
use crate::memory::Memory;
use crate::metrics::{
    self, BrokerCounters, ConnectSteps, CoreCounters, Count, Histogram, LoudRow, LoudestBrokers, Metric,
};
use crate::recent_peers::RecentPeers;
use crate::region::PodNetwork;
use crate::reporters::Reporters;
use crate::store::StoreService;
use crate::tls::Tls;
use crate::webhooks::Webhooks;

/// An event loop without a turn for this long counts as stuck.
const STUCK_MS: Millis = 5_000;

/// Limits the log lines that unknown clients can cause: one a minute of each kind.
#[derive(Debug, Default)]
pub(crate) struct LogThrottles {
    pub(crate) accept_failed: Throttle,
    pub(crate) not_the_gateway: Throttle,
    pub(crate) proxy_header: Throttle,
    pub(crate) address: Throttle,
}

/// The state of one core, which that core alone writes, and other cores and the metrics read.
#[derive(Default)]
pub(crate) struct PerCore {
    pub(crate) counters: CoreCounters,
    /// When the core last read the clock, in milliseconds of the process.
    pub(crate) turned_at: AtomicU64,
    /// Odd while the core is inside a turn. After changing a router, wait until this is even: the core's next turn sees the
    /// change.
    pub(crate) turns: AtomicU64,
    pub(crate) turn_times: Histogram,
    pub(crate) delivery_times: Histogram,
    pub(crate) connect_steps: ConnectSteps,
    /// Most work of one turn since the start, in units of `core::work`.
    pub(crate) work_max: AtomicU64,
}

pub(crate) struct Process {
    pub(crate) clock: Clock,
    pub(crate) limits: EdgeLimits,
    pub(crate) settings: SessionSettings,
    pub(crate) config: Config,
    pub(crate) brokers: Arc<Brokers>,
    pub(crate) addresses: Addresses,
    pub(crate) tls: Option<Tls>,
    pub(crate) log_throttles: LogThrottles,
    pub(crate) gateways: RecentPeers,
    pub(crate) health_checks: RecentPeers,
    pub(crate) authenticator: Arc<Authenticator>,
    /// Authenticates clients of managed brokers; set with a store.
    pub(crate) authentication: Option<AuthenticationService>,
    /// Held so that their threads run as long as the process.
    pub(crate) _reporters: Option<Reporters>,
    /// Persistent state; without a store, state ends with the process.
    pub(crate) store: Option<StoreService>,
    pub(crate) webhooks: Option<Webhooks>,
    pub(crate) region: Option<Arc<PodNetwork>>,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) cores: Box<[PerCore]>,
    pub(crate) loudest: LoudestBrokers,
    pub(crate) memory: Memory,
    pub(crate) drain: OnceLock<Arc<Drain>>,
    pub(crate) stopping: AtomicBool,
    /// Hashes client ids to the loops that own them; the keys are this process's own.
    pub(crate) owners: foldhash::fast::RandomState,
}

impl Process {
    #[inline]
    pub(crate) fn core(&self, index: u16) -> &PerCore {
        &self.cores[usize::from(index)]
    }

    /// A connection moves to its owner once, at its CONNECT, so a session never moves and all its events happen on one core.
    pub(crate) fn owner(&self, broker: &Broker, client_id: &str) -> Owner {
        broker.home.owner(self.client_hash(broker, client_id), self.mailboxes.len() as u64)
    }

    pub(crate) fn client_hash(&self, broker: &Broker, client_id: &str) -> u64 {
        self.owners.hash_one((&*broker.name, client_id))
    }

    /// Opens a broker, from the store if necessary. It can block on the disk, so event loops must not call it.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<Broker>, String> {
        let unknown = || format!("there is no broker \"{name}\"");
        match &self.store {
            Some(store) => match store.open(name) {
                Ok(found) => found.ok_or_else(unknown),
                Err(error) => Err(format!("the broker \"{name}\" cannot be read: {error}")),
            },
            None => self.brokers.get(name).ok_or_else(unknown),
        }
    }

    /// Whether other pods use the store, too.
    pub(crate) fn is_shared(&self) -> bool {
        self.config.pod.is_some()
    }

    pub(crate) fn open_connections(&self) -> u64 {
        Count::sum(self.cores.iter().map(|core| &core.counters.open))
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        for mailbox in &*self.mailboxes {
            mailbox.wake();
        }
    }

    pub(crate) fn health(&self) -> Result<(), String> {
        if self.drain.get().is_some() {
            return Err(format!("draining: {} connections are left", self.open_connections()));
        }
        self.liveness()
    }

    pub(crate) fn liveness(&self) -> Result<(), String> {
        let now = self.clock.now();
        for (index, core) in self.cores.iter().enumerate() {
            let age = now.saturating_sub(core.turned_at.load(Ordering::Relaxed));
            if age > STUCK_MS {
                return Err(format!("event loop {index} has not turned for {age} ms"));
            }
        }
        Ok(())
    }

    pub(crate) fn metrics(&self) -> String {
        let mut out = String::new();
        let cores = metrics::sum(self.cores.iter().map(|core| core.counters.values()));
        metrics::write(&mut out, CoreCounters::METRICS, &[(String::new(), cores)]);
        Histogram::write(
            &mut out,
            "millrace_edge_turn_seconds",
            "Time that one turn of an event loop takes, without waiting for events.",
            self.cores.iter().map(|core| &core.turn_times),
        );
        Histogram::write(
            &mut out,
            "millrace_edge_delivery_seconds",
            "Time from reading a PUBLISH of any QoS until an event loop has written it to the outbound buffers of all its connected subscribers. Measured for the first PUBLISH of every 17th read of a loop.",
            self.cores.iter().map(|core| &core.delivery_times),
        );
        ConnectSteps::write(&mut out, &self.cores.iter().map(|core| &core.connect_steps));
        self.write_load(&mut out);
        let waiting = metrics::gauge("millrace_mailbox_bytes", "Bytes that wait between event loops.");
        let bytes: usize = self.mailboxes.iter().map(Mailbox::bytes).sum();
        metrics::write(&mut out, &[waiting], &[(String::new(), vec![bytes as u64])]);
        self.write_broker_metrics(&mut out);
        let stats = self.store.iter().flat_map(StoreService::stats).map(|stat| {
            let Stat { name, labels, help, kind, value } = stat;
            (Metric { kind: kind.as_str(), name, labels, help }, value)
        });
        let region = self.region.iter().flat_map(|region| region.metrics());
        let authentication = self.authentication.iter().flat_map(AuthenticationService::metrics);
        let webhooks = self.webhooks.iter().flat_map(Webhooks::metrics);
        let checks = self.authentication.iter().map(AuthenticationService::password_checks);
        let checks = counts_as_metrics(checks.chain(self.authenticator.password_checks()));
        #[allow(clippy::cast_precision_loss)]
        let counted = region
            .chain(authentication)
            .chain(webhooks)
            .chain(checks)
            .map(|(metric, value)| (metric, value as f64));
        metrics::write_lines(&mut out, stats.chain(counted).map(|(metric, value)| (metric, "", value)));
        if let Some(region) = &self.region {
            region.write_delays(&mut out);
        }
        if let Some(store) = &self.store {
            store.write_metrics(&mut out);
        }
        out
    }

    fn write_load(&self, out: &mut String) {
        let work = self.cores.iter().map(|core| core.work_max.load(Ordering::Relaxed)).max().unwrap_or(0);
        let gauges = [
            metrics::gauge("millrace_memory_budget_bytes", "Memory that the process may use."),
            metrics::gauge(
                "millrace_input_held_bytes",
                "Bytes of incomplete packets, beyond the first 4 KiB of each connection.",
            ),
            metrics::gauge(
                "millrace_memory_pressure",
                "Load that the process sheds because memory is short: 0 none, 1 QoS 0, 2 also new connections, 3 also reading from publishers.",
            ),
            metrics::gauge(
                "millrace_edge_turn_work_max",
                "Most work that one turn of an event loop did, in units of about a tenth of a microsecond.",
            ),
        ];
        let values =
            vec![self.memory.budget(), self.memory.input.bytes(), self.memory.pressure() as u64, work];
        metrics::write(out, &gauges, &[(String::new(), values)]);
    }

    fn write_broker_metrics(&self, out: &mut String) {
        let (brokers, closed) = self.brokers.all_with_closed_counts();
        let open = metrics::gauge(
            "millrace_brokers_open",
            "Brokers in memory: those with clients, due work or use in the last broker_idle_s.",
        );
        metrics::write(out, &[open], &[(String::new(), vec![brokers.len() as u64])]);
        let gauges = [
            metrics::gauge("millrace_subscriptions", "Subscriptions of all sessions."),
            metrics::gauge("millrace_retained_messages", "Retained messages."),
            metrics::gauge(
                "millrace_subscription_bytes",
                "About how much memory the subscriptions of connected sessions take.",
            ),
            metrics::gauge(
                "millrace_queue_bytes",
                "Memory of messages that sessions in memory hold: waiting, or sent and not acknowledged.",
            ),
            metrics::gauge(
                "millrace_topic_alias_bytes",
                "Bytes of the topics for which clients have set aliases, beyond the first 4 KiB of each connection.",
            ),
        ];
        let all = [BrokerCounters::METRICS, &gauges].concat();
        let row = |broker: &'_ Arc<Broker>| {
            let mut values = metrics::sum(broker.counters.iter().map(BrokerCounters::values));
            values.extend([
                broker.router.subscriptions() as u64,
                broker.retained.len() as u64,
                broker.router.bytes() as u64,
                broker.queues().map_or(0, |queues| queues.used()),
                broker.change_alias_bytes(0, 0),
            ]);
            values
        };
        let rows: Vec<_> = brokers
            .iter()
            .map(|broker| LoudRow { id: broker.id, name: &broker.name, values: row(broker) })
            .collect();
        let max = usize::from(self.limits.metrics_brokers_max);
        metrics::write(out, &all, &self.loudest.rows(self.clock.now(), max, &all, &rows, &closed));
    }
}
