//! One tenant's broker: the state that its clients share across all cores.
//!
//! Nothing here reaches from one broker to another. Event loops read it without locks in the usual case.

mod closing;
mod removals;
mod reservation;
mod retaining;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use millrace_access::bans::Bans;
use millrace_router::{Edit, Router, TopicTree, TreeSnapshot};
use millrace_session::{Budget, Message};

use crate::authorization::{BrokerRecords, LoadedAccess};
use crate::client_traces::Traces;
use crate::elsewhere::Elsewhere;
use crate::home::{Home, Loads};
use crate::incidents::Incidents;
use crate::limits;
use crate::metering::UsageCounter;
use crate::metrics::{BrokerCounters, Latencies};
use crate::quota::Quota;
use crate::streams::BrokerStreams;
use closing::{ClosedBrokers, Idleness};
pub(crate) use reservation::{Reservation, Reserved};
pub(crate) use retaining::retained_size;
use retaining::{RetainedGate, RetainedMemory};

pub(crate) const OVER_CAP: &str = "the spend cap of this broker is reached: its owner can raise it";

/// Whether a text is a valid broker name: a label of a host name (RFC 1123 section 2.1), in lower case.
#[must_use]
pub fn is_broker_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=63).contains(&text.len()) && text.bytes().all(is_inner);
    fits && !text.starts_with('-') && !text.ends_with('-')
}

/// The open brokers of a process: those with connected clients, and those with work that is due. Any other broker is
/// only rows in the store.
pub(crate) struct Brokers {
    known: RwLock<KnownBrokers>,
    filter_bytes: Arc<AtomicU64>,
    retained_bytes: Arc<AtomicU64>,
    /// Limit for the retained messages of all brokers together.
    retained_bytes_max: u64,
    queues: Arc<Budget>,
    queue_bytes_per_broker_max: u64,
    pub(crate) loads: Loads,
    /// Traces of clients, also of brokers that are not open.
    pub(crate) traces: Arc<Traces>,
    /// Brokers whose webhooks may have changed.
    webhooks: Mutex<Vec<u64>>,
    closed: ClosedBrokers,
}

#[derive(Default)]
struct KnownBrokers {
    by_name: HashMap<Arc<str>, Arc<Broker>, foldhash::fast::RandomState>,
    by_id: BTreeMap<u64, Arc<Broker>>,
    /// The sums of the counters of closed brokers, in the order of [`BrokerCounters::METRICS`].
    closed_counts: Vec<u64>,
    closed: HashSet<u64, foldhash::fast::RandomState>,
}

impl Brokers {
    /// The first two arguments bound the memory of the messages in sessions: of all brokers, and of each.
    pub(crate) fn new(queue_bytes_max: u64, queue_bytes_per_broker_max: u64, loads: Loads) -> Self {
        Self {
            known: RwLock::default(),
            filter_bytes: Arc::default(),
            retained_bytes: Arc::default(),
            retained_bytes_max: u64::MAX,
            queues: Arc::new(Budget::new(queue_bytes_max, None)),
            queue_bytes_per_broker_max,
            loads,
            traces: Arc::default(),
            webhooks: Mutex::default(),
            closed: ClosedBrokers::default(),
        }
    }

    pub(crate) fn filter_bytes(&self) -> u64 {
        self.filter_bytes.load(Ordering::Relaxed)
    }

