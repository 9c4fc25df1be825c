//! A coarse calendar of deadlines, in quarters of a second, and what a core does when they pass. Each core has one for all its connections and
//! sessions.

use std::collections::BTreeMap;

use millrace_session::Seconds;

use super::{Core, work};
use crate::clock::{Ticks, ticks, ticks_of};

/// The generation shows whether the slot still holds the same connection or session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueTimer {
    /// The CONNECT is overdue, the keep alive has passed, or a closing connection has lingered.
    Connection {
        slot: u32,
        generation: u32,
    },
    /// A client must have read its waiting answers.
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
    days: BTreeMap<Ticks, Vec<DueTimer>>,
}

impl Calendar {
    pub(crate) fn add(&mut self, at: Seconds, due: DueTimer) {
        self.add_at(ticks_of(at), due);
    }

    pub(crate) fn add_at(&mut self, at: Ticks, due: DueTimer) {
        self.days.entry(at).or_default().push(due);
    }

    pub(crate) fn take(&mut self, now: Ticks) -> Option<Vec<DueTimer>> {
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
                DueTimer::Connection { slot, generation } => self.connection_due(slot, generation),
                DueTimer::Session { slot, generation } => self.session_due(slot, generation),
                DueTimer::Answers { slot, generation } => self.answers_due(slot, generation),
                DueTimer::Packet { slot, generation } => self.packet_due(slot, generation),
                DueTimer::Accept => self.listeners.retry(),
                DueTimer::Sys => self.publish_sys(),
                DueTimer::LookAround => self.look_around_now_and_then(),
                DueTimer::Checkpoints => self.save_all(),
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
        calendar.add(5, DueTimer::Session { slot: 1, generation: 1 });
        calendar.add(3, DueTimer::Accept);
        calendar.add(5, DueTimer::Accept);
        calendar.add_at(ticks_of(3) + 1, DueTimer::Sys);
        assert_eq!(calendar.take(ticks_of(3) - 1), None);
        assert_eq!(calendar.next(), Some(ticks_of(3)));
        let now = ticks_of(9);
        assert_eq!(calendar.take(now), Some(vec![DueTimer::Accept]));
        assert_eq!(calendar.take(now), Some(vec![DueTimer::Sys]));
        assert_eq!(
            calendar.take(now),
            Some(vec![DueTimer::Session { slot: 1, generation: 1 }, DueTimer::Accept])
        );
        assert_eq!(calendar.take(now), None);
        assert_eq!(calendar.next(), None);
    }
}
