//! Members of a stored shared subscription that had no room for a message, because their queue or the memory of all queues is
//! full. From then on a member gets as many messages as it acknowledges, and others get the rest. Without others the messages wait
//! in the stream.

use std::collections::BTreeMap;

use millrace_router::{ShareGroup, Target};

use super::StreamKey;
use super::stream_turns::StreamTurns;
use super::writer::Writer;
use crate::elsewhere::is_here;

/// With more full members than this, all members of the group share one room, because each choice of a member looks at all full ones.
const MEMBERS_MAX: usize = 256;
/// A member with room for this many messages is no longer full.
const ROOM_MAX: u32 = 64;
/// Groups of which one full member gets a message at a tick, because memory that others freed is not announced.
const PROBES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct FullMembers {
    /// The messages that each full member may get.
    room: BTreeMap<Target, u32>,
    /// The messages that all members together may get.
    of_all: Option<u32>,
    /// One message may go to a member without room.
    may_probe: bool,
}

impl FullMembers {
    pub(super) fn refuse(&mut self, member: Target) {
        if self.of_all.is_none() && (self.room.len() < MEMBERS_MAX || self.room.contains_key(&member)) {
            self.room.insert(member, 0);
        } else {
            self.room.clear();
            self.of_all = Some(0);
        }
    }

    /// The room doubles while the member acknowledges all messages.
    pub(super) fn settle(&mut self, member: Target) {
        let Some(room) = self.room.get_mut(&member).or(self.of_all.as_mut()) else { return };
        *room += 2;
        if *room > ROOM_MAX {
            self.forget(member);
            self.of_all = None;
        }
    }

    pub(super) fn forget(&mut self, member: Target) {
        self.room.remove(&member);
    }

    pub(super) fn takes(&self, member: Target) -> bool {
        let room = self.room.get(&member).copied().or(self.of_all);
        room.is_none_or(|room| room > 0 || self.may_probe)
    }

    pub(super) fn send_to(&mut self, member: Target) {
        match self.room.get_mut(&member).or(self.of_all.as_mut()) {
            None => {}
            Some(0) => self.may_probe = false,
            Some(room) => *room -= 1,
        }
    }

    /// How many messages the members on this pod may get, at most `most`.
    pub(super) fn room(&self, group: &ShareGroup, most: usize) -> usize {
        let is_free = |member| is_here(member) && !self.room.contains_key(&member);
        if self.of_all.is_none() && (self.room.is_empty() || group.has_online(is_free)) {
            return most;
        }
        let room: u32 = self.room.values().copied().chain(self.of_all).sum();
        most.min(room as usize + usize::from(self.may_probe))
    }

    fn probe(&mut self, online: usize) -> bool {
        // Members that left while they were full are still in `room`.
        if self.room.len() > online {
            *self = Self::default();
        }
        self.may_probe = !self.room.is_empty() || self.of_all.is_some();
        self.may_probe
    }
}

impl Writer<'_> {
    pub(super) fn full_members(&mut self, key: StreamKey) -> Option<&mut FullMembers> {
        if self.shared.is_shared { self.claims.full_members(key) } else { self.groups.full_members(key) }
    }

    /// Lets some groups with full members try again whether these have room.
    pub(super) fn probe_full_members(&mut self) {
        let keys: Vec<StreamKey> = std::iter::from_fn(|| self.full_turns().pop()).take(PROBES).collect();
        for key in keys {
            let online = self.shared.brokers.peek(key.0).and_then(|broker| {
                let stored = broker.streams.group(key.1)?;
                Some(broker.router.snapshot().group(&stored.name, &stored.filter)?.online())
            });
            if self.full_members(key).is_some_and(|full| full.probe(online.unwrap_or(0))) {
                self.full_turns().add(key);
            }
            self.look_for_more(key);
        }
    }

    fn full_turns(&mut self) -> &mut StreamTurns {
        if self.shared.is_shared {
            &mut self.claims.with_full_members
        } else {
            &mut self.groups.with_full_members
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(slot: u32) -> Target {
        Target { core: 0, slot, generation: 1 }
    }

    #[test]
    fn a_full_member_gets_as_many_as_it_acknowledges_until_it_has_room() {
        let mut full = FullMembers::default();
        let (one, other) = (member(1), member(2));
        full.refuse(one);
        assert!(!full.takes(one) && full.takes(other));
        let mut sent = 0;
        let mut send_all = |full: &mut FullMembers| {
            let before = sent;
            while sent < before + 1_000 && full.takes(one) {
                full.send_to(one);
                sent += 1;
            }
            sent - before
        };
        assert!(full.probe(2));
        assert_eq!(send_all(&mut full), 1);
        let mut rounds = Vec::new();
        while rounds.last() != Some(&1_000) {
            let before = rounds.last().copied().unwrap_or(1);
            (0..before).for_each(|_| full.settle(one));
            rounds.push(send_all(&mut full));
        }
        assert_eq!(rounds, [2, 4, 8, 16, 32, 64, 1_000]);
        assert!(!full.probe(2), "no member is full");
        full.refuse(one);
        full.settle(one);
        full.refuse(one);
        assert_eq!(send_all(&mut full), 0, "it has refused another one");
    }

    #[test]
    fn many_full_members_share_their_room() {
        let mut full = FullMembers::default();
        (0..10_000).for_each(|slot| full.refuse(member(slot)));
        assert!(full.room.is_empty() && !full.takes(member(20_000)));
        full.settle(member(3));
        assert!(full.takes(member(20_000)));
        (0..ROOM_MAX).for_each(|_| full.settle(member(3)));
        assert!(full.of_all.is_none() && !full.probe(10_000));
    }

    #[test]
    fn members_that_left_while_they_were_full_are_forgotten() {
        let mut full = FullMembers::default();
        (0..3).for_each(|slot| full.refuse(member(slot)));
        assert!(full.probe(3) && !full.probe(2));
        assert!(full.room.is_empty());
    }
}
