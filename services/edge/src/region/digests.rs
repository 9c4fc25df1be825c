//! How pods learn each other's filters, so that a message is sent only to pods with possible subscribers.
//!
//! Each pod announces a digest of its filters per broker. Announcements travel on the same path as the broker's
//! messages (`To::BrokerOnPod`), in order and numbered: a filter is known before messages that depend on it, and a loss is
//! noticed. A pod that opens a broker asks all pods for it; a pod that has the broker answers, and asks back. A pod
//! whose digest is unknown or may be outdated gets every message.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_fabric::{Fabric, PodId, To};
use millrace_mqtt::topic::Filter;
use millrace_router::Code;

use super::PodNetwork;
use super::digest_thread::{DigestQueue, DigestTask};
use super::opening::{OPENING, RegionOpening};
use super::wire::PodNotice;
use crate::broker::Broker;
use crate::clock::Millis;
use crate::elsewhere::{Announced, AnnouncedDigest, Elsewhere, FilterAnnouncement, GONE_MS, is_here};
use crate::metrics::Metric;

#[derive(Default)]
pub(super) struct Digests {
    pub(super) pods: Mutex<HashSet<PodId>>,
    /// Lost pods, with the time of the loss. Their last announcements may still arrive and are ignored. A pod that
    /// returns is asked again.
    gone: Mutex<HashMap<PodId, Millis>>,
    pub(super) opening: Mutex<HashMap<u64, RegionOpening>>,
    /// Brokers that other pods have or may have.
    with_peers: Mutex<HashSet<u64>>,
    pub(super) queue: Arc<DigestQueue>,
    /// Whether a pod has not confirmed this pod's filters for a second.
    are_others_behind: AtomicBool,
    announced: AtomicU64,
    added: AtomicU64,
    doubted: AtomicU64,
}

impl Digests {
    pub(super) fn is_gone(&self, pod: PodId) -> bool {
        lock(&self.gone).contains_key(&pod)
    }

    /// Whether other pods may not announce messages to this one, because they do not know its filters.
    pub(super) fn are_others_behind(&self) -> bool {
        self.are_others_behind.load(Ordering::Relaxed)
    }

    pub(super) fn metrics(&self, brokers: &[Arc<Broker>]) -> [(Metric, u64); 5] {
        let gauge =
            |name, help, count: usize| (Metric { kind: "gauge", name, labels: "", help }, count as u64);
        let peers = brokers.iter().map(|broker| broker.elsewhere.peers.count());
        let (peers, in_doubt) =
            peers.fold((0, 0), |(all, doubtful), (peers, in_doubt)| (all + peers, doubtful + in_doubt));
        let counter = |name, help, count: &AtomicU64| {
            (Metric { kind: "counter", name, labels: "", help }, count.load(Ordering::Relaxed))
        };
        [
            gauge(
                "millrace_region_peers",
                "Other pods that have a broker of this pod, counted once for each such broker.",
                peers,
            ),
            gauge(
                "millrace_region_peers_in_doubt",
                "Pods that get every message of a broker until they announce their filters.",
                in_doubt,
            ),
            counter(
                "millrace_region_digests_sent_total",
                "Digests of filters that were sent to other pods.",
                &self.announced,
            ),
            counter(
                "millrace_region_filters_sent_total",
                "Announcements of new filters that were sent to other pods.",
                &self.added,
            ),
            counter(
                "millrace_region_digests_doubted_total",
                "Digests of other pods that may have been outdated, so that these pods got every message for a moment.",
                &self.doubted,
            ),
        ]
    }
}

