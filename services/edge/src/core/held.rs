//! Live copies that a session holds until it is live, or until its SUBSCRIBE is answered.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::QoS;
use millrace_session::{Budget, Hold, Message};

use super::feed::HeldMessage;
use super::limits;

/// Whether a session that holds `held` messages and bytes may hold one more.
pub(super) fn may_hold(held: (usize, usize), bytes: usize, budget: Option<&Arc<Budget>>) -> bool {
    let (messages, held_bytes) = held;
    messages < limits::HELD_MESSAGES_MAX
        && held_bytes + bytes <= limits::HELD_BYTES_MAX
        && !Budget::is_short_of(budget, held_bytes as u64, bytes)
}

#[derive(Default)]
pub(super) struct HeldCopies {
    all: VecDeque<HeldMessage>,
    bytes: usize,
    /// How many of them have QoS 1 or 2.
    stored: usize,
}

impl HeldCopies {
    fn new(all: VecDeque<HeldMessage>) -> Self {
        let bytes = all.iter().map(|held| held.message.size()).sum();
        let stored = all.iter().filter(|held| held.qos > QoS::AtMostOnce).count();
        Self { all, bytes, stored }
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.all.iter().map(|held| &held.message)
    }

    pub(super) fn has_room(&self, bytes: usize, budget: Option<&Arc<Budget>>) -> bool {
        may_hold((self.all.len(), self.bytes), bytes, budget)
    }

    pub(super) fn push(&mut self, mut held: HeldMessage, budget: Option<&Arc<Budget>>) {
        let (identifiers, waiting) = (held.identifiers.len(), self.bytes as u64);
        held.memory = Hold::of_waiting(&held.message, identifiers, waiting, budget);
        self.bytes += held.message.size();
        self.stored += usize::from(held.qos > QoS::AtMostOnce);
        self.all.push_back(held);
    }

    pub(super) fn take(&mut self) -> VecDeque<HeldMessage> {
        std::mem::take(self).all
    }

    /// Drops those that the session reads later. Returns how many were looked at.
    pub(super) fn drop_stored(&mut self) -> usize {
        if self.stored == 0 {
            return 0;
        }
        let looked_at = self.all.len();
        self.retain(|held| held.qos == QoS::AtMostOnce);
        looked_at
    }

    pub(super) fn drop_read(&mut self, through: Position) {
        self.retain(|held| {
            let message = &held.message;
            !message.is_refused() && message.position().is_none_or(|position| Position(position) > through)
        });
    }

    fn retain(&mut self, stays: impl Fn(&HeldMessage) -> bool) {
        let mut all = self.take();
        all.retain(stays);
        *self = Self::new(all);
    }

    /// Takes those that no page will have.
    pub(super) fn take_unstored(&mut self) -> VecDeque<HeldMessage> {
        let is_unstored = |held: &HeldMessage| {
            let message = &held.message;
            held.qos == QoS::AtMostOnce || message.is_decided() && message.position().is_none()
        };
        // The publisher sends a refused message again, after others that this session has not got (P4).
        let held = self.take().into_iter().filter(|held| !held.message.is_refused());
        let (unstored, held) = held.partition(is_unstored);
        *self = Self::new(held);
        unstored
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::Properties;
    use smallvec::SmallVec;

    use super::*;

    #[test]
    fn dropped_copies_look_at_held_ones_only_if_there_is_one_to_drop() {
        let copy = |qos| {
            let message = Message::new("t".into(), qos, false, Properties::EMPTY, b"x", 0).into();
            HeldMessage { message, qos, retain: false, shared: 0, identifiers: SmallVec::new(), memory: None }
        };
        let mut held = HeldCopies::default();
        (0..100).for_each(|_| held.push(copy(QoS::AtMostOnce), None));
        assert_eq!((0..100).map(|_| held.drop_stored()).sum::<usize>(), 0);
        held.push(copy(QoS::AtLeastOnce), None);
        assert_eq!((0..100).map(|_| held.drop_stored()).sum::<usize>(), 101);
        assert_eq!((held.all.len(), held.bytes), (100, 200));
    }
}
