//! A subscription is acknowledged when the other pods know its filter: what is published anywhere after the SUBACK reaches it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_fabric::{PodId, To};

use super::Region;
use super::wire::Note;
use crate::broker::Broker;
use crate::clock::Millis;
use crate::mailbox::Mail;

/// How long mail waits for pods that do not answer, milliseconds: a hundred times what an answer takes, and copies for a session that
/// waits are held. Sessions of the store then look for themselves, see [`Region::is_in_doubt`].
const WAIT_MS: Millis = 100;

/// Mail that waits until other pods know filters, by broker.
#[derive(Default)]
pub(super) struct Unheard(Mutex<HashMap<u64, Vec<Waiting>>>);

struct Waiting {
    version: u64,
    until: Millis,
    core: u16,
    mail: Mail,
}

impl Unheard {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<Waiting>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Region {
    /// Leaves mail for a core as soon as all other pods have heard what this one told under the number `told`; back when they have.
    pub(crate) fn when_heard(&self, broker: &Broker, told: u64, core: u16, mail: Mail) -> Option<Mail> {
        let has_heard = || broker.elsewhere.peers.have_heard(told);
        if has_heard() {
            return Some(mail);
        }
        let mut unheard = self.awaiting.lock();
        // Who hears of it now looks here after that.
        if has_heard() {
            return Some(mail);
        }
        let until = self.clock.now() + WAIT_MS;
        unheard.entry(broker.id).or_default().push(Waiting { version: told, until, core, mail });
        None
    }

    /// A pod has heard what this one told.
    pub(super) fn has_heard(&self, from: PodId, broker: &Broker, version: u64) {
        broker.elsewhere.peers.heard(from, version);
        self.release(broker);
    }

    /// Confirms to a pod what it told up to this number.
    pub(super) fn confirm(&self, pod: PodId, broker: u64, version: u64) {
        if let Some(fabric) = self.fabric.get() {
            Note::Heard { version }.send(fabric, To::At { pod, broker });
        }
    }

    /// Leaves the mail that has nobody to wait for.
    pub(super) fn release(&self, broker: &Broker) {
        let mut unheard = self.awaiting.lock();
        let Some(waiting) = unheard.get_mut(&broker.id) else { return };
        let has_heard = |waiting: &mut Waiting| broker.elsewhere.peers.have_heard(waiting.version);
        self.leave(waiting.extract_if(.., has_heard));
        if waiting.is_empty() {
            unheard.remove(&broker.id);
        }
    }

    /// Leaves the mail that has waited for long.
    pub(super) fn release_overdue(&self) {
        let now = self.clock.now();
        self.awaiting.lock().retain(|_, waiting| {
            self.leave(waiting.extract_if(.., |waiting| now >= waiting.until));
            !waiting.is_empty()
        });
    }

    fn leave(&self, waiting: impl Iterator<Item = Waiting>) {
        for Waiting { core, mail, .. } in waiting {
            self.mailboxes[usize::from(core)].deliver(&mut vec![mail], 0);
        }
    }
}
