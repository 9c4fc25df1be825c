//! Messages to a client: first the unacknowledged ones, then the queued ones.

mod held;
mod packet_ids;
mod queue;
mod remaining;
mod resend;

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_mqtt::{PacketId, QoS};
use smallvec::SmallVec;

pub(crate) use self::held::NoRoom;
use self::packet_ids::{UsedIds, distance, id_after};
use self::queue::QueuedEntry;
pub use self::remaining::RemainingMessage;
use crate::budget::Hold;
use crate::{Message, StoredPosition};

/// Acknowledged slots that may stay between others: as long as they stay, an id's slot is found by subtraction.
const DONE_MAX: usize = 32;

#[derive(Clone, Debug)]
pub struct OutboxEntry {
    pub message: Arc<Message>,
    pub qos: QoS,
    pub retain: bool,
    /// A retained message for a new subscription.
    pub replay: bool,
    /// An earlier connection may have sent the message with QoS 1 before the server crashed.
    pub maybe_sent: bool,
    /// 0 for none. If the session ends without an acknowledgement, another member of this shared subscription gets the message.
    pub shared: u64,
    pub identifiers: SmallVec<[u32; 1]>,
}

impl OutboxEntry {
    //= [MQTT-3.3.1-1] v5 v3.1.1
    pub(crate) fn is_dup(&self) -> bool {
        self.maybe_sent && self.qos == QoS::AtLeastOnce
    }

    fn settles(&self) -> Option<(u64, StoredPosition)> {
        self.message.position().filter(|_| self.shared != 0).map(|position| (self.shared, position))
    }
}

#[derive(Debug)]
pub(crate) enum SlotState {
    Published(OutboxEntry),
    /// PUBREC has arrived; PUBREL waits until the store has recorded it.
    Releasing(Option<StoredPosition>),
    Released(Option<StoredPosition>),
    /// Acknowledged before an earlier message. Its packet id is free again.
    Done,
}

#[derive(Debug)]
pub(crate) struct Slot {
    id: PacketId,
    pub(crate) state: SlotState,
    /// Sent on the present connection, so it counts against Receive Maximum.
    pub(crate) sent: bool,
    /// The store does not have the packet id yet, so nothing can be sent under it.
    awaits_store: bool,
    never_sent: bool,
    hold: Option<Hold>,
}

#[derive(Clone, Debug)]
pub enum InFlight {
    Published(OutboxEntry),
    /// Has its packet id, but was never sent.
    Unsent(OutboxEntry),
    Released(Option<StoredPosition>),
}

impl Slot {
    fn is_done(&self) -> bool {
        matches!(self.state, SlotState::Done)
    }
}

#[derive(Debug)]
pub(crate) struct Outbox {
    /// In the order of sending. Neither the first nor the last one is done.
    slots: VecDeque<Slot>,
    done: usize,
    next_id: PacketId,
    /// From `next_id` on, so many ids are not in use.
    free_ids: usize,
    skipped_ids: bool,
    /// Present once `next_id` ran into an id in use; `skipped_ids`: distances between ids no longer show the slots.
    used: Option<Box<UsedIds>>,
    /// Slots that left at the front; `used` numbers slots from there.
    removed: u64,
    /// Messages sent on the present connection that the client has not acknowledged.
    window: usize,
    /// Bytes of unacknowledged messages without a [`Hold`].
    uncounted: u64,
    /// Slots before this index were sent on the present connection.
    resend: usize,
    /// PUBRELs of slots before this index were sent on the present connection.
    release_again: usize,
    queue: VecDeque<QueuedEntry>,
    queue_bytes: u64,
    /// Replay points, and queued messages that they have supplied.
    replays: usize,
    queued_qos_0: usize,
    /// Positions in the queue at which the caller supplies retained messages, in order, where `taken` is the position of the first
    /// entry. Each is the position of the entry behind it.
    replay_points: VecDeque<u64>,
    taken: u64,
    reserved: Vec<PacketId>,
    /// Subscription and position of shared messages that the client has acknowledged.
    settled: Vec<(u64, StoredPosition)>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            slots: VecDeque::new(),
            done: 0,
            next_id: PacketId::MIN,
            free_ids: 0,
            skipped_ids: false,
            used: None,
            removed: 0,
            window: 0,
            uncounted: 0,
            resend: 0,
            release_again: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            replays: 0,
            queued_qos_0: 0,
            replay_points: VecDeque::new(),
            // Far from both ends, because entries are also supplied at the front.
            taken: u64::MAX / 2,
            reserved: Vec::new(),
            settled: Vec::new(),
        }
    }
}

