//! Live copies of committed messages, for sessions that follow their streams. A copy carries its position, so a
//! session can deliver it without reading it. The session still reads it later, with many others at once, because
//! only messages read from the store move its cursor.
//!
//! Copies from one publisher's connection on one pod come in commit order. But messages that the publisher sent
//! earlier through another pod may still be on their way. So a session does not take the first copy of a connection:
//! it reads that message together with everything committed before. Later copies of the connection are taken. A copy
//! may be missing after a gap, after the loss of a pod, and while pods do not know all filters of the session. Then
//! the session reads, and takes no copies until it has read to the end.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::QoS;
use millrace_router::{Receiver, Target};
use millrace_session::{Delivery, Seconds};

use super::deliver::{Publisher, local_session};
use super::fanout::Copies;
use super::limits;
use super::resume::WAITING_LOW;
use super::{Core, work};
use crate::deliveries::CommittedMessage;

/// A session reads at most this long after it took a copy, seconds.
const READ_AFTER_S: Seconds = 5;

/// Which live copies a session may take.
#[derive(Default)]
pub(super) struct LiveCopies {
    /// Connections of publishers whose copies are taken, the last one at the end.
    senders: Vec<u64>,
    /// Copies that were taken and not read yet.
    pub(super) taken: u32,
    /// While other pods may not know all filters of this session: the number of the announcement to wait for. 0: they
    /// know all.
    pub(super) announced: u64,
}

impl LiveCopies {
    /// Whether the session got a copy of this connection before, so that copies of it may be taken. Remembers the connection.
    fn meet(&mut self, sender: u64) -> bool {
        if sender == 0 {
            return false;
        }
        if self.senders.contains(&sender) {
            return true;
        }
        if self.senders.len() == limits::SENDERS_MAX {
            self.senders.remove(0);
        }
        self.senders.push(sender);
        false
    }
}

pub(super) struct Following {
    /// Each live session of this core has got all its messages up to this position.
    pub(super) handed_over: Position,
    /// This core has taken the mail about all messages up to this position, but may not have delivered all of them.
    pub(super) met: Position,
    /// Sessions whose acknowledgements are not in the store yet.
    pub(super) unsaved: Vec<Target>,
    /// The rest of an earlier `unsaved`, which is being written slice by slice.
    pub(super) saving: Vec<Target>,
    /// When sessions that follow streams last looked for messages that no pod announced.
    pub(super) looked_around_at: Seconds,
    /// Sessions that took copies of committed messages, and since when.
    unread: VecDeque<(Seconds, Target)>,
}

impl Following {
    pub(super) fn new(handed_over: Position) -> Self {
        Self {
            handed_over,
            met: handed_over,
            unsaved: Vec::new(),
            saving: Vec::new(),
            looked_around_at: 0,
            unread: VecDeque::new(),
        }
    }
}

impl Core {
    pub(super) fn committed(&mut self, committed: &Arc<CommittedMessage>) {
        let routes = &committed.routes;
        let waits = self.unfinished.commits.delays(routes.broker.id, Publisher::NOBODY);
        let next = if waits { 0 } else { self.deliver_committed(committed, 0) };
        if next < routes.receivers(self.index).len() {
            self.put_off_committed(routes, Copies::Committed(committed.clone()), next);
        }
    }

    /// Delivers a committed message to the sessions of this core from receiver `start` on, as far as one slice of work allows. Returns
    /// the index of the next receiver.
    pub(super) fn deliver_committed(&mut self, committed: &CommittedMessage, start: usize) -> usize {
        let CommittedMessage { routes, message, .. } = committed;
        let (began, mut taken) = (self.trace_began(message), 0);
        let end = self.work.spent() + work::SLICE;
        let receivers = routes.receivers(self.index);
        let mut next = start;
        while let Some(receiver) = receivers.get(next)
            && self.work.spent() < end
        {
            next += 1;
            self.spend(work::SEEN);
            taken += usize::from(receiver.is_persistent() && self.deliver_copy(committed, receiver));
        }
        if taken > 0 {
            self.trace_delivered(began, &routes.broker, message, taken);
        }
        next
    }

