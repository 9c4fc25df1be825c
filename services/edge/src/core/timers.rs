//! A coarse calendar of deadlines, in seconds, and what a core does when they pass. Each core has one for all its connections and
//! sessions.

use std::collections::BTreeMap;

use millrace_session::Seconds;

use super::{Core, work};

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

/// Entries by second. Nothing is ever cancelled: an outdated entry is checked once and dropped.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    days: BTreeMap<Seconds, Vec<Due>>,
}

impl Calendar {
    pub(crate) fn add(&mut self, at: Seconds, due: Due) {
        self.days.entry(at).or_default().push(due);
    }

    /// Takes the deadlines of one second up to `now`.
    pub(crate) fn take(&mut self, now: Seconds) -> Option<Vec<Due>> {
        let entry = self.days.first_entry()?;
        (*entry.key() <= now).then(|| entry.remove())
    }

    pub(crate) fn next(&self) -> Option<Seconds> {
        self.days.first_key_value().map(|(at, _)| *at)
    }
}

impl Core {
    pub(super) fn look_at_due(&mut self) {
        while let Some(all) = self.calendar.take(self.now) {
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
        assert_eq!(calendar.take(2), None);
        assert_eq!(calendar.next(), Some(3));
        assert_eq!(calendar.take(9), Some(vec![Due::Accept]));
        assert_eq!(calendar.take(9), Some(vec![Due::Session { slot: 1, generation: 1 }, Due::Accept]));
        assert_eq!(calendar.take(9), None);
        assert_eq!(calendar.next(), None);
    }
}
