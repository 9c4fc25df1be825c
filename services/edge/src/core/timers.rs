//! A coarse calendar of deadlines, in quarters of a second, and what a core does when they pass. Each core has one for all its connections and
//! sessions.

use std::collections::BTreeMap;

use millrace_session::Seconds;

use super::{Core, work};
use crate::clock::{Ticks, ticks, ticks_of};

/// The generation shows whether the slot still holds the same connection or session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The CONNECT is overdue, the keep alive has passed, or a closing connection has lingered.
    Connection {
        slot: u32,
        generation: u32,
    },
    Answers {
        slot: u32,
        generation: u32,
    },
    /// More of an incomplete packet must have come.
    Packet {
        slot: u32,
        generation: u32,
    },
    /// The will or the end of a session without connection.
    Session {
        slot: u32,
        generation: u32,
    },
    Accept,
    Sys,
    /// Sessions look for messages of other pods.
    LookAround,
    /// Acknowledgements are stored.
    Checkpoints,
}

/// Entries by tick. Nothing is ever cancelled: an outdated entry is checked once and dropped.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    days: BTreeMap<Ticks, Vec<Due>>,
}

impl Calendar {
    pub(crate) fn add(&mut self, at: Seconds, due: Due) {
        self.add_at(ticks_of(at), due);
    }

    pub(crate) fn add_at(&mut self, at: Ticks, due: Due) {
        self.days.entry(at).or_default().push(due);
    }

    pub(crate) fn take(&mut self, now: Ticks) -> Option<Vec<Due>> {
        let entry = self.days.first_entry()?;
        (*entry.key() <= now).then(|| entry.remove())
    }

    pub(crate) fn next(&self) -> Option<Ticks> {
        self.days.first_key_value().map(|(at, _)| *at)
    }
}

impl Core {
    pub(super) fn tick(&self) -> Ticks {
        ticks(self.now_ms)
    }

    pub(super) fn look_at_due(&mut self) {
        while let Some(all) = self.calendar.take(self.tick()) {
            self.unfinished.due.extend(all);
        }
        let end = self.work.spent() + work::TURN / 2; // Many deadlines may expire in the same second.
        while self.work.spent() < end
            && let Some(due) = self.unfinished.due.pop_front()
        {
            self.work.spend(work::PACKET);
            match due {
                Due::Connection { slot, generation } => self.connection_due(slot, generation),
                Due::Session { slot, generation } => self.session_due(slot, generation),
                Due::Answers { slot, generation } => self.answers_due(slot, generation),
                Due::Packet { slot, generation } => self.packet_due(slot, generation),
                Due::Accept => self.listeners.retry(),
                Due::Sys => self.publish_sys(),
                Due::LookAround => self.look_around_now_and_then(),
                Due::Checkpoints => self.save_all(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_when_due_and_in_order_of_time() {
        let mut calendar = Calendar::default();
        calendar.add(5, Due::Session { slot: 1, generation: 1 });
        calendar.add(3, Due::Accept);
        calendar.add(5, Due::Accept);
        calendar.add_at(ticks_of(3) + 1, Due::Sys);
        assert_eq!(calendar.take(ticks_of(3) - 1), None);
        assert_eq!(calendar.next(), Some(ticks_of(3)));
        let now = ticks_of(9);
        assert_eq!(calendar.take(now), Some(vec![Due::Accept]));
        assert_eq!(calendar.take(now), Some(vec![Due::Sys]));
        assert_eq!(calendar.take(now), Some(vec![Due::Session { slot: 1, generation: 1 }, Due::Accept]));
        assert_eq!(calendar.take(now), None);
        assert_eq!(calendar.next(), None);
    }
}
