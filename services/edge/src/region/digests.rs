//! How pods learn what others may want, so that a message goes to these and to nobody else.
//!
//! All that one pod tells another about a broker goes the way of its messages, `To::At`: in one order, numbered. So a filter is
//! known before what comes after it, and a loss shows. Who has a broker is asked of all pods when it is opened; who is asked
//! and has it asks back. A pod of which nothing is known, or that may have said more than has come, gets everything.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_fabric::{Fabric, PodId, To};
use millrace_mqtt::topic::Filter;
use millrace_router::{Code, Digest};

use super::keeper::{Queue, Task};
use super::opening::{OPENING, Opening};
use super::own::{News, Own, Told};
use super::peers::{GONE_MS, Peers, Said};
use super::wire::Note;
use super::{Region, is_here};
use crate::broker::Broker;
use crate::clock::Millis;
use crate::metrics::Metric;

/// What pods know of each other's filters, for one broker.
#[derive(Default)]
pub(crate) struct Elsewhere {
    pub(super) peers: Peers,
    pub(super) own: Own,
}

/// The same for all of them.
#[derive(Default)]
pub(super) struct Digests {
    /// Pods that are there.
    pub(super) pods: Mutex<HashSet<PodId>>,
    /// Pods that are gone, and when: the last that they said may come after that. One that comes back is asked for everything.
    gone: Mutex<HashMap<PodId, Millis>>,
    pub(super) opening: Mutex<HashMap<u64, Opening>>,
    /// Brokers that other pods have, or may have.
    spread: Mutex<HashMap<u64, Arc<Broker>>>,
    pub(super) queue: Arc<Queue>,
    /// A pod does not know filters of this one for a second.
    are_others_behind: AtomicBool,
    told: AtomicU64,
    added: AtomicU64,
    doubted: AtomicU64,
}

impl Digests {
    fn is_gone(&self, pod: PodId) -> bool {
        lock(&self.gone).contains_key(&pod)
    }

    fn spread(&self) -> Vec<Arc<Broker>> {
        lock(&self.spread).values().cloned().collect()
    }

    /// Whether other pods may not tell what they would, because they do not know of it.
    pub(super) fn are_others_behind(&self) -> bool {
        self.are_others_behind.load(Ordering::Relaxed)
    }

    /// In the order in which they are shown.
    pub(super) fn metrics(&self) -> [(Metric, u64); 5] {
        let gauge =
            |name, help, count: usize| (Metric { kind: "gauge", name, labels: "", help }, count as u64);
        let spread = self.spread();
        let peers = spread.iter().map(|broker| broker.elsewhere.peers.count());
        let (peers, in_doubt) =
            peers.fold((0, 0), |(all, doubtful), (peers, in_doubt)| (all + peers, doubtful + in_doubt));
        let counter = |name, help, count: &AtomicU64| {
            (Metric { kind: "counter", name, labels: "", help }, count.load(Ordering::Relaxed))
        };
        [
            gauge(
                "millrace_region_peers",
                "Other pods that have a broker that is here too, each as often as there are such brokers.",
                peers,
            ),
            gauge(
                "millrace_region_peers_in_doubt",
                "Pods that get every message of a broker until they announce their filters.",
                in_doubt,
            ),
            counter(
                "millrace_region_digests_told_total",
                "Digests of filters that other pods were told.",
                &self.told,
            ),
            counter(
                "millrace_region_filters_told_total",
                "Times other pods were told of filters that have come.",
                &self.added,
            ),
            counter(
                "millrace_region_digests_doubted_total",
                "Digests of other pods that may have been out of date, so that these got everything for a moment.",
                &self.doubted,
            ),
        ]
    }
}

/// What comes from clients here.
impl Region {
    /// Filters have come: other pods are told of those that they do not know. The number of what they are told, see
    /// [`Region::when_heard`].
    pub(crate) fn subscribed<'f>(&self, broker: &Broker, filters: impl Iterator<Item = &'f str>) -> u64 {
        let Some(fabric) = self.fabric.get() else { return 0 };
        let mut told = broker.elsewhere.own.lock();
        if told.is_idle() {
            return 0;
        }
        let news = told.add(filters.filter_map(Filter::parse).map(Code::of));
        let pods = broker.elsewhere.peers.all();
        match news {
            News::None => {}
            News::Filters(codes) => {
                self.digests.added.fetch_add(pods.len() as u64, Ordering::Relaxed);
                let codes: Vec<u8> = codes.into_iter().flat_map(Code::to_bytes).collect();
                Note::Added { version: told.version, codes: &codes }.send_at(fabric, broker.id, &pods);
            }
            News::Everything => self.tell(fabric, broker.id, &told, &pods),
        }
        if told.is_full() {
            self.digests.queue.push(Task::Make(broker.id));
        }
        told.version
    }
}

