//! One tenant's broker: what its clients share, whichever core they are on.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use millrace_access::bans::Bans;
use millrace_mqtt::QoS;
use millrace_router::{Edit, Group, Matched, Receiver, Router, Snapshot, TopicTree, TreeSnapshot};
use millrace_session::{Budget, Message};

use crate::access::Loaded;
use crate::incidents::Incidents;
use crate::limits;
use crate::metering::UsageCounter;
use crate::metrics::BrokerCounters;
use crate::quota::Quota;
use crate::region::{Elsewhere, Targets, is_here};
use crate::store::streams::{Kept, KeptGroup, Streams};

/// What clients are told whose broker has reached a spend cap.
pub(crate) const OVER_CAP: &str = "the spend cap of this broker is reached: its owner can raise it";

/// The broker of a process that serves one machine.
pub(crate) const DEFAULT_BROKER: &str = "default";

/// Whether a broker may have this name: a label of a host name (RFC 1123 section 2.1), in lower case.
#[must_use]
pub fn is_broker_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=63).contains(&text.len()) && text.bytes().all(is_inner);
    fits && !text.starts_with('-') && !text.ends_with('-')
}

/// The brokers that a process has to do with: those that somebody has connected to, or that had something due. A broker that nobody
/// has asked for is rows in the store and nothing else.
pub(crate) struct Brokers {
    known: RwLock<Known>,
    /// About how much memory the filters of all of them take, bytes.
    filter_bytes: Arc<AtomicU64>,
    /// Memory of the messages that sessions of all of them hold.
    queues: Arc<Budget>,
    queue_bytes_per_broker_max: u64,
    /// Brokers whose webhooks may have changed.
    webhooks: Mutex<Vec<u64>>,
}

#[derive(Default)]
struct Known {
    by_name: HashMap<Box<str>, Arc<Broker>, foldhash::fast::RandomState>,
    by_id: HashMap<u64, Arc<Broker>, foldhash::fast::RandomState>,
}

impl Brokers {
    /// None. `queue_bytes_max` and `queue_bytes_per_broker_max` bound the messages that their sessions hold in memory.
    pub(crate) fn new(queue_bytes_max: u64, queue_bytes_per_broker_max: u64) -> Self {
        Self {
            known: RwLock::default(),
            filter_bytes: Arc::default(),
            queues: Arc::new(Budget::new(queue_bytes_max, None)),
            queue_bytes_per_broker_max,
            webhooks: Mutex::default(),
        }
    }

