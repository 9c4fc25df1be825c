//! This pod among the pods of a region: what they exchange over the fabric (NATS).
//!
//! A pod sends each message to the pods that may have subscribers to it, by the [`digests`] of filters that pods announce, and
//! each of these pods finds its own receivers. For persistent sessions a pod only announces that a message is committed; the
//! other pods then read it from the store. So a lost notice delays such a message, and no message is lost. Members of a shared
//! subscription on other pods are in this pod's router as targets of the pseudo-core [`crate::elsewhere::ELSEWHERE`].

mod clients;
mod coming;
mod confirmations;
mod core_mail;
mod delays;
mod digest_thread;
mod digests;
mod inbound;
mod joins;
mod matching;
mod members;
mod notices;
mod opening;
mod own_members;
mod their_members;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use millrace_fabric::{Fabric, FabricSettings, Health, PodId, SettingsError, To};
use millrace_router::{Receiver, ShareGroup};
use millrace_session::{Message, Trace};

use crate::broker::{Broker, Brokers};
use crate::clock::Clock;
use crate::deliveries::CommittedMessage;
use crate::encoding::record;
use crate::limits::{EdgeLimits, FABRIC_MATCH_WORK_MAX};
use crate::mailbox::{Mail, Mailbox};
use crate::metrics::Metric;
use crate::routes::Routes;
use crate::traces::Tracer;
pub(crate) use clients::AnswerSink;
use clients::Inquiries;
use coming::Coming;
use confirmations::AwaitingMail;
use delays::Delays;
use digests::Digests;
use inbound::FabricSink;
use joins::RegionJoins;
use matching::Matching;
use members::Members;
pub(crate) use notices::Notices;
use wire::PodNotice;

/// How long a starting pod waits until the other pods know its brokers.
const JOIN_WAIT: Duration = Duration::from_secs(1);

/// Largest committed message that is sent along with its notice; the receiving pods read a larger one from the store.
const COMMITTED_BYTES_MAX: usize = 4096;

pub(crate) struct PodNetwork {
    fabric: OnceLock<Fabric>,
    brokers: Arc<Brokers>,
    mailboxes: Arc<[Mailbox]>,
    clock: Clock,
    mailbox_bytes_max: usize,
    joins: RegionJoins,
    digests: Digests,
    awaiting_confirmation: AwaitingMail,
    inquiries: Inquiries,
    /// For callbacks that run later on other threads.
    me: Weak<Self>,
    members: Mutex<Members>,
    matching: Mutex<Matching>,
    /// The store's listener: it looks for notices that other pods have left in the store.
    notices: OnceLock<Weak<dyn Notices>>,
    /// Whether a pod with a valid lease has no connection to this pod.
    is_pod_missing: AtomicBool,
    dropped: AtomicU64,
    received: AtomicU64,
    needless: AtomicU64,
    delays: Delays,
    tracer: Option<Arc<Tracer>>,
    /// Used by the fabric's thread only: traces whose message has not arrived yet.
    coming: Mutex<Coming>,
}

impl PodNetwork {
    /// Starts the fabric; it connects to NATS in the background.
    pub(crate) fn start(
        settings: FabricSettings,
        clock: Clock,
        brokers: Arc<Brokers>,
        mailboxes: Arc<[Mailbox]>,
        limits: &EdgeLimits,
        tracer: Option<Arc<Tracer>>,
    ) -> Result<Arc<Self>, SettingsError> {
        let region = Arc::new_cyclic(|me| Self {
            fabric: OnceLock::new(),
            brokers,
            mailboxes,
            clock,
            mailbox_bytes_max: limits.mailbox_bytes_max as usize,
            joins: RegionJoins::default(),
            digests: Digests::default(),
            awaiting_confirmation: AwaitingMail::default(),
            inquiries: Inquiries::default(),
            me: me.clone(),
            members: Mutex::default(),
            matching: Mutex::new(Matching::new(FABRIC_MATCH_WORK_MAX)),
            notices: OnceLock::new(),
            is_pod_missing: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            received: AtomicU64::new(0),
            needless: AtomicU64::new(0),
            delays: Delays::default(),
            tracer,
            coming: Mutex::default(),
        });
        let fabric = Fabric::start(settings, Arc::new(FabricSink(Arc::downgrade(&region))))?;
        // Cannot fail: only this line sets it.
        let _ = region.fabric.set(fabric);
        digest_thread::start(&region, &region.digests.queue).map_err(SettingsError::Thread)?;
        Ok(region)
    }

