//! What the cores of one edge process share.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use millrace_session::Settings;
use millrace_storage::Stat;

use crate::access::{Desk, counts_as_metrics};
use crate::authenticator::Authenticator;
use crate::broker::{Broker, Brokers};
use crate::clock::{Clock, Millis};
use crate::config::Config;
use crate::drain::Drain;
use crate::incidents::Scribe;
use crate::limits::Limits;
use crate::mailbox::Mailbox;
use crate::memory::Memory;
use crate::metering::Teller;
use crate::metrics::{self, BrokerCounters, CoreCounters, Count, Histogram, Metric};
use crate::quota::Shares;
use crate::region::Region;
use crate::store::Store;
use crate::webhooks::Webhooks;

/// An event loop that has not turned for this long is stuck.
const STUCK_MS: Millis = 5_000;

/// What the cores of one edge process share.
pub(crate) struct Process {
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
    pub(crate) config: Config,
    pub(crate) brokers: Arc<Brokers>,
    pub(crate) authenticator: Authenticator,
    /// Lets clients of managed brokers in, where there is a store.
    pub(crate) desk: Option<Desk>,
    /// Shares limits with other pods, where there are several.
    pub(crate) _shares: Option<Shares>,
    /// Writes incidents, where there is a store.
    pub(crate) _scribe: Option<Scribe>,
    /// Tells the store what brokers use.
    pub(crate) _teller: Option<Teller>,
    /// Where what must survive is kept; without one it ends with the process.
    pub(crate) store: Option<Store>,
    /// Tells webhooks, where there is a store.
    pub(crate) webhooks: Option<Webhooks>,
    /// The other pods, where there are several.
    pub(crate) region: Option<Arc<Region>>,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) counters: Box<[CoreCounters]>,
    /// When each core last turned, milliseconds.
    pub(crate) turned_at: Box<[AtomicU64]>,
    /// Turns of each core that began and ended: odd while it is in one. Who has put something into a router, and then seen a core
    /// outside of a turn, knows that its next turn finds it.
    pub(crate) turns: Box<[AtomicU64]>,
    pub(crate) memory: Memory,
    /// How long the turns of each core took.
    pub(crate) turn_times: Box<[Histogram]>,
    /// Most units of work that a turn of each core did.
    pub(crate) work_max: Box<[AtomicU64]>,
    /// Set once, when the clients are to be sent elsewhere.
    pub(crate) drain: OnceLock<Arc<Drain>>,
    pub(crate) stopping: AtomicBool,
    pub(crate) owners: foldhash::fast::RandomState,
}

impl Process {
    /// The core on which sessions of this client id live. A connection moves there once, at its CONNECT, so that a
    /// session never moves and everything about it happens on one core.
    pub(crate) fn owner(&self, broker: &Broker, client_id: &str) -> u16 {
        let hash = self.owners.hash_one((&*broker.name, client_id));
        let cores = self.mailboxes.len() as u64;
        u16::try_from((hash >> 32) % cores).unwrap_or(0)
    }

    /// A broker, read from the store now if need be: not for event loops, which do not wait for the disk.
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

    /// Whether other pods work with the same store.
    pub(crate) fn is_shared(&self) -> bool {
        self.config.pod.is_some()
    }

    /// Open connections on all cores.
    pub(crate) fn open_connections(&self) -> u64 {
        Count::sum(self.counters.iter().map(|core| &core.open))
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes every core.
    pub(crate) fn wake(&self) {
        for mailbox in &*self.mailboxes {
            mailbox.wake();
        }
    }

    pub(crate) fn health(&self) -> Result<(), String> {
        if self.drain.get().is_some() {
            return Err(format!("draining: {} connections are left", self.open_connections()));
        }
        let now = self.clock.now();
        for (core, turned_at) in self.turned_at.iter().enumerate() {
            let age = now.saturating_sub(turned_at.load(Ordering::Relaxed));
            if age > STUCK_MS {
                return Err(format!("event loop {core} has not turned for {age} ms"));
            }
        }
        Ok(())
    }

    pub(crate) fn metrics(&self) -> String {
        let mut out = String::new();
        let cores: Vec<_> = self.counters.iter().map(CoreCounters::values).collect();
        metrics::write(&mut out, CoreCounters::METRICS, &[(String::new(), cores)]);
        Histogram::write(
            &mut out,
            "millrace_edge_turn_seconds",
            "Time that one turn of an event loop takes, without waiting for events.",
            &self.turn_times,
        );
        let gauges = [
            ("millrace_memory_budget_bytes", "Memory that the process may use.", self.memory.budget()),
            (
                "millrace_memory_pressure",
                "What is given up for want of memory: 0 nothing, 1 QoS 0, 2 new connections too, 3 speed of publishers too.",
                self.memory.pressure() as u64,
            ),
        ];
        for (name, help, value) in gauges {
            let metric = Metric { kind: "gauge", name, labels: "", help };
            metrics::write_lines(&mut out, std::iter::once((metric, "", value)));
        }
        let work = self.work_max.iter().map(|work| work.load(Ordering::Relaxed)).max().unwrap_or(0);
        let help =
            "Most work that one turn of an event loop did, in units of about a tenth of a microsecond.";
        let metric = Metric { kind: "gauge", name: "millrace_edge_turn_work_max", labels: "", help };
        metrics::write_lines(&mut out, std::iter::once((metric, "", work)));
        let brokers = self.brokers.all();
        let of_brokers: Vec<_> = brokers
            .iter()
            .map(|broker| {
                let values = broker.counters.iter().map(BrokerCounters::values).collect();
                (format!("broker=\"{}\"", broker.name), values)
            })
            .collect();
        metrics::write(&mut out, BrokerCounters::METRICS, &of_brokers);
        type Gauge = (&'static str, &'static str, fn(&Broker) -> usize);
        let gauges: [Gauge; 2] = [
            ("millrace_subscriptions", "Subscriptions of all sessions.", |broker| {
                broker.router.subscriptions()
            }),
            ("millrace_retained_messages", "Retained messages.", |broker| broker.retained.len()),
        ];
        for (name, help, value) in gauges {
            let metric = Metric { kind: "gauge", name, labels: "", help };
            let lines = brokers.iter().zip(&of_brokers);
            metrics::write_lines(
                &mut out,
                lines.map(|(broker, (label, _))| (metric, &**label, value(broker) as u64)),
            );
        }
        let stats = self.store.iter().flat_map(Store::stats).map(|stat| {
            let Stat { name, labels, help, kind, value } = stat;
            (Metric { kind: kind.as_str(), name, labels, help }, value)
        });
        let region = self.region.iter().flat_map(|region| region.metrics());
        let desk = self.desk.iter().flat_map(Desk::metrics);
        let webhooks = self.webhooks.iter().flat_map(Webhooks::metrics);
        let checks = self.desk.iter().map(Desk::password_checks);
        let checks = counts_as_metrics(checks.chain(self.authenticator.password_checks()));
        let all = stats.chain(region).chain(desk).chain(webhooks).chain(checks);
        metrics::write_lines(&mut out, all.map(|(metric, value)| (metric, "", value)));
        out
    }
}