/// What other pods say. On the fabric's thread.
impl Region {
    /// A pod wants to know what may be wanted here; it has what this pod said under the number `known`.
    pub(super) fn digest_asked(&self, from: PodId, id: u64, known: u64) {
        if self.digests.is_gone(from) {
            return;
        }
        let Some(broker) = self.brokers.by_id(id) else {
            if let Some(fabric) = self.fabric.get() {
                Note::NoBroker { broker: id }.send(fabric, To::Pod(from));
            }
            return;
        };
        self.peer_came(&broker, from);
        if known != OPENING && known != broker.elsewhere.own.lock().version {
            // It may have missed filters, and not told of what sessions here are to read.
            self.look_around(Some(id));
        }
        self.digests.queue.push(Task::Tell { broker: id, pod: from, known });
        if let Some(version) = broker.elsewhere.peers.version(from) {
            self.confirm(from, id, version);
        }
        self.ask_for_digest(&broker, from);
    }

    /// A pod has said what it may want.
    pub(super) fn digest_said(&self, from: PodId, broker: &Arc<Broker>, version: u64, said: Said) {
        if self.digests.is_gone(from) {
            return;
        }
        self.peer_came(broker, from);
        broker.elsewhere.peers.said(from, version, said);
        self.confirm(from, broker.id, version);
        self.ask_for_digest(broker, from);
        self.answered(broker.id, from);
    }

    /// A pod does not have a broker.
    pub(super) fn broker_absent(&self, from: PodId, broker: u64) {
        if let Some(broker) = self.brokers.by_id(broker) {
            broker.elsewhere.peers.is_absent(from);
            self.release(&broker);
        }
        self.answered(broker, from);
    }

    /// Filters have come on another pod. It is to be told that this is known, also when something is missing: then it gets everything.
    pub(super) fn filters_added(&self, from: PodId, broker: &Arc<Broker>, version: u64, codes: &[u8]) {
        if self.digests.is_gone(from) {
            return;
        }
        let codes = codes.as_chunks().0.iter().filter_map(|code| Code::from_bytes(*code));
        if !broker.elsewhere.peers.added(from, version, codes) {
            self.doubt(broker, from);
        }
    }

    /// A pod is there. Unless it is new, all that it said may be out of date. A new one tells by itself, but not for brokers that
    /// this pod is just opening.
    pub(super) fn digests_of_pod(&self, pod: PodId, is_new: bool) {
        lock(&self.digests.pods).insert(pod);
        lock(&self.digests.gone).remove(&pod);
        let brokers = if is_new { self.being_opened() } else { self.brokers.all() };
        brokers.iter().for_each(|broker| self.doubt(broker, pod));
    }

    /// A pod is gone, or cannot be heard: should it be there, it gets everything.
    pub(super) fn digests_of_pod_gone(&self, pod: PodId) {
        let now = self.clock.now();
        lock(&self.digests.pods).remove(&pod);
        lock(&self.digests.gone).insert(pod, now);
        for broker in self.digests.spread() {
            broker.elsewhere.peers.gone(pod, now);
            self.release(&broker);
        }
        self.being_opened().iter().for_each(|broker| self.answered(broker.id, pod));
    }

    /// What `from` said to `to` may be missing; `None`: what any pod said.
    pub(super) fn digests_missing(&self, to: To, from: Option<PodId>) {
        let brokers = match to {
            To::At { broker, .. } => self.brokers.by_id(broker).into_iter().collect(),
            // It may have asked who has its brokers.
            To::Pods => self.brokers.all(),
            To::Broker(_) | To::Pod(_) | To::Group { .. } => return,
        };
        let all = || lock(&self.digests.pods).iter().copied().collect();
        let pods: Vec<PodId> = from.map_or_else(all, |from| vec![from]);
        for pod in pods {
            brokers.iter().for_each(|broker| self.doubt(broker, pod));
        }
    }

    /// NATS is away, or back: what others said meanwhile did not come. A pod that has served clients without it says what it has
    /// at once.
    pub(super) fn digests_after_outage(&self, is_back: bool) {
        let Some(fabric) = self.fabric.get() else { return };
        self.digests.spread().iter().for_each(|broker| broker.elsewhere.peers.doubt_all());
        if is_back {
            let ask =
                |broker: &Arc<Broker>| Note::AskDigest { broker: broker.id, known: 0 }.send(fabric, To::Pods);
            self.being_opened().iter().for_each(ask);
            self.ask_in_doubt(fabric);
        }
    }

