//! The path of durable state to the store and back.
//!
//! Event loops submit [`Job`]s. The writer thread combines waiting jobs into transactions, and answers with mail once
//! they are durable. Reader threads read pages of messages. An event loop never waits: it delivers a message at once,
//! and only the publisher's acknowledgement comes with the mail (P1).
//!
//! **The order that everything depends on.** An event loop first posts a message to its receivers' loops, then submits
//! its job. When the job is committed, the writer sets the message's position, and only then advances
//! [`StoreService::through`] past it. So a loop that reads `through` and then takes all its mail has seen every live copy up
//! to there.

mod apply;
mod backlog;
mod bugs;
mod claims;
mod closing;
mod commit_times;
mod costs;
mod due_turns;
mod duties;
mod expiry;
mod full_members;
mod gather;
mod groups;
mod last_settled;
mod lease;
mod load;
mod opening;
mod outage;
mod pages;
mod parts;
mod pods;
mod queue;
mod queues;
mod read_versions;
mod reader;
mod removal;
mod retained;
mod stream_turns;
mod sweep;
mod taken_back;
mod transaction_metrics;
mod trims;
mod unconfirmed;
mod unwritten;
mod warm;
mod webhooks;
mod writer;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_layers::{BrokerId, LayerError, Position};
use millrace_storage::{Stat, block_on};

use crate::authenticator::Authenticator;
use crate::broker::{Broker, Brokers, Reservation};
use crate::clock::Clock;
use crate::config::Config;
use crate::encoding::{inflight, record};
use crate::jobs::{
    AttachWrite, AttachedSession, Checkpoint, DetachWrite, IdWrite, Ids, Job, PublishAck, PublishWrite,
    PublisherKey, Purge, SessionKey, SharedMessages, StoredPage, StreamKey, StreamRead, SubscribeWrite,
    UnsubscribeWrite, Write,
};
use crate::limits::EdgeLimits;
use crate::mailbox::Mailbox;
use crate::metrics;
use crate::region::{Notices, PodNetwork};
use crate::traces::Tracer;
use crate::webhooks::QueuedWebhooks;
use crate::{StartError, access};
pub(crate) use apply::WHOLE_BYTES_MAX;
use lease::Leases;
use opening::{Openings, ToOpen};
use queue::WorkQueue;
use retained::RetainedQueue;
use transaction_metrics::TransactionMetrics;

/// Reader threads of a shared store, whose reads wait for the network.
const READERS_SHARED: usize = 4;

/// How long a start waits for a store that does not answer.
const START_PATIENCE: Duration = Duration::from_secs(60);
const START_RETRY: Duration = Duration::from_secs(1);

pub(crate) struct StoreService {
    shared: Arc<StoreContext>,
    threads: Vec<JoinHandle<()>>,
    /// Renews this pod's lease until the writer has ended.
    lease: Option<JoinHandle<()>>,
}

struct StoreContext {
    layers: millrace_layers::Store,
    clock: Clock,
    limits: EdgeLimits,
    mailboxes: Arc<[Mailbox]>,
    brokers: Arc<Brokers>,
    region: Option<Arc<PodNetwork>>,
    /// Other pods use the store, too.
    is_shared: bool,
    /// Owner of this process's sessions in the store.
    owner: Box<[u8]>,
    openings: Openings,
    opens: WorkQueue<ToOpen>,
    writes: WorkQueue<Job>,
    reads: WorkQueue<StreamRead>,
    retained: RetainedQueue,
    leases: Leases,
    transactions: TransactionMetrics,
    /// Version up to which messages have their position.
    through: AtomicU64,
    upkeep: Upkeep,
    queued_webhooks: Arc<QueuedWebhooks>,
    tracer: Option<Arc<Tracer>>,
    /// For the wills of brokers that go by the server's settings.
    authenticator: Option<Arc<Authenticator>>,
}

