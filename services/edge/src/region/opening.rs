//! Opens a broker in the region: its first clients wait until the pods that have the broker know of this pod and have announced
//! their filters.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard};

use millrace_fabric::{PodId, To};

use super::PodNetwork;
use super::digests::{Digests, lock};
use super::wire::PodNotice;
use crate::broker::Broker;
use crate::clock::Millis;

/// Longest wait for the answers of other pods.
const OPEN_MS: Millis = 1_000;

/// In place of a digest's number: the asking pod opens the broker, and so cannot have missed an announcement.
pub(super) const OPENING: u64 = u64::MAX;

#[derive(Default)]
pub(super) struct RegionOpening {
    /// Number of active subscriptions: one for messages to the broker on all pods, one for messages to it on this pod.
    joined: u8,
    asked_at: Millis,
    waits_for: HashSet<PodId>,
}

impl RegionOpening {
    fn is_asked(&self) -> bool {
        self.joined == 2
    }
}

impl Digests {
    fn opening(&self) -> MutexGuard<'_, HashMap<u64, RegionOpening>> {
        lock(&self.opening)
    }
}

impl PodNetwork {
    pub(crate) fn is_opening(&self, broker: u64) -> bool {
        self.digests.opening().contains_key(&broker)
    }

    /// Clients of the broker wait until `joins` has it as done.
    pub(super) fn open(&self, broker: u64) {
        self.joins.left(broker);
        self.digests.opening().insert(broker, RegionOpening::default());
    }

    /// One of the two fabric subscriptions is active, or the fabric no longer waits for it.
    pub(super) fn opened(&self, broker: u64) {
        let Some(fabric) = self.fabric.get() else { return };
        let mut openings = self.digests.opening();
        let Some(opening) = openings.get_mut(&broker) else { return };
        opening.joined += 1;
        if !opening.is_asked() {
            return;
        }
        opening.asked_at = self.clock.now();
        opening.waits_for.clone_from(&lock(&self.digests.pods));
        // Sent even if no pod is connected: a pod that just starts either receives this or asks by itself.
        PodNotice::AskDigest { broker, known: OPENING }.send(fabric, To::Pods);
        self.open_if_answered(openings, broker);
    }

    pub(super) fn being_opened(&self) -> Vec<Arc<Broker>> {
        let openings: Vec<u64> = self.digests.opening().keys().copied().collect();
        openings.into_iter().filter_map(|broker| self.brokers.peek(broker)).collect()
    }

    pub(super) fn answered(&self, broker: u64, pod: PodId) {
        let mut openings = self.digests.opening();
        let Some(opening) = openings.get_mut(&broker) else { return };
        opening.waits_for.remove(&pod);
        self.open_if_answered(openings, broker);
    }

    fn open_if_answered(&self, mut openings: MutexGuard<'_, HashMap<u64, RegionOpening>>, broker: u64) {
        let is_over = |opening: &RegionOpening| opening.is_asked() && opening.waits_for.is_empty();
        if openings.get(&broker).is_some_and(is_over) {
            openings.remove(&broker);
            drop(openings);
            self.joins.done(broker, &self.mailboxes);
        }
    }

    /// Ends openings that wait too long. Pods that did not answer may have the broker, and are untrusted.
    pub(super) fn give_up_openings(&self, now: Millis) {
        let is_over =
            |_: &u64, opening: &mut RegionOpening| opening.is_asked() && now >= opening.asked_at + OPEN_MS;
        let over: Vec<(u64, RegionOpening)> = self.digests.opening().extract_if(is_over).collect();
        for (id, opening) in over {
            if let Some(broker) = self.brokers.peek(id) {
                opening.waits_for.into_iter().for_each(|pod| self.doubt(&broker, pod));
            }
            self.joins.done(id, &self.mailboxes);
        }
    }
}
