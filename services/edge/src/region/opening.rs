//! A broker is opened: its first clients wait until the pods that have it know, and have said what they may want.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard};

use millrace_fabric::{PodId, To};

use super::Region;
use super::digests::{Digests, lock};
use super::wire::Note;
use crate::broker::Broker;
use crate::clock::Millis;

/// How long the first clients wait for other pods to say whether they have it, milliseconds.
const OPEN_MS: Millis = 1_000;

/// Instead of the number of a digest: of a pod that opens a broker, and can have missed nothing.
pub(super) const OPENING: u64 = u64::MAX;

/// A broker that is being opened.
#[derive(Default)]
pub(super) struct Opening {
    /// What goes to all of its pods comes here, and what goes to this one.
    joined: u8,
    asked_at: Millis,
    waits_for: HashSet<PodId>,
}

impl Opening {
    fn is_asked(&self) -> bool {
        self.joined == 2
    }
}

impl Digests {
    fn opening(&self) -> MutexGuard<'_, HashMap<u64, Opening>> {
        lock(&self.opening)
    }
}

impl Region {
    /// This pod asks for the messages of a broker.
    pub(super) fn open(&self, broker: u64) {
        self.digests.opening().insert(broker, Opening::default());
    }

    /// One of the two ways in which messages come is there.
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
        // Also when none is there: one that is just coming may hear it, and if not, this pod hears that one ask.
        Note::AskDigest { broker, known: OPENING }.send(fabric, To::Pods);
        self.open_if_answered(openings, broker);
    }

    /// Brokers of which not all pods have said yet whether they have them.
    pub(super) fn being_opened(&self) -> Vec<Arc<Broker>> {
        let openings: Vec<u64> = self.digests.opening().keys().copied().collect();
        openings.into_iter().filter_map(|broker| self.brokers.by_id(broker)).collect()
    }

    /// A pod has said whether it has a broker, and what it may want; or it is gone.
    pub(super) fn answered(&self, broker: u64, pod: PodId) {
        let mut openings = self.digests.opening();
        let Some(opening) = openings.get_mut(&broker) else { return };
        opening.waits_for.remove(&pod);
        self.open_if_answered(openings, broker);
    }

    /// Lets the clients in when nobody is waited for any more.
    fn open_if_answered(&self, mut openings: MutexGuard<'_, HashMap<u64, Opening>>, broker: u64) {
        let is_over = |opening: &Opening| opening.is_asked() && opening.waits_for.is_empty();
        if openings.get(&broker).is_some_and(is_over) {
            openings.remove(&broker);
            drop(openings);
            self.joins.done(broker, &self.mailboxes);
        }
    }

    /// Pods that do not answer hold nobody up for long. They may have the broker.
    pub(super) fn give_up_openings(&self, now: Millis) {
        let is_over =
            |_: &u64, opening: &mut Opening| opening.is_asked() && now >= opening.asked_at + OPEN_MS;
        let over: Vec<(u64, Opening)> = self.digests.opening().extract_if(is_over).collect();
        for (id, opening) in over {
            if let Some(broker) = self.brokers.by_id(id) {
                opening.waits_for.into_iter().for_each(|pod| self.doubt(&broker, pod));
            }
            self.joins.done(id, &self.mailboxes);
        }
    }
}