    /// Delivers a copy to a session and returns true, or makes the session read the message.
    fn deliver_copy(&mut self, committed: &CommittedMessage, receiver: &Receiver) -> bool {
        let CommittedMessage { routes, message, publisher, sender } = committed;
        let slot = receiver.target.slot;
        let Some(local) = local_session(&mut self.sessions, receiver) else { return false };
        let has_room = local.session.waiting() <= WAITING_LOW
            && local.session.waiting_bytes() < limits::WAITING_BYTES_MAX
            && !local.session.lacks_memory(message.size(), routes.broker.queues());
        let Some(persistent) = local.persistent.as_deref_mut() else { return false };
        let is_known = persistent.live_copies.announced == 0;
        let region = self.process.region.as_ref();
        if !is_known
            && region
                .is_none_or(|region| region.is_confirmed(&routes.broker, persistent.live_copies.announced))
        {
            // The session reads what was committed before all pods knew its filters.
            persistent.live_copies.announced = 0;
        }
        // Options of single subscriptions are applied when the message is read.
        let is_own = local.publisher == *publisher;
        let options = receiver
            .copy_options(is_own)
            .filter(|options| receiver.own_qos.is_some() && !(is_own && options.qos == QoS::AtMostOnce));
        let is_plain = local.new_subscriptions.is_none() || !message.retain();
        let position = message.position().map(Position);
        let takes = is_known
            && !self.unfinished.slices.are_to_visit(routes.broker.id, slot)
            && persistent.live_copies.meet(*sender)
            && is_plain
            && has_room
            && position.is_some_and(|position| persistent.is_next(position))
            && persistent.live_copies.taken < limits::UNREAD_COPIES_MAX;
        let Some(options) = options.filter(|_| takes) else {
            let is_read = is_known && position.is_some_and(|position| persistent.has_read(position));
            if !is_read && persistent.grow() {
                self.read_on(slot);
            }
            return false;
        };
        persistent.live_copies.taken += 1;
        if persistent.live_copies.taken == 1 {
            self.following.unread.push_back((self.now, receiver.target));
        }
        let delivery = Delivery {
            message,
            qos: message.qos().min(options.qos),
            retain: options.retain_as_published && message.retain(),
            replay: false,
            maybe_sent: false,
            shared: 0,
            identifiers: options.identifiers,
        };
        self.spend(work::SINGLE_COPY);
        self.spend_bytes(message.size());
        self.deliver_to(slot, delivery, Publisher::NOBODY);
        true
    }

    /// Makes up to `sessions` sessions that took copies `READ_AFTER_S` ago read them. Returns whether there may be more.
    pub(super) fn read_behind(&mut self, sessions: usize) -> bool {
        for _ in 0..sessions {
            let due = self.following.unread.pop_front_if(|(since, _)| *since + READ_AFTER_S <= self.now);
            let Some((_, target)) = due else { return false };
            self.spend(work::SEEN);
            self.read_what_was_taken(target);
        }
        true
    }

    fn read_what_was_taken(&mut self, target: Target) {
        let Some(local) = self.sessions.get_mut(target.slot as usize) else { return };
        let persistent = local.persistent.as_deref_mut().filter(|_| local.generation == target.generation);
        if persistent.is_some_and(|persistent| persistent.live_copies.taken > 0 && persistent.grow()) {
            self.read_on(target.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_met_once_and_forgotten_when_many_others_come() {
        let mut copies = LiveCopies::default();
        assert_eq!(
            (copies.meet(7), copies.meet(7), copies.meet(0), copies.meet(0)),
            (false, true, false, false)
        );
        for other in 100..100 + limits::SENDERS_MAX as u64 {
            assert!(!copies.meet(other));
        }
        assert!(!copies.meet(7), "it was forgotten");
        assert!(copies.meet(100 + limits::SENDERS_MAX as u64 - 1));
    }
}
