//! What concerns all brokers, or all sessions, a slice at a time: a loop never looks through all of them in one turn.

use std::sync::Arc;

use super::Core;
use super::connection::NONE;
use super::timers::Due;
use crate::broker::Broker;
use crate::clock::Millis;

/// Sessions that are looked at in a slice.
const SESSIONS: usize = 2_048;
/// Brokers whose `$SYS` topics are published in a slice: some ten messages each.
const BROKERS: usize = 8;
/// Time between slices, milliseconds.
const EVERY_MS: Millis = 2;

/// How far they have come.
#[derive(Default)]
pub(super) struct Slices {
    /// Place of the next session that may have to read what nobody announced.
    around: Option<usize>,
    /// Brokers whose `$SYS` topics are to be published.
    sys: Vec<Arc<Broker>>,
    last_ms: Millis,
}

impl Slices {
    pub(super) fn is_idle(&self) -> bool {
        self.around.is_none() && self.sys.is_empty()
    }
}

impl Core {
    /// Sessions that follow streams read what nobody announced: those of a broker, or all, slice by slice.
    pub(super) fn look_around(&mut self, broker: Option<u64>) {
        let Some(broker) = broker else {
            // A slice that was looked at before this is looked at again.
            self.slices.around = Some(0);
            return;
        };
        let slots = self.by_broker.slots(broker);
        let sessions: Vec<u32> = slots.map(|slot| self.connections[slot as usize].session).collect();
        self.look_at(sessions);
    }

    /// Has the `$SYS` topics of all brokers published, slice by slice.
    pub(super) fn publish_sys(&mut self) {
        if self.slices.sys.is_empty() {
            self.slices.sys = self.process.brokers.all();
        }
        let interval = u32::from(self.process.limits.sys_interval_s);
        self.calendar.add(self.now + interval, Due::Sys);
    }

    /// The next slices, when it is time.
    pub(super) fn next_slices(&mut self) {
        if self.slices.is_idle() || self.now_ms < self.slices.last_ms + EVERY_MS {
            return;
        }
        self.slices.last_ms = self.now_ms;
        if let Some(at) = self.slices.around.take() {
            let end = (at + SESSIONS).min(self.sessions.capacity());
            self.slices.around = (end < self.sessions.capacity()).then_some(end);
            self.look_at((at..end).map(|session| u32::try_from(session).unwrap_or(NONE)));
        }
        let rest = self.slices.sys.len().saturating_sub(BROKERS);
        for broker in self.slices.sys.split_off(rest) {
            self.publish_sys_of(&broker);
        }
    }

    fn look_at(&mut self, sessions: impl IntoIterator<Item = u32>) {
        for session in sessions {
            let kept = self.sessions.get_mut(session as usize).and_then(|homed| homed.kept.as_deref_mut());
            if kept.is_some_and(|kept| kept.follows() && kept.grow()) {
                self.read_on(session);
            }
        }
    }
}
