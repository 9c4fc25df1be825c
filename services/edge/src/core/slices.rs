//! Work on all brokers or all sessions, a slice at a time: a loop never visits all of them in one turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::connection::NONE;
use super::timers::Due;
use super::{Core, work};
use crate::broker::Broker;
use crate::clock::Millis;

const SESSIONS: usize = 2_048;
/// Brokers per slice whose `$SYS` topics are published: some ten messages each.
const BROKERS: usize = 8;
const EVERY_MS: Millis = 2;

#[derive(Default)]
pub(super) struct Slices {
    /// Slot of the next session that may have to read messages that nobody announced.
    around: Option<usize>,
    /// Sessions of single brokers that may have to, by broker.
    around_brokers: BTreeMap<u64, Vec<u32>>,
    /// Whether sessions are due that read what they took as copies.
    pub(super) behind: bool,
    sys: Vec<Arc<Broker>>,
    last_ms: Millis,
}

impl Slices {
    pub(super) fn is_idle(&self) -> bool {
        self.around.is_none() && self.around_brokers.is_empty() && !self.behind && self.sys.is_empty()
    }
}

impl Core {
    /// Makes sessions that follow streams read messages that nobody announced: those of a broker, or all, slice by
    /// slice.
    pub(super) fn look_around(&mut self, broker: Option<u64>) {
        let Some(broker) = broker else {
            // Restarts from the first slice, because sessions visited before now must read again.
            self.unfinished.slices.around = Some(0);
            return;
        };
        let slots = self.by_broker.slots(broker);
        let sessions: Vec<u32> = slots.map(|slot| self.connections[slot as usize].session).collect();
        self.unfinished.slices.around_brokers.insert(broker, sessions);
    }

    pub(super) fn publish_sys(&mut self) {
        if self.unfinished.slices.sys.is_empty() {
            let mut brokers = self.process.brokers.all();
            brokers.retain(|broker| broker.has_clients() || broker.stays_open());
            self.unfinished.slices.sys = brokers;
        }
        let interval = u32::from(self.process.limits.sys_interval_s);
        self.calendar.add(self.now + interval, Due::Sys);
    }

    pub(super) fn next_slices(&mut self) {
        if self.unfinished.slices.is_idle() || self.now_ms < self.unfinished.slices.last_ms + EVERY_MS {
            return;
        }
        self.unfinished.slices.last_ms = self.now_ms;
        if let Some(at) = self.unfinished.slices.around.take() {
            let end = (at + SESSIONS).min(self.sessions.capacity());
            self.unfinished.slices.around = (end < self.sessions.capacity()).then_some(end);
            self.look_at((at..end).map(|session| u32::try_from(session).unwrap_or(NONE)));
        }
        if let Some((broker, mut sessions)) = self.unfinished.slices.around_brokers.pop_first() {
            let slice = sessions.split_off(sessions.len().saturating_sub(SESSIONS));
            if !sessions.is_empty() {
                self.unfinished.slices.around_brokers.insert(broker, sessions);
            }
            self.look_at(slice);
        }
        if self.unfinished.slices.behind {
            self.unfinished.slices.behind = self.read_behind(SESSIONS);
        }
        let rest = self.unfinished.slices.sys.len().saturating_sub(BROKERS);
        for broker in self.unfinished.slices.sys.split_off(rest) {
            self.publish_sys_of(&broker);
        }
    }

    fn look_at(&mut self, sessions: impl IntoIterator<Item = u32>) {
        for session in sessions {
            self.spend(work::SEEN);
            let persistent =
                self.sessions.get_mut(session as usize).and_then(|local| local.persistent.as_deref_mut());
            if persistent.is_some_and(|persistent| persistent.follows() && persistent.grow()) {
                self.read_on(session);
            }
        }
    }
}