    pub(crate) fn set_notices(&self, notices: Weak<dyn Notices>) {
        // Cannot fail: the store calls it once.
        let _ = self.notices.set(notices);
    }

    /// Subscribes to the messages that other pods send for a broker. The broker's clients wait for it, see
    /// [`PodNetwork::when_joined`].
    pub(crate) fn join(&self, broker: &Broker) {
        let Some(fabric) = self.fabric.get() else { return };
        self.open(broker.id);
        let at = To::BrokerOnPod { pod: fabric.pod(), broker: broker.id };
        if !(fabric.join(To::Broker(broker.id)) && fabric.join(at)) {
            tracing::error!(
                broker = &*broker.name,
                "too many brokers: live messages of other pods do not come to this one"
            );
            self.joins.done(broker.id, &self.mailboxes);
        }
    }

    /// Posts [`Mail::Opened`] to a core once other pods' messages for the broker arrive, or if NATS is not connected.
    pub(crate) fn when_joined(&self, broker: &Broker, core: u16, name: Arc<str>) {
        self.joins.when(broker.id, core, name, &self.mailboxes);
    }

    pub(crate) fn is_joined(&self, broker: &Broker) -> bool {
        self.joins.is_done(broker.id)
    }

    /// Waits up to [`JOIN_WAIT`] until these pods are connected. A pod that connects later is not asked for its filters
    /// when a broker opens.
    pub(crate) fn wait_for_pods(&self, names: &[Bytes]) {
        let are_there = || names.iter().all(|name| self.members().id_of(name).is_some());
        self.joins.wait_for_pods(JOIN_WAIT, are_there);
    }

    pub(crate) fn wait_for_joins(&self, brokers: &[Arc<Broker>]) {
        let ids: Vec<_> = brokers.iter().map(|broker| broker.id).collect();
        self.joins.wait(&ids, JOIN_WAIT);
    }

    pub(crate) fn publish(&self, routes: &Routes, message: &Message) {
        let Some(fabric) = self.fabric.get() else { return };
        let Broker { id, elsewhere, .. } = &*routes.broker;
        let pods = match message.is_retained() {
            // Every pod with the broker has all retained messages in memory.
            true => Some(elsewhere.peers.all().into()),
            false => routes.copy_pods(),
        };
        let Some(pods) = pods.filter(|pods: &Arc<[PodId]>| !pods.is_empty()) else { return };
        // Most messages name no publisher: No Local cannot apply on another pod while the publisher is connected to this one.
        let entry = record::encode_entry(message, message.publisher(), &self.clock);
        let note = match message.position().filter(|_| message.is_retained()) {
            Some(position) => PodNotice::Retained { position, entry: &entry },
            None => PodNotice::Message(&entry),
        };
        self.measure_delay(fabric, *id, &pods);
        if let Some(traced) = self.traced(message, &entry) {
            traced.send_at(fabric, *id, &pods);
        }
        note.send_at(fabric, *id, &pods);
    }

    /// A retained message was removed, and no subscriber is to learn of it.
    pub(crate) fn cleared(&self, broker: &Broker, removal: &Message) {
        if let (Some(fabric), Some(at)) = (self.fabric.get(), removal.position()) {
            let pods = broker.elsewhere.peers.all();
            PodNotice::Cleared { at, topic: removal.topic() }.send_at(fabric, broker.id, &pods);
        }
    }