/// Calls of this pod's event loops.
impl PodNetwork {
    /// Announces new filters to the other pods, and returns the number of the announcement for
    /// [`PodNetwork::when_confirmed`].
    pub(crate) fn subscribed<'f>(&self, broker: &Broker, filters: impl Iterator<Item = &'f str>) -> u64 {
        let Some(fabric) = self.fabric.get() else { return 0 };
        let mut announced = broker.elsewhere.own.lock();
        if announced.is_idle() {
            return 0;
        }
        let news = announced.add(filters.filter_map(Filter::parse).map(Code::of));
        let pods = broker.elsewhere.peers.all();
        match news {
            FilterAnnouncement::None => {}
            FilterAnnouncement::Filters(codes) => {
                self.digests.added.fetch_add(pods.len() as u64, Ordering::Relaxed);
                let codes: Vec<u8> = codes.into_iter().flat_map(Code::to_bytes).collect();
                PodNotice::Added { version: announced.version, codes: &codes }
                    .send_at(fabric, broker.id, &pods);
            }
            FilterAnnouncement::Everything => self.announce(fabric, broker.id, &announced, &pods),
        }
        if announced.is_full() {
            self.digests.queue.push(DigestTask::Make(broker.id));
        }
        announced.version
    }
}

/// Notices of other pods, on the fabric's thread.
impl PodNetwork {
    /// Whether the fabric has reported the pod and not lost it since.
    pub(super) fn is_there(&self, pod: PodId) -> bool {
        lock(&self.digests.pods).contains(&pod)
    }

    /// Handles a pod's request for the digest of a broker. The pod has this pod's announcements up to number `known`.
    pub(super) fn digest_asked(&self, from: PodId, id: u64, known: u64) {
        if self.digests.is_gone(from) {
            return;
        }
        let Some(broker) = self.brokers.peek(id) else {
            if let Some(fabric) = self.fabric.get() {
                PodNotice::NoBroker { broker: id }.send(fabric, To::Pod(from));
            }
            return;
        };
        if known == OPENING {
            broker.elsewhere.peers.opens(from);
        }
        self.peer_came(&broker, from);
        if known != OPENING && known != broker.elsewhere.own.lock().version {
            // The pod may have missed filters, and so may not have announced messages that persistent sessions here
            // must read.
            self.look_around(Some(id));
        }
        self.digests.queue.push(DigestTask::Announce { broker: id, pod: from, known });
        if let Some(version) = broker.elsewhere.peers.version(from) {
            self.confirm(from, id, version);
        }
        self.ask_for_digest(&broker, from);
    }

    pub(super) fn digest_said(&self, from: PodId, broker: &Arc<Broker>, version: u64, said: AnnouncedDigest) {
        if self.digests.is_gone(from) {
            return;
        }
        self.peer_came(broker, from);
        broker.elsewhere.peers.said(from, version, said);
        self.confirm(from, broker.id, version);
        self.ask_for_digest(broker, from);
        self.answered(broker.id, from);
    }

    pub(super) fn broker_absent(&self, from: PodId, broker: u64) {
        if let Some(broker) = self.brokers.peek(broker) {
            broker.elsewhere.peers.remove_absent(from);
            self.release(&broker);
        }
        self.answered(broker, from);
    }

    /// Announced filters are confirmed even if an earlier announcement is missing, because the pod is
    /// then sent everything.
    pub(super) fn filters_added(&self, from: PodId, broker: &Arc<Broker>, version: u64, codes: &[u8]) {
        if self.digests.is_gone(from) {
            return;
        }
        self.peer_came(broker, from);
        let codes = codes.as_chunks().0.iter().filter_map(|code| Code::from_bytes(*code));
        if !broker.elsewhere.peers.added(from, version, codes) {
            self.doubt(broker, from);
        }
    }

    /// Unless the pod is new, its digests may be outdated. A new pod announces its
    /// digests by itself, except for brokers that this pod is just opening.
    pub(super) fn digests_of_pod(&self, pod: PodId, is_new: bool) {
        lock(&self.digests.pods).insert(pod);
        lock(&self.digests.gone).remove(&pod);
        let brokers = if is_new { self.being_opened() } else { self.brokers.all() };
        brokers.iter().for_each(|broker| self.doubt(broker, pod));
    }

