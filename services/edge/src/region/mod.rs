//! This process among the pods of a region: what pods tell each other over the fabric.
//!
//! A message goes to the pods whose clients may want it, at once, and each finds its own receivers. For sessions that the
//! store keeps, a pod is told that something was committed, and reads it: so what the fabric loses comes later, never not at all.
//! A shared subscription has the members of other pods in the router of each pod, as targets of the core [`ELSEWHERE`].

mod clients;
mod digests;
mod heard;
mod inbound;
mod joins;
mod keeper;
mod members;
mod opening;
mod own;
mod peers;
mod targets;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use millrace_fabric::{Fabric, Health, PodId, Settings, SettingsError, To};
use millrace_router::{Group, Receiver};
use millrace_session::{Message, Trace};

use crate::broker::{Broker, Brokers, Routes};
use crate::clock::Clock;
use crate::core::Committed;
use crate::core::routes::RouteCache;
use crate::limits::Limits;
use crate::mailbox::{Mail, Mailbox};
use crate::metrics::Metric;
use crate::store::{Notices, record};
use crate::traces::Tracer;
use clients::Inquiries;
pub(crate) use clients::Tell;
use digests::Digests;
pub(crate) use digests::Elsewhere;
use heard::Unheard;
use inbound::{Coming, Ear};
use joins::Joins;
use members::Members;
pub(crate) use members::{ELSEWHERE, is_here};
pub(crate) use targets::Targets;
use wire::Note;

/// How long a start waits for the other pods to know which brokers this one has.
const JOIN_WAIT: Duration = Duration::from_secs(1);

/// Committed messages up to this size are sent to pods whose sessions keep them; these read longer ones from the store.
const COMMITTED_BYTES_MAX: usize = 4096;

/// This process among the pods of a region.
pub(crate) struct Region {
    /// Set once, when it is started.
    fabric: OnceLock<Fabric>,
    brokers: Arc<Brokers>,
    mailboxes: Arc<[Mailbox]>,
    clock: Clock,
    mailbox_bytes_max: usize,
    joins: Joins,
    digests: Digests,
    awaiting: Unheard,
    inquiries: Inquiries,
    /// For what is done later on other threads.
    me: Weak<Self>,
    members: Mutex<Members>,
    /// Of the fabric's thread.
    routes: Mutex<RouteCache>,
    /// Listener for sessions that other pods want.
    notices: OnceLock<Weak<dyn Notices>>,
    /// Some pod holds a lease and has no connection to this pod.
    unheard: AtomicBool,
    dropped: AtomicU64,
    received: AtomicU64,
    needless: AtomicU64,
    /// Follows messages.
    tracer: Option<Arc<Tracer>>,
    /// Of the fabric's thread: messages that other pods follow and that have not come yet.
    coming: Mutex<Coming>,
}

impl Region {
    /// Starts the fabric. NATS need not be there.
    pub(crate) fn start(
        settings: Settings,
        clock: Clock,
        brokers: Arc<Brokers>,
        mailboxes: Arc<[Mailbox]>,
        limits: &Limits,
        tracer: Option<Arc<Tracer>>,
    ) -> Result<Arc<Self>, SettingsError> {
        let region = Arc::new_cyclic(|me| Self {
            fabric: OnceLock::new(),
            brokers,
            mailboxes,
            clock,
            mailbox_bytes_max: limits.mailbox_bytes_max as usize,
            joins: Joins::default(),
            digests: Digests::default(),
            awaiting: Unheard::default(),
            inquiries: Inquiries::default(),
            me: me.clone(),
            members: Mutex::default(),
            routes: Mutex::default(),
            notices: OnceLock::new(),
            unheard: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            received: AtomicU64::new(0),
            needless: AtomicU64::new(0),
            tracer,
            coming: Mutex::default(),
        });
        let fabric = Fabric::start(settings, Arc::new(Ear(Arc::downgrade(&region))))?;
        // Set nowhere else.
        let _ = region.fabric.set(fabric);
        keeper::start(&region, &region.digests.queue).map_err(SettingsError::Thread)?;
        Ok(region)
    }

    /// Sets the listener for sessions that other pods want.
    pub(crate) fn tell_of_notices(&self, notices: Weak<dyn Notices>) {
        // Set once, by the store.
        let _ = self.notices.set(notices);
    }

