//! The SUBSCRIBE packets of a session that the store has not answered.
//!
//! A client may end a subscription and make it again before the store has answered the first SUBSCRIBE, and a SUBSCRIBE that waits
//! for retained messages is answered after later packets. So an answer holds only for filters that no UNSUBSCRIBE has ended since.

use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Unanswered {
    /// Number of the last SUBSCRIBE, from 1.
    last: u64,
    filters: HashMap<Box<str>, OfFilter, foldhash::fast::RandomState>,
}

#[derive(Default)]
struct OfFilter {
    /// Unanswered SUBSCRIBE packets with the filter.
    packets: u32,
    /// The part of them that no UNSUBSCRIBE has ended.
    current: u32,
    /// An UNSUBSCRIBE has ended the SUBSCRIBE packets up to this number.
    ended: u64,
}

impl Unanswered {
    /// Adds a SUBSCRIBE. Returns its number.
    pub(super) fn add<'f>(&mut self, filters: impl Iterator<Item = &'f str>) -> u64 {
        self.last += 1;
        for filter in filters {
            let of = self.filters.entry(filter.into()).or_default();
            of.packets += 1;
            of.current += 1;
        }
        self.last
    }

    /// An UNSUBSCRIBE has ended the subscription to a filter.
    pub(super) fn end(&mut self, filter: &str) {
        if let Some(of) = self.filters.get_mut(filter) {
            (of.ended, of.current) = (self.last, 0);
        }
    }

    /// Removes a filter of an answered SUBSCRIBE. Returns whether an UNSUBSCRIBE has ended the filter since.
    pub(super) fn remove(&mut self, number: u64, filter: &str) -> bool {
        let Some(of) = self.filters.get_mut(filter) else { return false };
        let is_ended = number <= of.ended;
        of.packets -= 1;
        of.current -= u32::from(!is_ended);
        if of.packets == 0 {
            self.filters.remove(filter);
            if self.filters.is_empty() {
                self.filters.shrink_to_fit();
            }
        }
        is_ended
    }

    /// Whether a SUBSCRIBE with this filter is unanswered, and no UNSUBSCRIBE has ended the filter since.
    pub(super) fn has(&self, filter: &str) -> bool {
        self.filters.get(filter).is_some_and(|of| of.current > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_hold_until_an_unsubscribe_ends_their_filter() {
        let mut unanswered = Unanswered::default();
        let one = unanswered.add(["a", "b"].into_iter());
        let two = unanswered.add(["a"].into_iter());
        unanswered.end("a");
        unanswered.end("c");
        let three = unanswered.add(["a"].into_iter());
        assert!(unanswered.remove(one, "a") && unanswered.has("a"));
        assert!(!unanswered.remove(three, "a") && !unanswered.has("a"));
        assert!(unanswered.remove(two, "a") && unanswered.has("b"));
        assert!(!unanswered.remove(one, "b"));
        assert!(unanswered.filters.is_empty());
        let four = unanswered.add(["a"].into_iter());
        assert!(!unanswered.remove(four, "a"));
    }
}
