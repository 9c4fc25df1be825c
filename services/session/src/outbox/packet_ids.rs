//! Assigns packet ids to the outgoing QoS 1 and 2 PUBLISHes of a session, and finds the slot of an id when the client
//! acknowledges it.

use std::collections::HashSet;

use millrace_mqtt::PacketId;

use super::Outbox;

pub(super) const PACKET_IDS: usize = 65_535;

/// The id `n` steps after `id`; 1 follows 65,535.
pub(super) fn id_after(id: PacketId, n: usize) -> PacketId {
    let zero_based = (usize::from(id.get()) - 1 + n) % PACKET_IDS;
    // At most 65,534, so neither conversion nor addition can fail.
    PacketId::MIN.saturating_add(u16::try_from(zero_based).unwrap_or(0))
}

/// Steps from `from` up to `to`, 0 to 65,534; 1 follows 65,535.
pub(super) fn distance(from: PacketId, to: PacketId) -> usize {
    (usize::from(to.get()) + PACKET_IDS - usize::from(from.get())) % PACKET_IDS
}

impl Outbox {
    /// The id that [`Outbox::push`] or [`Outbox::reserve`] will assign: the next one that no unacknowledged message has.
    //= [MQTT-2.2.1-4] v5
    pub(crate) fn next_id(&mut self) -> PacketId {
        if self.free_ids == 0 {
            self.find_free_ids();
        }
        self.next_id
    }

    /// Moves `next_id` past used ids and counts the unused ones that follow it. [`Outbox::has_room`] keeps at least one id
    /// unused.
    fn find_free_ids(&mut self) {
        let used = self.slots.iter().filter(|slot| !slot.is_done());
        let mut ahead: Vec<usize> = used.map(|slot| distance(self.next_id, slot.id)).collect();
        ahead.sort_unstable();
        // The used ids directly at `next_id`: their sorted distances equal their indexes.
        let skipped = ahead.iter().enumerate().take_while(|(index, ahead)| index == *ahead).count();
        let until = ahead.get(skipped).copied().unwrap_or(PACKET_IDS);
        self.next_id = id_after(self.next_id, skipped);
        self.free_ids = until - skipped;
        self.skipped_ids |= skipped > 0;
    }

    pub(super) fn take_id(&mut self) -> PacketId {
        let id = self.next_id();
        self.next_id = id_after(id, 1);
        self.free_ids -= 1;
        id
    }

    /// True if the ids alone do not show the order of sending. The rows of messages in flight have this flag; the loader
    /// then sorts them by their positions. Below half of all ids, the widest gap is always before the oldest message.
    pub(crate) fn has_skipped_ids(&self) -> bool {
        let ends = self.slots.front().zip(self.slots.back());
        self.skipped_ids || ends.is_some_and(|(first, last)| distance(first.id, last.id) >= PACKET_IDS / 2)
    }

    /// The unused ids, in the order in which they would be assigned.
    pub(crate) fn unused_ids(&self) -> impl Iterator<Item = PacketId> + use<> {
        let slots = self.slots.iter().filter(|slot| !slot.is_done());
        let used: HashSet<PacketId> = slots.map(|slot| slot.id).collect();
        let next = self.next_id;
        (0..PACKET_IDS).map(move |n| id_after(next, n)).filter(move |id| !used.contains(id))
    }

    /// The slot of a used id. Tries the index that follows from the id of the first or the last slot, which removed slots
    /// shift; then it searches.
    pub(super) fn index_of(&self, id: PacketId) -> Option<usize> {
        let is_at =
            |index: &usize| self.slots.get(*index).is_some_and(|slot| slot.id == id && !slot.is_done());
        let first = self.slots.front()?.id;
        let from_front = distance(first, id);
        let from_back = self.slots.len().wrapping_sub(1 + distance(id, self.slots.back()?.id));
        let found = [from_front, from_back].into_iter().find(is_at);
        if found.is_some() || self.skipped_ids {
            return found.or_else(|| (0..self.slots.len()).find(is_at));
        }
        self.slots.binary_search_by_key(&from_front, |slot| distance(first, slot.id)).ok().filter(is_at)
    }
}