    /// If the lost pod still runs, it gets every message until it is trusted again.
    pub(super) fn digests_of_pod_gone(&self, pod: PodId) {
        let now = self.clock.now();
        lock(&self.digests.pods).remove(&pod);
        lock(&self.digests.gone).insert(pod, now);
        for broker in self.brokers_with_peers() {
            broker.elsewhere.peers.gone(pod, now);
            self.release(&broker);
        }
        self.being_opened().iter().for_each(|broker| self.answered(broker.id, pod));
    }

    /// Doubts announcements that `from` sent to `to`; `None`: announcements of any pod.
    pub(super) fn digests_missing(&self, to: To, from: Option<PodId>) {
        let brokers = match to {
            To::BrokerOnPod { broker, .. } => self.brokers.peek(broker).into_iter().collect(),
            // The lost notice may have been a pod's request for a broker's digests.
            To::Pods => self.brokers.all(),
            To::Broker(_) | To::Pod(_) | To::Group { .. } => return,
        };
        let all = || lock(&self.digests.pods).iter().copied().collect();
        let pods: Vec<PodId> = from.map_or_else(all, |from| vec![from]);
        for pod in pods {
            brokers.iter().for_each(|broker| self.doubt(broker, pod));
        }
    }

    /// NATS is disconnected or connected again: announcements between are lost. A pod that served clients meanwhile
    /// announces its digests at once.
    pub(super) fn digests_after_outage(&self, is_back: bool) {
        let Some(fabric) = self.fabric.get() else { return };
        self.brokers_with_peers().iter().for_each(|broker| broker.elsewhere.peers.doubt_all());
        if is_back {
            let ask = |broker: &Arc<Broker>| {
                PodNotice::AskDigest { broker: broker.id, known: 0 }.send(fabric, To::Pods);
            };
            self.being_opened().iter().for_each(ask);
            self.ask_in_doubt(fabric);
        }
    }

    /// Asks untrusted peers again, except those that were asked just now.
    fn ask_in_doubt(&self, fabric: &Fabric) {
        let now = self.clock.now();
        for broker in self.brokers_with_peers() {
            for (pod, known) in broker.elsewhere.peers.ask_all(now) {
                PodNotice::AskDigest { broker: broker.id, known }.send(fabric, To::Pod(pod));
            }
        }
    }

    pub(super) fn brokers_with_peers(&self) -> Vec<Arc<Broker>> {
        let ids: Vec<u64> = lock(&self.digests.with_peers).iter().copied().collect();
        ids.into_iter().filter_map(|id| self.brokers.peek(id)).collect()
    }

    /// This pod has closed the broker. An unchanged digest of a number that no pod has makes the others ask for it, and learn that
    /// the pod lacks the broker.
    pub(crate) fn leave_broker(&self, broker: &Broker) {
        let Some(fabric) = self.fabric.get() else { return };
        let Broker { id, elsewhere, .. } = broker;
        fabric.leave(To::Broker(*id));
        fabric.leave(To::BrokerOnPod { pod: fabric.pod(), broker: *id });
        lock(&self.digests.with_peers).remove(id);
        self.joins.left(*id);
        self.awaiting_confirmation.forget(*id);
        self.members().forget_broker(*id);
        let version = elsewhere.own.lock().version + 1;
        PodNotice::Digest { version, says: 0, digest: &[] }.send_at(fabric, *id, &elsewhere.peers.all());
    }

    fn peer_came(&self, broker: &Broker, pod: PodId) {
        if broker.elsewhere.peers.came(pod) {
            lock(&self.digests.with_peers).insert(broker.id);
            // Changes went to other pods only.
            self.send_members(broker.id, pod);
        }
    }

