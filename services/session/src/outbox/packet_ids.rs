//! Assigns packet ids to the outgoing QoS 1 and 2 PUBLISHes of a session, and finds the slot of an id when the client
//! acknowledges it.

use std::collections::{HashMap, HashSet};

use millrace_mqtt::PacketId;

use super::{Outbox, Slot};

pub(super) const PACKET_IDS: usize = 65_535;
const WORDS: usize = 1_024;

/// The ids in use, so that finding a free id, or the slot of an id, does not look at every slot. Present once ids in use stand
/// in the way of new ones.
#[derive(Debug)]
pub(super) struct UsedIds {
    /// One bit for each id, the first one for id 1.
    bits: Box<[u64; WORDS]>,
    /// The numbers of the slots, counted from the first slot of the outbox. Only when ids were skipped: otherwise distances
    /// between ids show the slots.
    numbers: HashMap<PacketId, u64, foldhash::fast::FixedState>,
}

impl UsedIds {
    fn new<'s>(slots: impl Iterator<Item = &'s Slot>) -> Self {
        let mut used = Self { bits: Box::new([0; WORDS]), numbers: HashMap::default() };
        slots.filter(|slot| !slot.is_done()).for_each(|slot| used.insert(slot.id));
        used
    }

    fn insert(&mut self, id: PacketId) {
        let index = usize::from(id.get()) - 1;
        self.bits[index / 64] |= 1 << (index % 64);
    }

    fn remove(&mut self, id: PacketId) {
        let index = usize::from(id.get()) - 1;
        self.bits[index / 64] &= !(1 << (index % 64));
        self.numbers.remove(&id);
    }

    /// Steps from `from` to the next id that is used, or to the next one that is not.
    fn steps_to(&self, from: PacketId, used: bool) -> Option<usize> {
        let from = usize::from(from.get()) - 1;
        (0..=WORDS).find_map(|n| {
            let index = (from / 64 + n) % WORDS;
            count_step();
            let mut found = if used { self.bits[index] } else { !self.bits[index] };
            if index == WORDS - 1 {
                // There is no id 65,536.
                found &= u64::MAX >> 1;
            }
            if n == 0 {
                found &= u64::MAX << (from % 64);
            }
            let at = index * 64 + found.trailing_zeros() as usize;
            (found != 0).then(|| (at + PACKET_IDS - from) % PACKET_IDS)
        })
    }
}

#[cfg(test)]
thread_local! {
    /// Slots and parts of the bitmap that look-ups have visited.
    pub(super) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn count_step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

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
        if self.slots.is_empty() {
            self.free_ids = PACKET_IDS;
            return;
        }
        let used = self.used.get_or_insert_with(|| Box::new(UsedIds::new(self.slots.iter())));
        let skipped = used.steps_to(self.next_id, false).unwrap_or(0);
        self.next_id = id_after(self.next_id, skipped);
        self.free_ids = used.steps_to(self.next_id, true).unwrap_or(PACKET_IDS);
        if skipped > 0 && !self.skipped_ids {
            self.switch_to_numbers();
        }
    }

    /// From here on the slots of ids are found by their numbers, which [`Self::renumber_slots`] must follow when slots move.
    pub(super) fn switch_to_numbers(&mut self) {
        self.skipped_ids = true;
        self.used.get_or_insert_with(|| Box::new(UsedIds::new(self.slots.iter())));
        self.renumber_slots();
    }

    pub(super) fn renumber_slots(&mut self) {
        let Some(used) = self.used.as_mut().filter(|_| self.skipped_ids) else { return };
        let slots = (self.removed..).zip(&self.slots).filter(|(_, slot)| !slot.is_done());
        used.numbers = slots.map(|(number, slot)| (slot.id, number)).collect();
    }

    /// The id of the slot that is appended next.
    pub(super) fn take_id(&mut self) -> PacketId {
        let id = self.next_id();
        self.next_id = id_after(id, 1);
        self.free_ids -= 1;
        if let Some(used) = &mut self.used {
            used.insert(id);
            if self.skipped_ids {
                used.numbers.insert(id, self.removed + self.slots.len() as u64);
            }
        }
        id
    }

    pub(super) fn free_id(&mut self, id: PacketId) {
        if let Some(used) = &mut self.used {
            used.remove(id);
        }
    }

    /// True if the ids alone do not show the order of sending. The rows of messages in flight have this flag; the loader
    /// then sorts them by their positions. If all ids lie within half of the circle, the widest gap between them is before the oldest message.
    pub(crate) fn has_unordered_ids(&self) -> bool {
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

    /// Tries the index that follows from the id of the first or the last slot, which removed slots
    /// shift; then it searches.
    pub(super) fn index_of(&self, id: PacketId) -> Option<usize> {
        let is_at =
            |index: &usize| self.slots.get(*index).is_some_and(|slot| slot.id == id && !slot.is_done());
        if let Some(used) = self.used.as_ref().filter(|_| self.skipped_ids) {
            count_step();
            let number = *used.numbers.get(&id)?;
            return usize::try_from(number - self.removed).ok().filter(is_at);
        }
        let first = self.slots.front()?.id;
        let from_front = distance(first, id);
        let from_back = self.slots.len().wrapping_sub(1 + distance(id, self.slots.back()?.id));
        [from_front, from_back].into_iter().find(is_at).or_else(|| {
            self.slots.binary_search_by_key(&from_front, |slot| distance(first, slot.id)).ok().filter(is_at)
        })
    }
}
