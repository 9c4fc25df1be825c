//! Live copies of what is committed, for sessions that follow their streams: they come with their place, so a session need not read a
//! message to get it. It reads on all the same, later and much at a time: only what was read from the store moves its cursor.
//!
//! Copies come in commit order from each publisher's connection, and from one pod. What a publisher sent by another pod before may
//! still be on its way. So the first copy of a connection is not taken but read, and with it all that was committed before; from
//! then on copies of that connection are taken. Whenever something may be missing (a gap, a pod that is gone, pods that do not know all
//! filters of the session yet), sessions read, and take nothing until they have read to the end.

use std::sync::Arc;

use millrace_layers::Position;
use millrace_router::Target;
use millrace_session::{Delivery, Message, Seconds};

use super::Core;
use super::deliver::Publisher;
use super::resume::WAITING_LOW;
use crate::broker::Routes;

/// Copies that a session takes before it reads.
const AHEAD_MAX: u32 = 100;
/// It reads at the latest so long after it took one, seconds.
const READ_AFTER_S: Seconds = 5;
/// Connections of publishers that a session knows; one that it has forgotten is met anew.
const SENDERS_MAX: usize = 16;

/// A message that is committed, with its place.
pub(crate) struct Committed {
    pub(crate) routes: Arc<Routes>,
    pub(crate) message: Arc<Message>,
    /// As [`crate::store::record::publisher`] has it.
    pub(crate) publisher: u64,
    /// The publisher's connection, among those of all pods; 0: none.
    pub(crate) sender: u64,
}

/// What a session knows of the copies that come.
#[derive(Default)]
pub(super) struct Ahead {
    /// Connections of publishers whose copies are taken, the last one at the end.
    senders: Vec<u64>,
    /// Copies that were taken and not read yet.
    pub(super) taken: u32,
    /// Of filters that other pods are told under this number copies may not come yet; 0: they know all.
    pub(super) told: u64,
}

impl Ahead {
    /// Whether what a connection sent before is known to be here, or being read; from now on it is.
    fn meet(&mut self, sender: u64) -> bool {
        if sender == 0 {
            return false;
        }
        if self.senders.contains(&sender) {
            return true;
        }
        if self.senders.len() == SENDERS_MAX {
            self.senders.remove(0);
        }
        self.senders.push(sender);
        false
    }
}

impl Core {
    /// Hands a committed message to the sessions of this core that keep it, or has them read it.
    pub(super) fn committed(&mut self, committed: &Committed) {
        let Committed { routes, message, sender, .. } = committed;
        let (began, mut taken) = (self.trace_began(message), 0);
        for receiver in routes.receivers(self.index).iter().filter(|receiver| receiver.kept > 0) {
            let slot = receiver.target.slot;
            let Some(homed) = self.sessions.get_mut(slot as usize) else { continue };
            if homed.generation != receiver.target.generation {
                continue;
            }
            let waiting = homed.session.waiting();
            let Some(kept) = homed.kept.as_deref_mut() else { continue };
            let is_known = kept.ahead.told == 0;
            let region = self.process.region.as_ref();
            if !is_known && region.is_none_or(|region| region.have_heard(&routes.broker, kept.ahead.told)) {
                // Now it reads what was committed before they knew.
                kept.ahead.told = 0;
            }
            // What depends on a single one of its subscriptions is found by reading.
            let is_plain = !receiver.no_local && (homed.fresh.is_none() || !message.retain());
            let place = message.place().map(Position);
            let takes = is_known
                && kept.ahead.meet(*sender)
                && is_plain
                && waiting <= WAITING_LOW
                && place.is_some_and(|place| kept.is_next(place))
                && kept.ahead.taken < AHEAD_MAX;
            if !takes {
                // One that it has read already says nothing new.
                let is_read = is_known && place.is_some_and(|place| kept.has_read(place));
                if !is_read && kept.grow() {
                    self.read_on(slot);
                }
                continue;
            }
            taken += 1;
            kept.ahead.taken += 1;
            if kept.ahead.taken == 1 {
                self.ahead.push_back((self.now, receiver.target));
            }
            let delivery = Delivery {
                message,
                qos: message.qos().min(receiver.qos),
                retain: receiver.retain_as_published && message.retain(),
                replay: false,
                shared: 0,
                identifiers: &receiver.identifiers,
            };
            self.deliver_to(slot, delivery, Publisher::NOBODY);
        }
        if taken > 0 {
            self.trace_delivered(began, &routes.broker, message, taken);
        }
    }

    /// Sessions that took copies some time ago read what they took.
    pub(super) fn read_behind(&mut self) {
        while let Some((_, target)) = self.ahead.pop_front_if(|(since, _)| *since + READ_AFTER_S <= self.now)
        {
            self.read_what_was_taken(target);
        }
    }

    fn read_what_was_taken(&mut self, target: Target) {
        let Some(homed) = self.sessions.get_mut(target.slot as usize) else { return };
        let kept = homed.kept.as_deref_mut().filter(|_| homed.generation == target.generation);
        if kept.is_some_and(|kept| kept.ahead.taken > 0 && kept.grow()) {
            self.read_on(target.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_met_once_and_forgotten_when_many_others_come() {
        let mut ahead = Ahead::default();
        assert_eq!((ahead.meet(7), ahead.meet(7), ahead.meet(0), ahead.meet(0)), (false, true, false, false));
        for other in 100..100 + SENDERS_MAX as u64 {
            assert!(!ahead.meet(other));
        }
        assert!(!ahead.meet(7), "it was forgotten");
        assert!(ahead.meet(100 + SENDERS_MAX as u64 - 1));
    }
}