    /// The pod has the broker, so it must get changes of members, too.
    pub(super) fn members_asked(&self, from: PodId, id: u64) {
        if let Some(broker) = self.brokers.peek(id).filter(|_| !self.digests.is_gone(from)) {
            self.peer_came(&broker, from);
        }
        self.send_members(id, from);
    }

    /// Marks a pod's digest of a broker as outdated, and asks for a new one.
    pub(super) fn doubt(&self, broker: &Arc<Broker>, pod: PodId) {
        if self.digests.is_gone(pod) {
            return;
        }
        self.digests.doubted.fetch_add(1, Ordering::Relaxed);
        self.peer_came(broker, pod);
        broker.elsewhere.peers.doubt(pod);
        self.ask_for_digest(broker, pod);
    }

    fn ask_for_digest(&self, broker: &Broker, pod: PodId) {
        let Some(fabric) = self.fabric.get() else { return };
        if let Some(known) = broker.elsewhere.peers.ask(pod, self.clock.now()) {
            PodNotice::AskDigest { broker: broker.id, known }.send(fabric, To::Pod(pod));
        }
    }
}

impl PodNetwork {
    pub(super) fn look_after_digests(&self) {
        let now = self.clock.now();
        self.give_up_openings(now);
        self.begin_second_of_matching();
        lock(&self.digests.gone).retain(|_, at| now < *at + GONE_MS);
        let Some(fabric) = self.fabric.get() else { return };
        if fabric.is_connected() {
            self.ask_in_doubt(fabric);
        }
        let mut are_others_behind = false;
        for broker in self.brokers_with_peers() {
            let Elsewhere { peers, own } = &broker.elsewhere;
            let mut announced = own.lock();
            let behind = peers.behind(announced.look());
            are_others_behind |= !behind.is_empty();
            if !behind.is_empty() {
                // The peers may have confirmed it and the confirmation may be lost. If they lack the announcement, they
                // ask for it.
                let same = PodNotice::Digest { version: announced.version, says: 0, digest: &[] };
                same.send_at(fabric, broker.id, &behind);
            }
            let is_old = announced.is_old(broker.router.generation(), now);
            drop(announced);
            if is_old {
                self.make_digest(broker.id);
            }
        }
        self.digests.are_others_behind.store(are_others_behind, Ordering::Relaxed);
    }

    pub(super) fn make_digest(&self, broker: u64) {
        let (Some(fabric), Some(broker)) = (self.fabric.get(), self.brokers.peek(broker)) else { return };
        let Elsewhere { peers, own } = &broker.elsewhere;
        let announce = |announced: &Announced| self.announce(fabric, broker.id, announced, &peers.all());
        if own.make(&broker.router, self.clock.now(), |group| group.has_online(is_here), announce) {
            tracing::debug!(broker = &*broker.name, "announced the filters of this pod to other pods");
        }
    }

    /// Sends only the digest's number if the pod has the digest.
    pub(super) fn announce_digest(&self, id: u64, pod: PodId, known: u64) {
        let (Some(fabric), Some(broker)) = (self.fabric.get(), self.brokers.peek(id)) else { return };
        let announced = broker.elsewhere.own.lock();
        if announced.version == 0 {
            drop(announced);
            return self.make_digest(id);
        }
        if announced.version == known {
            return PodNotice::Digest { version: known, says: 0, digest: &[] }.send_at(fabric, id, &[pod]);
        }
        self.announce(fabric, id, &announced, &[pod]);
    }

    fn announce(&self, fabric: &Fabric, broker: u64, announced: &Announced, pods: &[PodId]) {
        let mut digest = Vec::new();
        if let Some(own) = &announced.digest {
            own.encode(&mut digest);
        }
        let says = if announced.digest.is_some() { 2 } else { 1 };
        self.digests.announced.fetch_add(pods.len() as u64, Ordering::Relaxed);
        PodNotice::Digest { version: announced.version, says, digest: &digest }.send_at(fabric, broker, pods);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
