//! Replays that join those of an earlier SUBSCRIBE, because a session marks only so many slots in its queue.

use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::slot::{DueReplay, DueReplays};

/// Where the replay of each filter waits in the session's last slot. The indexes stay valid, because no replay of the last
/// slot begins before the earlier slots are done. Then [`super::SessionReplay`] clears them.
#[derive(Default)]
pub(super) struct Late {
    /// The hash of each filter and its index, but not the filter, so that many are dropped at once.
    of: HashTable<(u64, usize)>,
    hasher: RandomState,
    ended: usize,
}

impl Late {
    /// Returns true if the replay replaces one of the same filter.
    pub(super) fn push(&mut self, last: &mut DueReplays, waiting: DueReplay) -> bool {
        let hash = self.hasher.hash_one(waiting.filter());
        let is_same = |(of, at): &(u64, usize)| *of == hash && last[*at].filter() == waiting.filter();
        match self.of.entry(hash, is_same, |(of, _)| *of) {
            Entry::Occupied(at) => {
                last[at.get().1] = waiting;
                true
            }
            Entry::Vacant(new) => {
                new.insert((hash, last.len()));
                last.push_back(waiting);
                false
            }
        }
    }

    /// The subscription has ended. Ended replays are removed once they are the larger part.
    pub(super) fn end(&mut self, last: &mut DueReplays, filter: &str) {
        let hash = self.hasher.hash_one(filter);
        let is_same = |(of, at): &(u64, usize)| *of == hash && last[*at].filter() == filter;
        if let Ok(found) = self.of.find_entry(hash, is_same) {
            let ((_, at), _) = found.remove();
            last[at].end();
            self.ended += 1;
        }
        if self.ended * 2 > last.len() {
            self.compact(last);
        }
    }

    fn compact(&mut self, last: &mut DueReplays) {
        let mut index = 0;
        let moved: Vec<usize> = last
            .iter()
            .map(|waiting| {
                index += usize::from(!waiting.has_ended());
                index.saturating_sub(1)
            })
            .collect();
        last.retain(|waiting| !waiting.has_ended());
        last.shrink_to(last.len() * 2);
        self.of.iter_mut().for_each(|(_, at)| *at = moved[*at]);
        self.ended = 0;
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::QoS;

    use super::*;
    use crate::jobs::replay::{Replay, RetainedPages};

    fn waiting(filter: &str) -> DueReplay {
        let (filter, qos, pages) = (filter.into(), QoS::AtLeastOnce, RetainedPages::default().into());
        DueReplay::from(Replay {
            filter,
            qos,
            identifier: 0,
            left_out: 0,
            before: None,
            retained: None,
            pages,
        })
    }

    #[test]
    fn filters_that_come_and_go_leave_no_replays() {
        let (mut late, mut last) = (Late::default(), DueReplays::new());
        last.push_back(waiting("of the place"));
        assert!(!late.push(&mut last, waiting("stays")));
        for number in 0..10_000 {
            let filter = format!("f/{number}");
            assert!(!late.push(&mut last, waiting(&filter)));
            late.end(&mut last, &filter);
            assert!(last.len() <= 6, "{}", last.len());
        }
        assert_eq!(late.of.len(), 1);
        assert!(late.push(&mut last, waiting("stays")), "it is replaced");
        late.end(&mut last, "stays");
        late.end(&mut last, "was never there");
        assert_eq!(last.iter().filter(|waiting| !waiting.has_ended()).count(), 1);
    }

    #[test]
    fn indexes_hold_after_others_have_ended() {
        let (mut late, mut last) = (Late::default(), DueReplays::new());
        let filters: Vec<String> = (0..100).map(|number| format!("f/{number}")).collect();
        for filter in &filters {
            late.push(&mut last, waiting(filter));
        }
        filters[..70].iter().for_each(|filter| late.end(&mut last, filter));
        for filter in &filters[70..] {
            assert!(late.push(&mut last, waiting(filter)));
        }
        filters[70..].iter().for_each(|filter| late.end(&mut last, filter));
        assert!(last.is_empty());
    }
}
