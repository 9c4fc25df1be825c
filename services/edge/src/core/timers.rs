//! A coarse calendar: what is due in which second. One a core serves all its connections and sessions.

use std::collections::BTreeMap;

use millrace_session::Seconds;

/// What to look at when its second comes. The generation tells whether the slot is still what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// CONNECT is due, or the keep alive has passed, or a closing connection lingers.
    Connection { slot: u32, generation: u32 },
    /// A client that does not read its answers has had its time.
    Answers { slot: u32, generation: u32 },
    /// A will or the end of a session without connection.
    Session { slot: u32, generation: u32 },
    /// Accepting failed and is to be tried again.
    Accept,
    /// The `$SYS` topics are to be updated.
    Sys,
    /// Sessions look for what other pods have written.
    LookAround,
    /// What sessions have acknowledged is to be stored.
    Checkpoints,
}

/// Entries by second. Nothing is ever cancelled: an entry that is no longer wanted is looked at once and dropped.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    days: BTreeMap<Seconds, Vec<Due>>,
}

impl Calendar {
    pub(crate) fn add(&mut self, at: Seconds, due: Due) {
        self.days.entry(at).or_default().push(due);
    }

    /// Takes what is due at `now`, a second at a time.
    pub(crate) fn take(&mut self, now: Seconds) -> Option<Vec<Due>> {
        let entry = self.days.first_entry()?;
        (*entry.key() <= now).then(|| entry.remove())
    }

    /// The next second with something due.
    pub(crate) fn next(&self) -> Option<Seconds> {
        self.days.first_key_value().map(|(at, _)| *at)
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