impl Outbox {
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.is_empty()
            && self.queue.is_empty()
            && self.replay_points.is_empty()
            && self.settled.is_empty()
    }

    pub(crate) fn window(&self) -> usize {
        self.window
    }

    /// There is room for a new message, which needs a packet id, too.
    pub(crate) fn has_room(&self, window_max: usize) -> bool {
        self.window + self.unsent() < window_max
    }

    /// Messages with a packet id that this connection has not sent.
    pub(crate) fn unsent(&self) -> usize {
        self.slots.len() - self.resend
    }

    /// A message can be sent directly without overtaking another.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.queue.is_empty() && self.replay_points.is_empty() && self.resend == self.slots.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.done + self.queue.len()
    }

    pub(crate) fn push(&mut self, entry: OutboxEntry, hold: Option<Hold>) {
        self.count_without(hold.as_ref(), &entry);
        let (id, state) = (self.take_id(), SlotState::Published(entry));
        self.slots.push_back(Slot { id, state, sent: true, awaits_store: false, never_sent: false, hold });
        self.resend = self.slots.len();
        self.window += 1;
    }

    /// Assigns [`Outbox::next_id`] to a message that is sent after all before it, and with `awaits_store` once the store has the
    /// id.
    pub(crate) fn append(&mut self, entry: OutboxEntry, hold: Option<Hold>, awaits_store: bool) {
        self.count_without(hold.as_ref(), &entry);
        let (id, state) = (self.take_id(), SlotState::Published(entry));
        self.reserved.extend(awaits_store.then_some(id));
        self.slots.push_back(Slot { id, state, sent: false, awaits_store, never_sent: true, hold });
    }

    pub(crate) fn settle(&mut self, shared: u64, position: StoredPosition) {
        self.settled.push((shared, position));
    }

    pub(crate) fn take_settled(&mut self) -> Vec<(u64, StoredPosition)> {
        std::mem::take(&mut self.settled)
    }

    pub(crate) fn take_reserved(&mut self) -> Vec<(PacketId, OutboxEntry)> {
        let reserved = std::mem::take(&mut self.reserved);
        let entry = |id: PacketId| match &self.slots[self.index_of(id)?].state {
            SlotState::Published(entry) => Some((id, entry.clone())),
            _ => None,
        };
        reserved.into_iter().filter_map(entry).collect()
    }

    pub(crate) fn has_reserved(&self) -> bool {
        !self.reserved.is_empty()
    }

    pub(crate) fn confirm(&mut self, id: PacketId) {
        if let Some(index) = self.index_of(id) {
            self.slots[index].awaits_store = false;
        }
    }

    /// Unacknowledged messages in the order of sending, then those whose packet id is not stored, which the client never
    /// received.
    pub(crate) fn in_flight(&self) -> (Vec<(PacketId, InFlight)>, Vec<&OutboxEntry>) {
        let (mut sent, mut unseen) = (Vec::new(), Vec::new());
        for slot in &self.slots {
            let id = slot.id;
            match &slot.state {
                SlotState::Published(entry) if slot.never_sent => unseen.push(entry),
                SlotState::Published(entry) => sent.push((id, InFlight::Published(entry.clone()))),
                SlotState::Releasing(position) | SlotState::Released(position) => {
                    sent.push((id, InFlight::Released(*position)));
                }
                SlotState::Done => {}
            }
        }
        (sent, unseen)
    }

    /// Removes and returns the messages that were never sent although the caller got their packet ids to store them.
    pub(crate) fn take_begun(
        &mut self,
        wanted: impl Fn(&OutboxEntry) -> bool,
    ) -> Vec<(PacketId, OutboxEntry)> {
        let mut begun = Vec::new();
        for slot in &mut self.slots {
            let is_begun = slot.never_sent
                && !self.reserved.contains(&slot.id)
                && matches!(&slot.state, SlotState::Published(entry) if entry.qos == QoS::ExactlyOnce && wanted(entry));
            if is_begun {
                slot.uncount(&mut self.uncounted);
            }
            if is_begun
                && let SlotState::Published(entry) = std::mem::replace(&mut slot.state, SlotState::Done)
            {
                begun.push((slot.id, entry));
            }
        }
        self.done += begun.len();
        begun.iter().for_each(|(id, _)| self.free_id(*id));
        self.remove_done();
        begun
    }

    pub(crate) fn is_in_use(&self, id: PacketId) -> bool {
        self.index_of(id).is_some()
    }

    pub(crate) fn position_of(&self, id: PacketId) -> Option<StoredPosition> {
        match &self.slots[self.index_of(id)?].state {
            SlotState::Published(entry) => entry.message.position(),
            SlotState::Releasing(position) | SlotState::Released(position) => *position,
            SlotState::Done => None,
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &OutboxEntry> {
        let slots = self.slots.iter().filter_map(|slot| match &slot.state {
            SlotState::Published(entry) => Some(entry),
            _ => None,
        });
        slots.chain(self.queue())
    }

    pub(crate) fn restored(in_flight: Vec<(PacketId, InFlight)>) -> Self {
        let mut outbox = Self::default();
        let (Some((first, _)), Some((last, _))) = (in_flight.first(), in_flight.last()) else {
            return outbox;
        };
        outbox.next_id = id_after(*last, 1);
        let has_unordered_ids = !in_flight.is_sorted_by_key(|(id, _)| distance(*first, *id));
        outbox.slots.extend(in_flight.into_iter().map(|(id, in_flight)| {
            let never_sent = matches!(in_flight, InFlight::Unsent(_));
            let state = match in_flight {
                InFlight::Published(entry) | InFlight::Unsent(entry) => SlotState::Published(entry),
                InFlight::Released(position) => SlotState::Released(position),
            };
            Slot { id, state, sent: false, awaits_store: false, never_sent, hold: None }
        }));
        outbox.uncounted = outbox.entries().map(OutboxEntry::bytes_held).sum();
        if has_unordered_ids {
            outbox.switch_to_numbers();
        }
        outbox
    }

    pub(crate) fn state(&self, id: PacketId) -> Option<&SlotState> {
        match &self.slots[self.index_of(id)?] {
            // The client cannot acknowledge what it never got.
            Slot { state: SlotState::Done, .. } | Slot { never_sent: true, .. } => None,
            slot => Some(&slot.state),
        }
    }

    /// Handles a PUBREC: frees the message but not its packet id. `sends_pubrel` is false while the
    /// store does not know of the PUBREC yet.
    pub(crate) fn release(&mut self, id: PacketId, sends_pubrel: bool) {
        let Some(index) = self.index_of(id) else { return };
        self.slots[index].uncount(&mut self.uncounted);
        let state = &mut self.slots[index].state;
        let position = match &*state {
            SlotState::Published(entry) => {
                self.settled.extend(entry.settles());
                entry.message.position()
            }
            SlotState::Releasing(position) | SlotState::Released(position) => *position,
            SlotState::Done => return,
        };
        *state = if sends_pubrel { SlotState::Released(position) } else { SlotState::Releasing(position) };
    }

    /// Handles a PUBACK, PUBCOMP or refusing PUBREC: frees the packet id.
    pub(crate) fn complete(&mut self, id: PacketId) {
        let Some(index) = self.index_of(id) else { return };
        let slot = &mut self.slots[index];
        slot.uncount(&mut self.uncounted);
        if let SlotState::Published(entry) = &slot.state {
            self.settled.extend(entry.settles());
        }
        slot.state = SlotState::Done;
        self.done += 1;
        if slot.sent {
            slot.sent = false;
            self.window -= 1;
        }
        self.free_id(id);
        self.remove_done();
        if self.slots.is_empty() && self.slots.capacity() > crate::EMPTY_CAPACITY_MAX {
            self.slots = VecDeque::new();
        }
    }

    fn remove_done(&mut self) {
        while self.slots.pop_front_if(|slot| slot.is_done()).is_some() {
            self.done -= 1;
            self.removed += 1;
            self.resend = self.resend.saturating_sub(1);
            self.release_again = self.release_again.saturating_sub(1);
        }
        while self.slots.pop_back_if(|slot| slot.is_done()).is_some() {
            self.done -= 1;
        }
        self.resend = self.resend.min(self.slots.len());
        if self.done > DONE_MAX && self.done > self.slots.len() / 2 {
            self.resend -= self.slots.range(..self.resend).filter(|slot| slot.is_done()).count();
            self.slots.retain(|slot| !slot.is_done());
            (self.done, self.release_again) = (0, 0);
            self.renumber_slots();
        }
        if self.slots.is_empty() && !self.skipped_ids {
            self.used = None;
        }
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
