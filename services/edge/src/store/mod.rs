//! The path of durable state to the store and back.
//!
//! Event loops submit [`Job`]s. The writer thread combines waiting jobs into transactions, and answers with mail once
//! they are durable. Reader threads read pages of messages. An event loop never waits: it delivers a message at once,
//! and only the publisher's acknowledgement comes with the mail (P1).
//!
//! **The order that everything depends on.** An event loop first posts a message to its receivers' loops, then submits
//! its job. When the job is committed, the writer sets the message's position, and only then advances
//! [`Store::through`] past it. So a loop that reads `through` and then takes all its mail has seen every live copy up
//! to there.

mod apply;
mod away;
mod backlog;
mod claims;
mod costs;
mod duties;
mod gather;
mod groups;
mod lease;
mod load;
mod pace;
mod pages;
mod parts;
mod pods;
mod queue;
mod queues;
mod reader;
mod retained;
mod sweep;
mod transaction_metrics;
mod unconfirmed;
mod unleft;
mod warm;
mod webhooks;
mod writer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_layers::{Position, catalog};
use millrace_storage::{Stat, block_on};

use crate::broker::{Broker, Brokers};
use crate::clock::Clock;
use crate::config::Config;
use crate::encoding::{inflight, record};
use crate::jobs::{
    Ack, Attach, Attached, Checkpoint, Detach, IdWrite, Ids, Job, Page, Publish, PublisherKey, Purge, Read,
    SessionKey, SharedMessages, StreamKey, Subscribe, ToRead, Unsubscribe, Write,
};
use crate::limits::EdgeLimits;
use crate::mailbox::Mailbox;
use crate::metrics::{self, Histogram};
use crate::region::{Notices, Region};
use crate::traces::Tracer;
use crate::webhooks::Hooked;
use crate::{StartError, access};
pub(crate) use apply::WHOLE_BYTES_MAX;
use lease::Leases;
use queue::Queue;
use retained::RetainedQueue;
use transaction_metrics::TransactionMetrics;

/// Reader threads of a shared store, whose reads wait for the network.
const READERS_SHARED: usize = 4;

pub(crate) struct Store {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Renews this pod's lease until the writer has ended.
    lease: Option<JoinHandle<()>>,
}

struct Shared {
    layers: millrace_layers::Store,
    clock: Clock,
    limits: EdgeLimits,
    mailboxes: Arc<[Mailbox]>,
    brokers: Arc<Brokers>,
    region: Option<Arc<Region>>,
    is_shared: bool,
    /// Owner of this process's sessions in the store.
    owner: Box<[u8]>,
    /// Held while a broker is opened, so that none is opened twice.
    opening: Mutex<()>,
    writes: Queue<Job>,
    reads: Queue<ToRead>,
    retained: RetainedQueue,
    leases: Leases,
    /// Times from submission to commit; the writer adds to it.
    acknowledged: Histogram,
    transactions: TransactionMetrics,
    /// Version up to which messages have their position.
    through: AtomicU64,
    /// Messages that each stream got since the last check of its limits.
    touched: Mutex<HashMap<StreamKey, u64>>,
    hooked: Arc<Hooked>,
    tracer: Option<Arc<Tracer>>,
}

impl Store {
    /// Reads what is needed at the start, ends sessions that an earlier process left open, and starts the threads.
    pub(crate) fn start(
        layers: millrace_layers::Store,
        clock: Clock,
        brokers: Arc<Brokers>,
        config: &Config,
        mailboxes: Arc<[Mailbox]>,
        region: Option<Arc<Region>>,
    ) -> Result<Self, StartError> {
        let unread = |error| StartError(format!("cannot read the store: {error}"));
        let through = block_on(layers.run(async |tx| Ok(tx.read_version().await?))).map_err(unread)?;
        let shared = Arc::new(Shared {
            layers,
            clock,
            limits: config.limits.clone(),
            mailboxes,
            brokers,
            region,
            is_shared: config.pod.is_some(),
            owner: config.pod_name().as_bytes().into(),
            opening: Mutex::default(),
            writes: Queue::new(clock),
            reads: Queue::new(clock),
            retained: RetainedQueue::default(),
            leases: Leases::default(),
            acknowledged: Histogram::default(),
            transactions: TransactionMetrics::default(),
            through: AtomicU64::new(through),
            touched: Mutex::default(),
            hooked: Arc::default(),
            tracer: config.tracer.clone(),
        });
        let lease = shared.is_shared.then(|| start(&shared, "store-lease", lease::run)).transpose()?;
        let mut store = Self { shared: shared.clone(), threads: Vec::new(), lease };
        if let Some(region) = &shared.region {
            let notices: Weak<Shared> = Arc::downgrade(&shared);
            region.tell_of_notices(notices);
            let others = lease::others(&shared);
            region.wait_for_pods(&block_on(others).map_err(unread)?);
        }
        for name in config.broker_names() {
            block_on(shared.layers.ensure_broker(name.as_bytes()))
                .map_err(|error| StartError(format!("cannot start on the store: {error}")))?;
            shared.open(name).map_err(unread)?;
        }
        // Wills of an earlier process's sessions go to the clients of all pods.
        if let Some(region) = &shared.region {
            region.wait_for_joins(&shared.brokers.all());
        }
        writer::abandon(&shared);
        store.threads.push(start(&shared, "store-write", writer::run)?);
        let readers = if shared.is_shared { READERS_SHARED } else { 1 };
        for number in 1..=readers {
            let run = if number == 1 { reader::run } else { reader::help };
            store.threads.push(start(&shared, &format!("store-read-{number}"), run)?);
        }
        if shared.is_shared {
            store.threads.push(start(&shared, "store-retained", retained::run)?);
        }
        Ok(store)
    }

