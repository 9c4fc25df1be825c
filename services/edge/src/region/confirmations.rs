//! Delays a SUBACK until the other pods know the filter, so that any message published after the SUBACK reaches the
//! subscriber. Announcements of a broker's filters have ascending numbers (`version`), and each pod confirms the last it has.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_fabric::{PodId, To};

use super::PodNetwork;
use super::wire::PodNotice;
use crate::broker::Broker;
use crate::clock::Millis;
use crate::mailbox::Mail;

/// Longest delay of an answer. A confirmation takes a hundredth of it. Copies for the waiting session queue up meanwhile.
/// After a second or two without a confirmation, persistent sessions poll the store, see [`PodNetwork::is_in_doubt`].
const WAIT_MS: Millis = 100;

#[derive(Default)]
pub(super) struct AwaitingMail(Mutex<HashMap<u64, Vec<WaitingMail>>>);

struct WaitingMail {
    version: u64,
    until: Millis,
    core: u16,
    mail: Mail,
}

impl AwaitingMail {
    /// Takes the mail that waits too long. `Reread` waits without limit: it makes a session read what a pod committed without
    /// notice before the pod knew the filter.
    fn take_overdue(&self, now: Millis) -> Vec<WaitingMail> {
        let mut overdue = Vec::new();
        let is_overdue =
            |waiting: &mut WaitingMail| now >= waiting.until && !matches!(waiting.mail, Mail::Reread(..));
        self.lock().retain(|_, waiting| {
            overdue.extend(waiting.extract_if(.., is_overdue));
            !waiting.is_empty()
        });
        overdue
    }

    pub(super) fn forget(&self, broker: u64) {
        self.lock().remove(&broker);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<WaitingMail>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodNetwork {
    /// Posts mail to a core once all pods have confirmed the announcement `announced`; returns the mail if they already
    /// have.
    pub(crate) fn when_confirmed(
        &self,
        broker: &Broker,
        announced: u64,
        core: u16,
        mail: Mail,
    ) -> Option<Mail> {
        let has_confirmed = || broker.elsewhere.peers.have_confirmed(announced);
        if has_confirmed() {
            return Some(mail);
        }
        let mut awaiting = self.awaiting_confirmation.lock();
        // Checked again under the lock: a confirmation from now on finds the mail.
        if has_confirmed() {
            return Some(mail);
        }
        let until = self.clock.now() + WAIT_MS;
        awaiting.entry(broker.id).or_default().push(WaitingMail { version: announced, until, core, mail });
        None
    }

    pub(super) fn pod_confirmed(&self, from: PodId, broker: &Broker, version: u64) {
        broker.elsewhere.peers.confirmed(from, version);
        self.release(broker);
    }

    pub(super) fn confirm(&self, pod: PodId, broker: u64, version: u64) {
        if let Some(fabric) = self.fabric.get() {
            PodNotice::Confirmed { version }.send(fabric, To::BrokerOnPod { pod, broker });
        }
    }

    pub(super) fn release(&self, broker: &Broker) {
        let mut awaiting = self.awaiting_confirmation.lock();
        let Some(waiting) = awaiting.get_mut(&broker.id) else { return };
        let has_confirmed =
            |waiting: &mut WaitingMail| broker.elsewhere.peers.have_confirmed(waiting.version);
        self.leave(waiting.extract_if(.., has_confirmed));
        if waiting.is_empty() {
            awaiting.remove(&broker.id);
        }
    }

    /// Called ten times a second.
    pub(super) fn release_overdue(&self) {
        self.leave(self.awaiting_confirmation.take_overdue(self.clock.now()).into_iter());
    }

    fn leave(&self, waiting: impl Iterator<Item = WaitingMail>) {
        for WaitingMail { core, mail, .. } in waiting {
            self.mailboxes[usize::from(core)].post(mail);
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_router::Target;

    use super::*;

    #[test]
    fn an_answer_waits_for_a_while_and_reading_again_until_the_pods_have_confirmed() {
        let awaiting = AwaitingMail::default();
        let target = Target { core: 0, slot: 1, generation: 1 };
        let waiting = |mail| WaitingMail { version: 1, until: WAIT_MS, core: 0, mail };
        let mail = [Mail::Reread(target, Vec::new()), Mail::Opened("broker".into(), None)];
        awaiting.lock().insert(7, mail.map(waiting).into());
        assert!(awaiting.take_overdue(WAIT_MS - 1).is_empty());
        let overdue = awaiting.take_overdue(WAIT_MS);
        assert!(matches!(overdue[..], [WaitingMail { mail: Mail::Opened(..), .. }]));
        assert!(matches!(awaiting.lock()[&7][..], [WaitingMail { mail: Mail::Reread(..), .. }]));
        awaiting.forget(7);
        assert!(awaiting.lock().is_empty());
    }
}