/// Work that others leave to the first reader.
#[derive(Default)]
struct Upkeep {
    /// Messages that each stream got since the last check of its limits.
    touched: Mutex<HashMap<StreamKey, u64>>,
    /// Topics whose expired retained messages have left memory but not the store.
    expired: Mutex<VecDeque<(BrokerId, Vec<Arc<str>>)>>,
    /// Brokers of which notices may be lost, for the writer; `None`: any broker.
    missed: Mutex<BTreeSet<Option<BrokerId>>>,
    /// Cloned for each retained message that memory has before its commit, so the writer knows whether there are any.
    in_memory: Arc<()>,
}

impl StoreService {
    /// Reads what is needed at the start, ends sessions that an earlier process left open, and starts the threads.
    pub(crate) fn start(
        layers: millrace_layers::Store,
        clock: Clock,
        brokers: Arc<Brokers>,
        config: &Config,
        mailboxes: Arc<[Mailbox]>,
        region: Option<Arc<PodNetwork>>,
        authenticator: Arc<Authenticator>,
    ) -> Result<Self, StartError> {
        let read_version = || block_on(layers.run(async |tx| Ok(tx.read_version().await?)));
        let through = patiently(clock, "cannot read the store", read_version)?;
        let shared = Arc::new(StoreContext {
            layers,
            clock,
            limits: config.limits.clone(),
            mailboxes,
            brokers,
            region,
            is_shared: config.pod.is_some(),
            owner: config.pod_name().as_bytes().into(),
            openings: Openings::default(),
            opens: WorkQueue::new(clock),
            writes: WorkQueue::new(clock),
            reads: WorkQueue::new(clock),
            retained: RetainedQueue::default(),
            leases: Leases::default(),
            transactions: TransactionMetrics::default(),
            through: AtomicU64::new(through),
            upkeep: Upkeep::default(),
            queued_webhooks: Arc::default(),
            tracer: config.tracer.clone(),
            authenticator: Some(authenticator),
        });
        let lease = shared.is_shared.then(|| start(&shared, "store-lease", lease::run)).transpose()?;
        let mut store = Self { shared: shared.clone(), threads: Vec::new(), lease };
        if let Some(region) = &shared.region {
            let notices: Weak<StoreContext> = Arc::downgrade(&shared);
            region.set_notices(notices);
            let others = || block_on(lease::others(&shared));
            region.wait_for_pods(&patiently(clock, "cannot read the pods of the store", others)?);
        }
        open_configured(&shared, config)?;
        // Wills of an earlier process's sessions go to the clients of all pods.
        if let Some(region) = &shared.region {
            region.wait_for_joins(&shared.brokers.all());
        }
        patiently(clock, "cannot end the sessions of an earlier run", || match writer::abandon(&shared) {
            // The error was logged. It will not pass by waiting, as with a full disk, and live traffic must continue: those
            // sessions stay until their clients come or the next start.
            Err(error) if !writer::may_pass(&error) => Ok(()),
            ended => ended,
        })?;
        store.start_threads()?;
        Ok(store)
    }

    fn start_threads(&mut self) -> Result<(), StartError> {
        let shared = self.shared.clone();
        self.threads.push(start(&shared, "store-write", writer::run)?);
        let readers = if shared.is_shared { READERS_SHARED } else { 1 };
        for number in 1..=readers {
            let run = if number == 1 { reader::run } else { reader::help };
            self.threads.push(start(&shared, &format!("store-read-{number}"), run)?);
        }
        for number in 1..=opening::THREADS {
            self.threads.push(start(&shared, &format!("store-open-{number}"), opening::run)?);
        }
        if shared.is_shared {
            self.threads.push(start(&shared, "store-retained", retained::run)?);
        }
        Ok(())
    }

    /// Submits jobs, which run in this order, and empties `jobs`.
    pub(crate) fn submit(&self, jobs: &mut Vec<Job>) {
        self.shared.writes.push(jobs);
    }

    /// Removes these topics' expired retained messages from the store soon.
    pub(crate) fn clear_expired(&self, broker: BrokerId, topics: Vec<Arc<str>>) {
        self.shared.clear_expired(broker, topics);
    }