    /// Submits jobs, which run in this order, and empties `jobs`.
    pub(crate) fn submit(&self, jobs: &mut Vec<Job>) {
        self.shared.writes.push(jobs);
    }

    pub(crate) fn read(&self, read: Read) {
        self.shared.reads.push(&mut vec![ToRead::Page(read)]);
    }

    /// The answer is `Mail::Opened`.
    pub(crate) fn ask_for_broker(&self, core: u16, name: Arc<str>) {
        self.shared.reads.push(&mut vec![ToRead::Broker { core, name }]);
    }

    /// `None`: there is no broker with this name.
    pub(crate) fn open(&self, name: &str) -> Result<Option<Arc<Broker>>, millrace_layers::LayerError> {
        self.shared.open(name)
    }

    /// All messages up to here have their position, and their live copies are in the mailboxes.
    pub(crate) fn through(&self) -> Position {
        Position::end_of(self.shared.through.load(Ordering::Acquire))
    }

    pub(crate) fn hooked(&self) -> &Arc<Hooked> {
        &self.shared.hooked
    }

    pub(crate) fn stats(&self) -> Vec<Stat> {
        self.shared.layers.database().stats()
    }

    pub(crate) fn write_metrics(&self, out: &mut String) {
        let waiting = metrics::gauge(
            "millrace_store_queue_bytes",
            "Bytes that wait for the thread that writes to the store.",
        );
        metrics::write(out, &[waiting], &[(String::new(), vec![self.waiting_bytes() as u64])]);
        Histogram::write(
            out,
            "millrace_message_commit_seconds",
            "Time from a QoS 1 or 2 message to its commit, after which it is acknowledged.",
            std::slice::from_ref(&self.shared.acknowledged),
        );
        self.shared.transactions.write(out);
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.shared.writes.bytes()
    }

    /// Whether a broker has more bytes in the queue than its share of `bytes_max`; all brokers with queued jobs have
    /// equal shares.
    pub(crate) fn is_over_share(&self, broker: &Broker, bytes_max: usize) -> bool {
        broker.unstored_bytes.load(Ordering::Relaxed) > self.shared.writes.share(bytes_max)
    }
}

fn start(shared: &Arc<Shared>, name: &str, run: fn(&Shared)) -> Result<JoinHandle<()>, StartError> {
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(move || run(&shared)).map_err(|error| StartError(format!("cannot start a thread: {error}")))
}

impl Notices for Shared {
    fn look(&self) {
        self.writes.push(&mut vec![Job { write: Write::Notices, ack: None }]);
    }

    fn grown(&self, broker: &Arc<Broker>, topic: &Arc<str>) {
        let write = Write::Grown(broker.clone(), topic.clone());
        self.writes.push(&mut vec![Job { write, ack: None }]);
    }

    fn waiting(&self, stream: StreamKey) {
        let shared = SharedMessages { joined: vec![stream], ..SharedMessages::default() };
        self.writes.push(&mut vec![Job { write: Write::Shared(Box::new(shared)), ack: None }]);
    }
}

impl Shared {
    fn open(&self, name: &str) -> Result<Option<Arc<Broker>>, millrace_layers::LayerError> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broker) = self.brokers.get(name) {
            return Ok(Some(broker));
        }
        let found = block_on(
            self.layers
                .run(async |tx| catalog::get(&tx, name.as_bytes(), millrace_storage::Read::Snapshot).await),
        )?;
        let Some(found) = found else { return Ok(None) };
        let broker = Arc::new(Broker::new(found.id, name, self.mailboxes.len()));
        let sessions = load::all(&self.layers, &self.clock, &self.brokers, &broker)?;
        broker.has_sessions.store(sessions > 0, Ordering::Relaxed);
        broker.counters[self.mailboxes.len()].sessions.add(sessions);
        broker.set_records(access::load(&self.layers, &broker)?);
        let id = broker.id;
        if block_on(self.layers.run(async |tx| millrace_layers::webhooks::has_any(&tx, id).await))? {
            self.brokers.webhooks_changed(id);
        }
        self.brokers.insert(&broker);
        if let Some(region) = &self.region {
            region.join(&broker);
        }
        Ok(Some(broker))
    }

    /// Opens brokers, then waits once for all until other pods have announced their filters.
    fn open_all(&self, ids: impl Iterator<Item = u64>) -> Result<(), millrace_layers::LayerError> {
        let Some(region) = &self.region else { return Ok(()) };
        let mut opened = Vec::new();
        for id in ids {
            opened.extend(self.open_by_id(id)?);
        }
        region.wait_for_joins(&opened);
        Ok(())
    }

    /// `None`: the broker was deleted.
    fn open_by_id(&self, id: u64) -> Result<Option<Arc<Broker>>, millrace_layers::LayerError> {
        if let Some(broker) = self.brokers.by_id(id) {
            return Ok(Some(broker));
        }
        let name = block_on(self.layers.run(async |tx| catalog::name_of(&tx, id).await))?;
        match name.as_deref().map(std::str::from_utf8) {
            Some(Ok(name)) => self.open(name),
            _ => Ok(None),
        }
    }
}

impl Drop for Store {
    /// Waits until all submitted jobs are written.
    fn drop(&mut self) {
        self.shared.writes.close();
        self.shared.reads.close();
        self.shared.retained.close();
        let join = |thread: JoinHandle<()>| {
            if thread.join().is_err() {
                tracing::error!("a thread of the store ended with a panic");
            }
        };
        self.threads.drain(..).for_each(join);
        // If the writer was started, it has ended the lease already.
        self.shared.leases.end(Duration::ZERO);
        self.lease.take().into_iter().for_each(join);
    }
}