    /// About how much memory the filters of all brokers take, bytes.
    pub(crate) fn filter_bytes(&self) -> u64 {
        self.filter_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Broker>> {
        self.read().by_name.get(name).cloned()
    }

    pub(crate) fn by_id(&self, id: u64) -> Option<Arc<Broker>> {
        self.read().by_id.get(&id).cloned()
    }

    /// All, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Broker>> {
        let mut all: Vec<_> = self.read().by_name.values().cloned().collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    pub(crate) fn insert(&self, broker: &Arc<Broker>) {
        broker.router.count_in(&self.filter_bytes);
        broker.queues.get_or_init(|| {
            Arc::new(Budget::new(self.queue_bytes_per_broker_max, Some(self.queues.clone())))
        });
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.by_name.insert(broker.name.clone(), broker.clone());
        known.by_id.insert(broker.id, broker.clone());
    }

    /// Webhooks of a broker may have changed.
    pub(crate) fn webhooks_changed(&self, id: u64) {
        self.webhooks.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    pub(crate) fn take_webhooks_changed(&self) -> Vec<u64> {
        std::mem::take(&mut self.webhooks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One tenant's broker. Sessions and connections hold it; nothing of it is reachable from another broker.
pub(crate) struct Broker {
    /// Its number in the store.
    pub(crate) id: u64,
    pub(crate) name: Box<str>,
    pub(crate) router: Router,
    /// The streams of the store, by the filters of persistent sessions whether they are online or not.
    pub(crate) streams: Streams,
    /// What pods know of each other's filters.
    pub(crate) elsewhere: Elsewhere,
    /// Whether the store may have sessions.
    pub(crate) has_sessions: AtomicBool,
    /// Retained messages by topic. In memory: the store takes this over.
    pub(crate) retained: TopicTree<Arc<Message>>,
    /// About how much memory they take, bytes.
    retained_bytes: AtomicU64,
    /// Bytes of the topics for which its clients have set aliases, beyond the first 4 KiB of each connection.
    alias_bytes: AtomicU64,
    /// Memory of the messages that its sessions hold, from when it is among the brokers of the process.
    queues: OnceLock<Arc<Budget>>,
    /// The `$SYS` topics: read like retained messages, but not the tenant's and not in its limit.
    pub(crate) sys: TopicTree<Arc<Message>>,
    /// Held while a retained message is set and a snapshot of the subscriptions is taken, and while subscriptions are published and
    /// a snapshot of the retained messages is taken: a new subscription gets a message one way or the other, never both, never
    /// neither (P6). Nothing is matched or edited meanwhile, so its holder never takes long.
    retained_gate: Mutex<()>,
    /// How it lets clients in, when it is managed.
    access: RwLock<Option<Arc<Loaded>>>,
    /// Who may not connect; `None`: nobody is banned.
    bans: RwLock<Option<Arc<Bans>>>,
    /// How often that had changed when it was read; [`u64::MAX`] when it is to be read again.
    access_changes: AtomicU64,
    pub(crate) quota: Quota,
    pub(crate) incidents: Incidents,
    /// A spend cap was reached: it takes no new clients and no messages.
    is_over_cap: AtomicBool,
    /// One set a core, then one for the thread that writes to the store and one for the thread that reads.
    pub(crate) counters: Box<[BrokerCounters]>,
    /// What it uses, one a core.
    pub(crate) meters: Box<[UsageCounter]>,
    /// Bytes of its jobs that wait to be stored.
    pub(crate) unstored_bytes: AtomicUsize,
}

impl Broker {
    pub(crate) fn new(id: u64, name: &str, cores: usize) -> Self {
        Self {
            id,
            name: name.into(),
            router: Router::new(),
            streams: Streams::default(),
            elsewhere: Elsewhere::default(),
            has_sessions: AtomicBool::new(false),
            retained: TopicTree::new(),
            retained_bytes: AtomicU64::new(0),
            alias_bytes: AtomicU64::new(0),
            queues: OnceLock::new(),
            sys: TopicTree::new(),
            retained_gate: Mutex::default(),
            access: RwLock::default(),
            bans: RwLock::default(),
            access_changes: AtomicU64::new(0),
            quota: Quota::default(),
            incidents: Incidents::default(),
            is_over_cap: AtomicBool::new(false),
            counters: (0..cores + 2).map(|_| BrokerCounters::default()).collect(),
            meters: (0..cores).map(|_| UsageCounter::default()).collect(),
            unstored_bytes: AtomicUsize::new(0),
        }
    }

    /// Makes a message its topic's retained one, or removes that. Returns the subscriptions of that moment: they get the message now,
    /// and later subscriptions get it as a retained one (P6).
    pub(crate) fn retain(&self, message: &Arc<Message>) -> Arc<Snapshot> {
        let _gate = self.retained_gate();
        if message.payload().is_empty() {
            //= [MQTT-3.3.1-6] [MQTT-3.3.1-7] v5
            //= [MQTT-3.3.1-10] [MQTT-3.3.1-11] v3.1.1
            self.remove_from_retained(message.topic());
        } else {
            self.retained_bytes.fetch_add(retained_size(message), Ordering::Relaxed);
            //= [MQTT-3.3.1-5] v5 v3.1.1
            if let Some(old) = self.retained.insert(message.topic(), message.clone()) {
                self.retained_bytes.fetch_sub(retained_size(&old), Ordering::Relaxed);
            }
        }
        self.router.snapshot()
    }

    /// Removes the retained message of a topic; whether there was one.
    pub(crate) fn remove_retained(&self, topic: &str) -> bool {
        let _gate = self.retained_gate();
        self.remove_from_retained(topic)
    }

    fn remove_from_retained(&self, topic: &str) -> bool {
        let old = self.retained.remove(topic);
        if let Some(old) = &old {
            self.retained_bytes.fetch_sub(retained_size(old), Ordering::Relaxed);
        }
        old.is_some()
    }

    /// Edits the subscriptions. Returns the retained messages of the moment at which the edit was published: new subscriptions get
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

    /// About how much memory the retained messages take, bytes.
    pub(crate) fn retained_bytes(&self) -> u64 {
        self.retained_bytes.load(Ordering::Relaxed)
    }

    /// Memory of the messages that its sessions hold.
    pub(crate) fn queues(&self) -> Option<&Arc<Budget>> {
        self.queues.get()
    }

    /// Notes that a connection has topic aliases of `after` bytes instead of `before`. Returns the bytes of all connections.
    /// The first [`limits::TOPIC_ALIAS_BYTES_FREE`] of each connection do not count.
    pub(crate) fn change_alias_bytes(&self, before: usize, after: usize) -> u64 {
        let counted = |bytes: usize| bytes.saturating_sub(limits::TOPIC_ALIAS_BYTES_FREE) as u64;
        let change = counted(after).wrapping_sub(counted(before));
        self.alias_bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    /// How it lets clients in; `None` when it is not managed.
    pub(crate) fn access(&self) -> Option<Arc<Loaded>> {
        self.access.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn bans(&self) -> Option<Arc<Bans>> {
        self.bans.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_bans(&self, bans: Bans) {
        let bans = (!bans.is_empty()).then(|| Arc::new(bans));
        *self.bans.write().unwrap_or_else(PoisonError::into_inner) = bans;
    }

    /// What was read of that, when it had changed so often.
    pub(crate) fn set_access(&self, access: Option<Loaded>, changes: u64) {
        let limits = access.as_ref().map(|loaded| loaded.access.access().limits_in_force());
        self.incidents.set_on(limits.is_some());
        self.quota.set(limits.unwrap_or_default());
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = access.map(Arc::new);
        self.access_changes.store(changes, Ordering::Relaxed);
    }

    /// Whether a spend cap was reached.
    #[inline]
    pub(crate) fn is_over_cap(&self) -> bool {
        self.is_over_cap.load(Ordering::Relaxed)
    }

    pub(crate) fn set_over_cap(&self, is_over_cap: bool) {
        self.is_over_cap.store(is_over_cap, Ordering::Relaxed);
    }

    pub(crate) fn has_changed(&self, changes: u64) -> bool {
        self.access_changes.load(Ordering::Relaxed) != changes
    }

    /// It is to be read again.
    pub(crate) fn forget_changes(&self) {
        self.access_changes.store(u64::MAX, Ordering::Relaxed);
    }

    fn retained_gate(&self) -> MutexGuard<'_, ()> {
        self.retained_gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who gets what is published to one topic: a match of the router, kept by each core until a subscription changes.
pub(crate) struct Routes {
    pub(crate) broker: Arc<Broker>,
    pub(crate) topic: Arc<str>,
    /// The generation of the router up to which this is known to be valid.
    generation: AtomicU64,
    pub(crate) matched: Matched,
    /// The topic matches more filters than [`limits::MATCH`] allows: nobody may publish to it.
    pub(crate) is_over_limit: bool,
    /// The streams that keep it for persistent sessions.
    pub(crate) kept: Kept,
    /// The cores that have receivers, with their place in `matched.receivers`.
    pub(crate) cores: Box<[(u16, Range<usize>)]>,
    /// For each of `cores`, how its receivers fared with the last messages.
    pace: Box<[Pace]>,
    /// Other pods that may have receivers.
    pub(crate) copies: Targets,
    /// Other pods that may have sessions, or members of shared subscriptions, that read it from the store.
    pub(crate) nudges: Targets,
    /// Nodes that the matches visited to find all this.
    pub(crate) visited: usize,
}

/// Bytes that a node of the tree of retained messages takes: one for each level of a topic.
const NODE_BYTES: usize = 100;

/// About how much memory a retained message takes, bytes.
pub(crate) fn retained_size(message: &Message) -> u64 {
    let levels = message.topic().bytes().filter(|byte| *byte == b'/').count() + 1;
    (size_of::<Message>() + message.size() + levels * NODE_BYTES) as u64
}

/// How the receivers of one core fared with the last messages of a topic.
struct Pace {
    moving: AtomicUsize,
    behind: AtomicUsize,
}

impl Pace {
    fn new(receivers: usize) -> Self {
        Self { moving: AtomicUsize::new(receivers), behind: AtomicUsize::new(0) }
    }
}

impl Routes {
    /// What is found now.
    pub(crate) fn new(broker: Arc<Broker>, topic: Arc<str>) -> Self {
        let kept = broker.streams.matches(&topic);
        let snapshot = broker.router.snapshot();
        Self::found(broker, topic, kept, &snapshot)
    }

    /// What `snapshot` has found.
    pub(crate) fn at(broker: Arc<Broker>, topic: Arc<str>, snapshot: &Snapshot) -> Self {
        let kept = broker.streams.matches(&topic);
        Self::found(broker, topic, kept, snapshot)
    }

    fn found(broker: Arc<Broker>, topic: Arc<str>, kept: Kept, snapshot: &Snapshot) -> Self {
        let (generation, mut visited) = (AtomicU64::new(snapshot.generation()), kept.visited);
        let matched = snapshot.matches_counted(&topic, limits::MATCH, &mut visited);
        let is_over_limit = matched.is_none() || kept.is_over_limit;
        let matched = matched.unwrap_or_default();
        let mut cores: Vec<(u16, Range<usize>)> = Vec::new();
        for (index, receiver) in matched.receivers.iter().enumerate() {
            match cores.last_mut() {
                Some((core, range)) if *core == receiver.target.core => range.end = index + 1,
                _ => cores.push((receiver.target.core, index..index + 1)),
            }
        }
        let (copies, nudges) = Default::default();
        let cores = cores.into_boxed_slice();
        let pace = cores.iter().map(|(_, range)| Pace::new(range.len())).collect();
        Self { broker, topic, generation, matched, is_over_limit, kept, cores, pace, copies, nudges, visited }
    }

    /// The shared subscriptions that get a message without the store.
    pub(crate) fn live_groups(&self, message: &Message) -> impl Iterator<Item = &Arc<Group>> {
        let is_kept = message.qos() > QoS::AtMostOnce;
        let groups = self.matched.groups.iter();
        groups.filter(move |group| !is_kept || self.kept.group(group.name(), group.filter()).is_none())
    }

    /// A shared subscription that the store keeps for, if it has a member that is there, on this pod.
    pub(crate) fn online_group(&self, kept: &KeptGroup) -> Option<&Arc<Group>> {
        let is_it = |group: &&Arc<Group>| {
            group.name() == &*kept.name && group.filter() == &*kept.filter && group.has_online(is_here)
        };
        self.matched.groups.iter().find(is_it)
    }

    /// Notes how many receivers of a core take messages now, and how many of them are behind.
    pub(crate) fn note_pace(&self, core: u16, moving: usize, behind: usize) {
        let found = self.cores.iter().position(|(of, _)| *of == core);
        if let Some(pace) = found.and_then(|index| self.pace.get(index)) {
            pace.moving.store(moving, Ordering::Relaxed);
            pace.behind.store(behind, Ordering::Relaxed);
        }
    }

    /// Whether most of the receivers that take messages, on all cores, are behind.
    pub(crate) fn are_most_behind(&self) -> bool {
        let sum = |of: fn(&Pace) -> &AtomicUsize| -> usize {
            self.pace.iter().map(|pace| of(pace).load(Ordering::Relaxed)).sum()
        };
        sum(|pace| &pace.behind) * 2 > sum(|pace| &pace.moving)
    }

    /// About how much memory this takes, bytes.
    pub(crate) fn size(&self) -> usize {
        let receivers = size_of_val(&*self.matched.receivers);
        let identifiers: usize = (self.matched.receivers.iter())
            .filter(|receiver| receiver.identifiers.spilled())
            .map(|receiver| size_of_val(&*receiver.identifiers))
            .sum();
        let groups = size_of_val(&*self.matched.groups) + size_of_val(&*self.kept.groups);
        let streams = size_of_val(&*self.kept.streams) * 2;
        size_of::<Self>() + self.topic.len() + receivers + identifiers + groups + streams
    }

    /// Whether this is what generation `now` of the router would find.
    #[inline]
    pub(crate) fn is_of(&self, now: u64) -> bool {
        self.generation.load(Ordering::Relaxed) == now
            && self.kept.generation == self.broker.streams.generation()
    }

    /// The same, where a subscription has changed: whether none of the changed ones matches the topic.
    pub(crate) fn is_still_valid_for(&self, now: u64) -> bool {
        let matched = self.generation.load(Ordering::Relaxed);
        // Filters that do not match count for the limit, too.
        let is_valid = !self.is_over_limit
            && self.kept.generation == self.broker.streams.generation()
            && self.broker.router.still_valid(&self.topic, matched, now);
        if is_valid {
            self.generation.store(now, Ordering::Relaxed);
        }
        is_valid
    }

    /// Whether nobody gets it, now or later.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.streams.is_empty() && self.matched.receivers.is_empty() && self.matched.groups.is_empty()
    }

    /// Cores with sessions that keep messages of this topic.
    pub(crate) fn cores_that_keep(&self) -> impl Iterator<Item = u16> {
        let keeps = |range: &Range<usize>| {
            self.matched.receivers[range.clone()].iter().any(|receiver| receiver.kept > 0)
        };
        self.cores.iter().filter(move |(_, range)| keeps(range)).map(|(core, _)| *core)
    }

    /// The receivers on one core.
    pub(crate) fn receivers(&self, core: u16) -> &[Receiver] {
        self.cores
            .iter()
            .find(|(of, _)| *of == core)
            .map_or(&[], |(_, range)| &self.matched.receivers[range.clone()])
    }
}