    /// Messages to a broker come here from now on. Its clients wait for that, see [`Region::when_joined`].
    pub(crate) fn join(&self, broker: &Broker) {
        let Some(fabric) = self.fabric.get() else { return };
        self.open(broker.id);
        let at = To::At { pod: fabric.pod(), broker: broker.id };
        if !(fabric.join(To::Broker(broker.id)) && fabric.join(at)) {
            tracing::error!(
                broker = &*broker.name,
                "too many brokers: live messages of other pods do not come to this one"
            );
            self.joins.done(broker.id, &self.mailboxes);
        }
    }

    /// Tells a core that a broker was opened, as soon as messages of other pods come to it, or NATS is not there.
    pub(crate) fn when_joined(&self, broker: &Broker, core: u16, name: Arc<str>) {
        self.joins.when(broker.id, core, name, &self.mailboxes);
    }

    /// Whether that is so.
    pub(crate) fn is_joined(&self, broker: &Broker) -> bool {
        self.joins.is_done(broker.id)
    }

    /// Waits for a moment until these pods are heard. Those that are not when a broker is opened are not asked what they want of it.
    pub(crate) fn wait_for_pods(&self, names: &[Bytes]) {
        let are_there = || names.iter().all(|name| self.members().id_of(name).is_some());
        self.joins.wait_for_pods(JOIN_WAIT, are_there);
    }

    /// Waits for a moment until messages of other pods come to these brokers.
    pub(crate) fn wait_for_joins(&self, brokers: &[Arc<Broker>]) {
        let ids: Vec<_> = brokers.iter().map(|broker| broker.id).collect();
        self.joins.wait(&ids, JOIN_WAIT);
    }

    /// Hands a message to the pods that may have receivers of it.
    pub(crate) fn publish(&self, routes: &Routes, message: &Message) {
        let Some(fabric) = self.fabric.get() else { return };
        let Broker { id, elsewhere, .. } = &*routes.broker;
        let pods = match message.retain() {
            // Every pod has what is retained in memory.
            true => Some(elsewhere.peers.all().into()),
            false => routes.copies.get(&elsewhere.peers, &routes.topic, false),
        };
        let Some(pods) = pods.filter(|pods: &Arc<[PodId]>| !pods.is_empty()) else { return };
        // No Local is of no use here: the publisher is on this pod.
        let entry = record::encode_entry(message, 0, &self.clock);
        let note = match message.place().filter(|_| message.retain()) {
            Some(place) => Note::Retained { place, entry: &entry },
            None => Note::Message(&entry),
        };
        if let Some(traced) = self.traced(message, &entry) {
            traced.send_at(fabric, *id, &pods);
        }
        note.send_at(fabric, *id, &pods);
    }