    /// The trace precedes its message on the same path; pods of older builds ignore it.
    fn traced(&self, message: &Message, entry: &[u8]) -> Option<PodNotice<'static>> {
        let Trace { trace_id, span_id, .. } = *message.trace()?;
        let sent_ns = self.clock.unix_ns(self.clock.micros());
        Some(PodNotice::Traced { check: wire::check(entry), trace_id, span_id, sent_ns })
    }

    pub(crate) fn publish_run(&self, routes: &Routes, bytes: &[u8], is_v5: bool, count: usize) {
        let (Some(fabric), Some(pods)) = (self.fabric.get(), routes.copy_pods()) else { return };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.measure_delay(fabric, routes.broker.id, &pods);
        PodNotice::Run { is_v5, count, topic: &routes.topic, bytes }.send_at(fabric, routes.broker.id, &pods);
    }

    /// Announces a committed message to the pods with persistent sessions for it. They deliver it from the notice, or
    /// read it from the store.
    pub(crate) fn committed(&self, committed: &CommittedMessage) {
        let CommittedMessage { routes, message, publisher, sender } = committed;
        let (Some(fabric), Some(pods)) = (self.fabric.get(), routes.notified_pods()) else { return };
        let id = routes.broker.id;
        self.measure_delay(fabric, id, &pods);
        match message.position().filter(|_| message.size() <= COMMITTED_BYTES_MAX) {
            Some(position) => {
                let entry = record::encode_entry(message, *publisher, &self.clock);
                if let Some(traced) = self.traced(message, &entry) {
                    traced.send_at(fabric, id, &pods);
                }
                PodNotice::Committed { position, sender: *sender, entry: &entry }.send_at(fabric, id, &pods);
            }
            None => PodNotice::Grown(&routes.topic).send_at(fabric, id, &pods),
        }
    }

    pub(crate) fn announce_unclaimed(&self, broker: u64, stream: u64) {
        if let Some(fabric) = self.fabric.get().filter(|fabric| !fabric.unwanted(To::Broker(broker), 1)) {
            PodNotice::Unclaimed { stream }.send(fabric, To::Broker(broker));
        }
    }

    pub(crate) fn share(&self, broker: &Broker, group: &ShareGroup, receiver: &Receiver, message: &Message) {
        self.share_again(broker, group, receiver, message, 0);
    }

    fn share_again(
        &self,
        broker: &Broker,
        group: &ShareGroup,
        receiver: &Receiver,
        message: &Message,
        hops: u8,
    ) {
        let Some(pod) = self.members().pod(receiver.target) else { return };
        let entry = record::encode_entry(message, record::NO_PUBLISHER, &self.clock);
        let (name, filter) = (group.name(), group.filter());
        let note = PodNotice::Shared { broker: broker.id, hops, name, filter, entry: &entry };
        if let Some(fabric) = self.fabric.get() {
            if let Some(traced) = self.traced(message, &entry) {
                traced.send_at(fabric, broker.id, &[pod]);
            }
            note.send_at(fabric, broker.id, &[pod]);
        }
    }

    /// Asks a pod to read its notices in the store: this pod wants to take over one of its sessions.
    pub(crate) fn notify(&self, pod: &[u8]) {
        let Some(id) = self.members().id_of(pod) else { return };
        if let Some(fabric) = self.fabric.get() {
            PodNotice::Notices.send(fabric, To::Pod(id));
        }
    }

    /// Notices of a pod without a connection to this pod do not arrive.
    pub(crate) fn note_leases<'n>(&self, names: impl Iterator<Item = &'n [u8]>) {
        let members = self.members();
        let is_pod_missing = names.filter(|name| members.id_of(name).is_none()).count() > 0;
        self.is_pod_missing.store(is_pod_missing, Ordering::Relaxed);
    }

    /// Whether a notice may be missing without a sign of it: sessions then have to poll the store.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_pod_missing.load(Ordering::Relaxed) || self.digests.are_others_behind() || self.is_alone()
    }

    pub(crate) fn is_alone(&self) -> bool {
        !self.fabric.get().is_some_and(Fabric::is_connected)
    }

    pub(crate) fn health(&self) -> Option<Health> {
        self.fabric.get().map(Fabric::health)
    }

    pub(crate) fn metrics(&self) -> impl Iterator<Item = (Metric, u64)> {
        let own = [
            (
                "millrace_region_messages_dropped_total",
                "Messages of other pods that were dropped because an event loop lagged, or because their broker had used up its share of matching topics.",
                &self.dropped,
            ),
            (
                "millrace_region_messages_received_total",
                "Live messages from other pods, without retained messages, which every pod gets.",
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
        fabric.map(of_fabric).chain(own).chain(self.digests.metrics(&self.brokers_with_peers()))
    }

    pub(crate) fn is_confirmed(&self, broker: &Broker, announced: u64) -> bool {
        broker.elsewhere.peers.have_confirmed(announced)
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes persistent sessions and shared subscriptions look for committed messages whose notice may be lost.
    fn look_around(&self, broker: Option<u64>) {
        for mailbox in &*self.mailboxes {
            mailbox.post(Mail::LookAround(broker));
        }
        self.with_notices(|notices| notices.missed(broker));
    }

    fn look_for_notices(&self) {
        self.with_notices(|notices| notices.look());
    }

    fn with_notices(&self, notify: impl FnOnce(&dyn Notices)) {
        if let Some(notices) = self.notices.get().and_then(Weak::upgrade) {
            notify(&*notices);
        }
    }
}

impl Drop for PodNetwork {
    fn drop(&mut self) {
        self.digests.queue.stop();
    }
}

fn of_fabric((metric, value): (millrace_fabric::FabricMetric, u64)) -> (Metric, u64) {
    let millrace_fabric::FabricMetric { kind, name, labels, help } = metric;
    (Metric { kind, name, labels, help }, value)
}