    #[must_use]
    pub(crate) fn with_retained_max(self, retained_bytes_max: u64) -> Self {
        Self { retained_bytes_max, ..self }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Broker>> {
        self.read().by_name.get(name).inspect(|broker| broker.idleness.note_use()).cloned()
    }

    pub(crate) fn by_id(&self, id: u64) -> Option<Arc<Broker>> {
        self.read().by_id.get(&id).inspect(|broker| broker.idleness.note_use()).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Broker>> {
        self.read().sorted()
    }

    /// The open brokers, each found when its turn comes: a pass over many holds none of them open.
    pub(crate) fn each(&self) -> impl Iterator<Item = Arc<Broker>> {
        let ids: Vec<u64> = self.read().by_id.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.peek(id))
    }

    pub(crate) fn insert(&self, broker: &Arc<Broker>) {
        broker.router.count_in(&self.filter_bytes);
        self.count_retained_of(broker);
        broker.client_memory.queues.get_or_init(|| {
            Arc::new(Budget::new(self.queue_bytes_per_broker_max, Some(self.queues.clone())))
        });
        self.loads.settle(&broker.home);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let hash = known.hash(&broker.name);
        known.closed.remove(&hash);
        known.by_name.insert(broker.name.clone(), broker.clone());
        known.by_id.insert(broker.id, broker.clone());
    }

    pub(crate) fn note_changed_webhooks(&self, id: u64) {
        self.webhooks.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    pub(crate) fn take_changed_webhooks(&self) -> Vec<u64> {
        std::mem::take(&mut self.webhooks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self) -> RwLockReadGuard<'_, KnownBrokers> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks up the next brokers only when the caller takes them, so that few are held open at once.
pub(crate) fn chunks(
    mut brokers: impl Iterator<Item = Arc<Broker>>,
    size: usize,
) -> impl Iterator<Item = Vec<Arc<Broker>>> {
    std::iter::from_fn(move || {
        let chunk: Vec<_> = brokers.by_ref().take(size).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

pub(crate) struct Broker {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    idleness: Idleness,
    /// Where its clients are; set by [`Brokers::insert`].
    pub(crate) home: Arc<Home>,
    pub(crate) router: Router,
    /// Streams in the store, for the filters of persistent sessions, connected or offline.
    pub(crate) streams: BrokerStreams,
    /// Filters of this broker's clients on other pods.
    pub(crate) elsewhere: Elsewhere,
    /// Whether the store may have sessions of this broker.
    pub(crate) has_sessions: AtomicBool,
    /// Retained messages by topic: a copy of those in the store.
    pub(crate) retained: TopicTree<Arc<Message>>,
    pub(crate) retained_memory: RetainedMemory,
    pub(crate) client_memory: ClientMemory,
    /// The `$SYS` topics, which clients read like retained messages; they do not count for the tenant's limit.
    pub(crate) sys: TopicTree<Arc<Message>>,
    /// Held while a retained message is set and a snapshot of the subscriptions is taken, and while subscriptions are published and
    /// a snapshot of the retained messages is taken: a new subscription gets a message one way or the other, never both, never
    /// neither (P6). Nothing is matched or edited meanwhile, so its holder never takes long.
    retained_gate: Mutex<RetainedGate>,
    control: FromControl,
    pub(crate) quota: Quota,
    pub(crate) incidents: Incidents,
    /// One set per core, then one each for the threads of the store's writer, the store's reader and the fabric.
    pub(crate) counters: Box<[BrokerCounters]>,
    pub(crate) meters: Box<[UsageCounter]>,
    pub(crate) latencies: Latencies,
    /// Bytes of its jobs in the store's queue.
    pub(crate) unstored_bytes: AtomicUsize,
}

/// Memory that its clients take beyond what is free for each connection, bytes.
#[derive(Default)]
pub(crate) struct ClientMemory {
    alias_bytes: AtomicU64,
    pub(crate) incomplete_packets: AtomicU64,
    /// Sessions that wait, or will wait, for their clients in memory, and the bytes of their wills.
    pub(crate) memory_sessions: AtomicU64,
    pub(crate) will_bytes: AtomicU64,
    /// Budget of the messages in its sessions; set by [`Brokers::insert`].
    queues: OnceLock<Arc<Budget>>,
}

/// The records of the control plane about a broker, as this process last read them.
struct FromControl {
    /// Authentication methods and rules; `None`: the server's settings apply.
    access: RwLock<Option<Arc<LoadedAccess>>>,
    bans: RwLock<Option<Arc<Bans>>>,
    /// The version of the access settings that was read; [`u64::MAX`]: they must be read again.
    access_changes: AtomicU64,
    /// Whether the spend cap is reached: the broker refuses clients and messages.
    is_over_cap: AtomicBool,
    /// The organisation that owns the broker; the broker's name without one.
    tenant: RwLock<Arc<str>>,
}

impl FromControl {
    fn new(tenant: &str) -> Self {
        Self {
            access: RwLock::default(),
            bans: RwLock::default(),
            access_changes: AtomicU64::new(0),
            is_over_cap: AtomicBool::new(false),
            tenant: RwLock::new(tenant.into()),
        }
    }
}

impl Broker {
    pub(crate) fn new(id: u64, name: &str, cores: usize) -> Self {
        Self {
            id,
            name: name.into(),
            idleness: Idleness::default(),
            home: Home::new(id, name),
            router: Router::new(),
            streams: BrokerStreams::default(),
            elsewhere: Elsewhere::default(),
            has_sessions: AtomicBool::new(false),
            retained: TopicTree::new(),
            retained_memory: RetainedMemory::default(),
            client_memory: ClientMemory::default(),
            sys: TopicTree::new(),
            retained_gate: Mutex::default(),
            control: FromControl::new(name),
            quota: Quota::default(),
            incidents: Incidents::default(),
            counters: (0..cores + 3).map(|_| BrokerCounters::default()).collect(),
            meters: (0..cores).map(|_| UsageCounter::default()).collect(),
            latencies: Latencies::default(),
            unstored_bytes: AtomicUsize::new(0),
        }
    }

    /// Returns the retained messages of the moment at which the edit was published: new subscriptions get
    /// these, and every later one as it is published (P6).
    pub(crate) fn edit_subscriptions<R>(
        &self,
        edit: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> (R, Arc<TreeSnapshot<Arc<Message>>>) {
        self.router.edit_published_by(edit, |publish| {
            let _gate = self.retained_gate();
            publish();
            self.retained.snapshot()
        })
    }

    pub(crate) fn queues(&self) -> Option<&Arc<Budget>> {
        self.client_memory.queues.get()
    }

    /// Counts a connection's topic aliases, `after` bytes instead of `before`. Returns the bytes of all connections
    /// beyond the free [`limits::TOPIC_ALIAS_BYTES_FREE`] of each.
    pub(crate) fn change_alias_bytes(&self, before: usize, after: usize) -> u64 {
        let counted = |bytes: usize| bytes.saturating_sub(limits::TOPIC_ALIAS_BYTES_FREE) as u64;
        let change = counted(after).wrapping_sub(counted(before));
        self.client_memory.alias_bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    pub(crate) fn access(&self) -> Option<Arc<LoadedAccess>> {
        self.control.access.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn bans(&self) -> Option<Arc<Bans>> {
        self.control.bans.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_bans(&self, bans: Bans) {
        let bans = (!bans.is_empty()).then(|| Arc::new(bans));
        *self.control.bans.write().unwrap_or_else(PoisonError::into_inner) = bans;
    }

    pub(crate) fn set_records(&self, records: BrokerRecords) {
        self.incidents.set_on(records.has_tenant);
        self.quota.set(records.limits);
        *self.control.access.write().unwrap_or_else(PoisonError::into_inner) = records.access.map(Arc::new);
        self.control.access_changes.store(records.changes, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_over_cap(&self) -> bool {
        self.control.is_over_cap.load(Ordering::Relaxed)
    }

    pub(crate) fn set_over_cap(&self, is_over_cap: bool) {
        self.control.is_over_cap.store(is_over_cap, Ordering::Relaxed);
    }

    pub(crate) fn set_tenant(&self, tenant: &str) {
        *self.control.tenant.write().unwrap_or_else(PoisonError::into_inner) = tenant.into();
    }

    pub(crate) fn tenant(&self) -> Arc<str> {
        self.control.tenant.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn has_changed(&self, changes: u64) -> bool {
        self.control.access_changes.load(Ordering::Relaxed) != changes
    }

    pub(crate) fn forget_changes(&self) {
        self.control.access_changes.store(u64::MAX, Ordering::Relaxed);
    }
}
