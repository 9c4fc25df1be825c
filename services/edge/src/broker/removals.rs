//! Positions at which retained messages were removed: an older message of another pod that comes later must not return to memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use millrace_session::StoredPosition;

use crate::limits::RETAINED_REMOVALS_BYTES_MAX;

/// Estimated memory of an entry without its topic, bytes.
const ENTRY_BYTES: usize = 160;

#[derive(Default)]
pub(super) struct Removals {
    at: HashMap<Arc<str>, StoredPosition>,
    oldest_first: BTreeSet<(StoredPosition, Arc<str>)>,
    bytes: usize,
}

impl Removals {
    pub(super) fn note(&mut self, topic: &str, position: StoredPosition) {
        self.forget(topic);
        let topic: Arc<str> = topic.into();
        self.bytes += ENTRY_BYTES + topic.len();
        self.at.insert(topic.clone(), position);
        self.oldest_first.insert((position, topic));
        while self.bytes > RETAINED_REMOVALS_BYTES_MAX
            && let Some((_, topic)) = self.oldest_first.first().cloned()
        {
            self.forget(&topic);
        }
    }

    pub(super) fn forget(&mut self, topic: &str) {
        if let Some((topic, position)) = self.at.remove_entry(topic) {
            self.bytes -= ENTRY_BYTES + topic.len();
            self.oldest_first.remove(&(position, topic));
        }
    }

    pub(super) fn is_after(&self, topic: &str, position: StoredPosition) -> bool {
        self.at.get(topic).is_some_and(|removed_at| *removed_at > position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_removals_are_known_as_far_as_there_is_room() {
        let mut removals = Removals::default();
        let topic = |number: u32| format!("{number:040}");
        let position = |number: u32| [[0; 8].as_slice(), &number.to_be_bytes()].concat().try_into().unwrap();
        let room = u32::try_from(RETAINED_REMOVALS_BYTES_MAX / (ENTRY_BYTES + 40)).unwrap();
        for number in (0..3 * room).rev() {
            removals.note(&topic(number), position(number));
            assert!(removals.bytes <= RETAINED_REMOVALS_BYTES_MAX);
        }
        let known = (0..3 * room).filter(|number| removals.is_after(&topic(*number), position(0)));
        assert!(known.eq(2 * room..3 * room));
        let last = 3 * room - 1;
        assert!(!removals.is_after(&topic(last), position(last)));
        removals.note(&topic(last), position(last + 1));
        assert!(removals.is_after(&topic(last), position(last)));
        (0..3 * room).for_each(|number| removals.forget(&topic(number)));
        assert_eq!((removals.bytes, removals.at.len(), removals.oldest_first.len()), (0, 0, 0));
    }
}