    pub(crate) fn reserve_in_memory(&self) -> Reservation {
        self.shared.reserve_in_memory()
    }

    pub(crate) fn read(&self, read: StreamRead) {
        self.shared.reads.push(&mut vec![read]);
    }

    /// The answer is `Mail::Opened`.
    pub(crate) fn ask_for_broker(&self, core: u16, name: Arc<str>) {
        self.shared.ask_for_broker(core, name);
    }

    /// `None`: there is no broker with this name.
    pub(crate) fn open(&self, name: &str) -> Result<Option<Arc<Broker>>, LayerError> {
        self.shared.open(name)
    }

    /// All messages up to here have their position, and their live copies are in the mailboxes.
    pub(crate) fn through(&self) -> Position {
        Position::end_of(self.shared.through.load(Ordering::Acquire))
    }

    pub(crate) fn queued_webhooks(&self) -> &Arc<QueuedWebhooks> {
        &self.shared.queued_webhooks
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

fn open_configured(shared: &StoreContext, config: &Config) -> Result<(), StartError> {
    for name in config.broker_names() {
        patiently(shared.clock, "cannot make a broker in the store", || {
            block_on(shared.layers.ensure_broker(name.as_bytes()))
        })?;
        let opened = patiently(shared.clock, "cannot read a broker from the store", || shared.open(name))?;
        opened.iter().for_each(|broker| broker.stay_open());
    }
    Ok(())
}

/// Runs `attempt` again while the store does not answer: a pod often starts at the moment at which the store is busiest,
/// after a failure of several machines.
fn patiently<T>(
    clock: Clock,
    what: &str,
    attempt: impl Fn() -> Result<T, LayerError>,
) -> Result<T, StartError> {
    let until = clock.now() + START_PATIENCE.as_millis() as u64;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if writer::may_pass(&error) && clock.now() < until => {
                tracing::warn!(%error, "{what}: it is tried again for up to {} s", START_PATIENCE.as_secs());
                // Nothing else runs yet, and the store does not say when it answers again.
                #[allow(clippy::disallowed_methods)]
                std::thread::sleep(START_RETRY);
            }
            Err(error) => return Err(StartError(format!("{what}: {error}"))),
        }
    }
}

fn start(
    shared: &Arc<StoreContext>,
    name: &str,
    run: fn(&StoreContext),
) -> Result<JoinHandle<()>, StartError> {
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(move || run(&shared)).map_err(|error| StartError(format!("cannot start a thread: {error}")))
}

impl Notices for StoreContext {
    fn look(&self) {
        self.writes.push(&mut vec![Job { write: Write::Notices, ack: None }]);
    }

    fn grown(&self, broker: &Arc<Broker>, topic: &Arc<str>) {
        let write = Write::Grown(broker.clone(), topic.clone());
        self.writes.push(&mut vec![Job { write, ack: None }]);
    }

    fn missed(&self, broker: Option<u64>) {
        self.upkeep.missed.lock().unwrap_or_else(PoisonError::into_inner).insert(broker);
    }

    fn unclaimed(&self, stream: StreamKey) {
        let shared = SharedMessages { grown: vec![stream], ..SharedMessages::default() };
        self.writes.push(&mut vec![Job { write: Write::Shared(Box::new(shared)), ack: None }]);
    }
}

impl Drop for StoreService {
    fn drop(&mut self) {
        self.shared.writes.close();
        self.shared.reads.close();
        self.shared.opens.close();
        self.shared.retained.close();
        let join = |thread: JoinHandle<()>| {
            if thread.join().is_err() {
                tracing::error!("a thread of the store ended with a panic: report it with the log before it");
            }
        };
        self.threads.drain(..).for_each(join);
        // If the writer was started, it has ended the lease already.
        self.shared.leases.end(Duration::ZERO);
        self.lease.take().into_iter().for_each(join);
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing_engine;