    /// The trace of a sampled message, which is sent before the message to the same pods. Pods of older builds ignore it.
    fn traced(&self, message: &Message, entry: &[u8]) -> Option<Note<'static>> {
        let Trace { trace_id, span_id, .. } = *message.trace()?;
        let sent_ns = self.clock.unix_ns(self.clock.micros());
        Some(Note::Traced { check: wire::check(entry), trace_id, span_id, sent_ns })
    }

    /// As [`Region::publish`], for a run.
    pub(crate) fn publish_run(&self, routes: &Routes, bytes: &[u8], is_v5: bool, count: usize) {
        let Some(fabric) = self.fabric.get() else { return };
        let Broker { id, elsewhere, .. } = &*routes.broker;
        let Some(pods) = routes.copies.get(&elsewhere.peers, &routes.topic, false) else { return };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Note::Run { is_v5, count, topic: &routes.topic, bytes }.send_at(fabric, *id, &pods);
    }

    /// A message was committed: sessions of other pods get it, or read it.
    pub(crate) fn committed(&self, committed: &Committed) {
        let Committed { routes, message, publisher, sender } = committed;
        let Some(fabric) = self.fabric.get() else { return };
        let Broker { id, elsewhere, .. } = &*routes.broker;
        let Some(pods) = routes.nudges.get(&elsewhere.peers, &routes.topic, true) else { return };
        match message.place().filter(|_| message.size() <= COMMITTED_BYTES_MAX) {
            Some(place) => {
                let entry = record::encode_entry(message, *publisher, &self.clock);
                if let Some(traced) = self.traced(message, &entry) {
                    traced.send_at(fabric, *id, &pods);
                }
                Note::Committed { place, sender: *sender, entry: &entry }.send_at(fabric, *id, &pods);
            }
            None => Note::Grown(&routes.topic).send_at(fabric, *id, &pods),
        }
    }

    /// A shared subscription has messages that nobody has.
    pub(crate) fn waiting(&self, broker: u64, stream: u64) {
        if let Some(fabric) = self.fabric.get().filter(|fabric| !fabric.unwanted(To::Broker(broker), 1)) {
            Note::Waiting { stream }.send(fabric, To::Broker(broker));
        }
    }

    /// Hands a message to a member of a shared subscription on another pod.
    pub(crate) fn share(&self, broker: &Broker, group: &Group, receiver: &Receiver, message: &Message) {
        self.share_again(broker, group, receiver, message, 0);
    }

    fn share_again(&self, broker: &Broker, group: &Group, receiver: &Receiver, message: &Message, hops: u8) {
        let Some(pod) = self.members().pod(receiver.target) else { return };
        let entry = record::encode_entry(message, 0, &self.clock);
        let (name, filter) = (group.name(), group.filter());
        let note = Note::Shared { broker: broker.id, hops, name, filter, entry: &entry };
        if let Some(fabric) = self.fabric.get() {
            if let Some(traced) = self.traced(message, &entry) {
                traced.send(fabric, To::Pod(pod));
            }
            note.send(fabric, To::Pod(pod));
        }
    }

    /// A member of a shared subscription has come to this pod, or gone.
    pub(crate) fn members_changed(&self, broker: &Broker, name: &str, filter: &str) {
        let Some(fabric) = self.fabric.get() else { return };
        // Under the lock: what is sent last is what is true.
        let mut members = self.members();
        let count = members::count_here(broker, name, filter);
        if members.set_own(broker.id, name, filter, count) {
            Note::Members { broker: broker.id, name, filter, count }.send(fabric, To::Broker(broker.id));
        }
    }

    /// A pod has a session that is wanted here; it was told so in the store.
    pub(crate) fn notify(&self, pod: &[u8]) {
        let Some(id) = self.members().id_of(pod) else { return };
        if let Some(fabric) = self.fabric.get() {
            Note::Notices.send(fabric, To::Pod(id));
        }
    }

    /// Records which pods hold leases. Notices of a pod without a connection to this pod do not arrive.
    pub(crate) fn leases<'n>(&self, names: impl Iterator<Item = &'n [u8]>) {
        let members = self.members();
        let unheard = names.filter(|name| members.id_of(name).is_none()).count() > 0;
        self.unheard.store(unheard, Ordering::Relaxed);
    }

    /// Whether something may be said that does not come here, and nobody will tell.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.unheard.load(Ordering::Relaxed)
            || self.digests.are_others_behind()
            || !self.fabric.get().is_some_and(Fabric::is_connected)
    }

    pub(crate) fn health(&self) -> Option<Health> {
        self.fabric.get().map(Fabric::health)
    }

    /// The fabric's counters, and those of this module; those of one name stand together.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = (Metric, u64)> {
        let own = [
            (
                "millrace_region_messages_dropped_total",
                "Messages of other pods that were dropped because an event loop was behind.",
                &self.dropped,
            ),
            (
                "millrace_region_messages_received_total",
                "Messages of other pods that came live, without the retained ones, which are for every pod.",
                &self.received,
            ),
            (
                "millrace_region_messages_needless_total",
                "Messages of other pods that no client of this pod had subscribed to.",
                &self.needless,
            ),
        ]
        .map(|(name, help, count)| {
            (Metric { kind: "counter", name, labels: "", help }, count.load(Ordering::Relaxed))
        });
        let fabric = self.fabric.get().into_iter().flat_map(|fabric| fabric.counters().metrics());
        fabric.map(of_fabric).chain(own).chain(self.digests.metrics())
    }

    /// Whether all other pods have heard what this one told under the number `told`.
    pub(crate) fn have_heard(&self, broker: &Broker, told: u64) -> bool {
        broker.elsewhere.peers.have_heard(told)
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sessions of this pod look for what may have been committed without a word.
    fn look_around(&self, broker: Option<u64>) {
        for mailbox in &*self.mailboxes {
            mailbox.deliver(&mut vec![Mail::LookAround(broker)], 0);
        }
    }

    fn look_for_notices(&self) {
        self.with_notices(|notices| notices.look());
    }

    fn with_notices(&self, tell: impl FnOnce(&dyn Notices)) {
        if let Some(notices) = self.notices.get().and_then(Weak::upgrade) {
            tell(&*notices);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.digests.queue.stop();
    }
}

fn of_fabric((metric, value): (millrace_fabric::Metric, u64)) -> (Metric, u64) {
    let millrace_fabric::Metric { kind, name, labels, help } = metric;
    (Metric { kind, name, labels, help }, value)
}