    /// Asks who is in doubt, and was not asked just now.
    fn ask_in_doubt(&self, fabric: &Fabric) {
        let now = self.clock.now();
        for broker in self.digests.spread() {
            for (pod, known) in broker.elsewhere.peers.ask_all(now) {
                Note::AskDigest { broker: broker.id, known }.send(fabric, To::Pod(pod));
            }
        }
    }

    /// Another pod has a broker, or may have it.
    fn peer_came(&self, broker: &Arc<Broker>, pod: PodId) {
        if broker.elsewhere.peers.came(pod) {
            lock(&self.digests.spread).insert(broker.id, broker.clone());
        }
    }

    /// What a pod said of a broker may be out of date.
    pub(super) fn doubt(&self, broker: &Arc<Broker>, pod: PodId) {
        if self.digests.is_gone(pod) {
            return;
        }
        self.digests.doubted.fetch_add(1, Ordering::Relaxed);
        self.peer_came(broker, pod);
        broker.elsewhere.peers.doubt(pod);
        self.ask_for_digest(broker, pod);
    }

    /// Asks a pod, if it is in doubt and was not asked just now.
    fn ask_for_digest(&self, broker: &Broker, pod: PodId) {
        let Some(fabric) = self.fabric.get() else { return };
        if let Some(known) = broker.elsewhere.peers.ask(pod, self.clock.now()) {
            Note::AskDigest { broker: broker.id, known }.send(fabric, To::Pod(pod));
        }
    }
}

/// What the keeper does.
impl Region {
    pub(super) fn look_after_digests(&self) {
        let now = self.clock.now();
        self.give_up_openings(now);
        lock(&self.digests.gone).retain(|_, at| now < *at + GONE_MS);
        let Some(fabric) = self.fabric.get() else { return };
        if fabric.is_connected() {
            self.ask_in_doubt(fabric);
        }
        let mut are_others_behind = false;
        for broker in self.digests.spread() {
            let Elsewhere { peers, own } = &broker.elsewhere;
            let mut told = own.lock();
            let behind = peers.behind(told.look());
            are_others_behind |= !behind.is_empty();
            if !behind.is_empty() {
                // They may know it, and what said so was lost; if not, they ask.
                let same = Note::Digest { version: told.version, says: 0, digest: &[] };
                same.send_at(fabric, broker.id, &behind);
            }
            let is_old = told.is_old(broker.router.generation(), now);
            drop(told);
            if is_old {
                self.make_digest(broker.id);
            }
        }
        self.digests.are_others_behind.store(are_others_behind, Ordering::Relaxed);
    }

    pub(super) fn make_digest(&self, broker: u64) {
        let (Some(fabric), Some(broker)) = (self.fabric.get(), self.brokers.by_id(broker)) else { return };
        let Elsewhere { peers, own } = &broker.elsewhere;
        let tell = |told: &Told| self.tell(fabric, broker.id, told, &peers.all());
        own.make(&broker, self.clock.now(), |group| group.has_online(is_here), tell);
    }

    /// Tells a pod what may be wanted here, unless it has that.
    pub(super) fn tell_digest(&self, id: u64, pod: PodId, known: u64) {
        let (Some(fabric), Some(broker)) = (self.fabric.get(), self.brokers.by_id(id)) else { return };
        let told = broker.elsewhere.own.lock();
        if told.version == 0 {
            drop(told);
            return self.make_digest(id);
        }
        if told.version == known {
            return Note::Digest { version: known, says: 0, digest: &[] }.send_at(fabric, id, &[pod]);
        }
        self.tell(fabric, id, &told, &[pod]);
    }

    /// Tells pods what may be wanted here.
    fn tell(&self, fabric: &Fabric, broker: u64, told: &Told, pods: &[PodId]) {
        let mut digest = Vec::new();
        if let Some(own) = &told.digest {
            own.encode(&mut digest);
        }
        let says = if told.digest.is_some() { 2 } else { 1 };
        self.digests.told.fetch_add(pods.len() as u64, Ordering::Relaxed);
        Note::Digest { version: told.version, says, digest: &digest }.send_at(fabric, broker, pods);
    }
}

impl Said {
    /// From a note. What is not understood is everything.
    pub(super) fn decode(says: u8, digest: &[u8]) -> Self {
        match says {
            0 => Self::Same,
            2 => Digest::decode(digest).map_or(Self::Everything, |digest| Self::Filters(Arc::new(digest))),
            _ => Self::Everything,
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
