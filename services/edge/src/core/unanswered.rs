//! The SUBSCRIBE packets of a session that the store has not answered.
//!
//! A SUBSCRIBE that waits for retained messages is answered after later packets with the same filter. So its answer says
//! nothing about a filter that an UNSUBSCRIBE has ended since, and its refusal does not end a subscription that another
//! SUBSCRIBE has made or still waits for. A SUBSCRIBE that takes several turns is known from its first turn on.

use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Unanswered {
    /// Number of the last SUBSCRIBE; the first one is 1.
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
    /// Number of the last SUBSCRIBE that has succeeded; 0: none.
    succeeded: u64,
    /// No SUBSCRIBE has succeeded since the session has the subscription.
    is_new: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answered {
    /// An UNSUBSCRIBE has ended the subscription after this SUBSCRIBE.
    pub(super) is_ended: bool,
    /// A later SUBSCRIBE has succeeded.
    pub(super) is_outdated: bool,
    /// The subscription ends if this SUBSCRIBE is refused: it is new, and no other SUBSCRIBE with it waits.
    pub(super) is_last: bool,
}

impl Unanswered {
    /// Returns the number of a further SUBSCRIBE.
    pub(super) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds a filter of the last SUBSCRIBE. `is_new`: the session did not have the subscription before.
    pub(super) fn add(&mut self, filter: &str, is_new: bool) {
        let of = self.filters.entry(filter.into()).or_default();
        of.packets += 1;
        of.current += 1;
        of.is_new |= is_new;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    pub(super) fn end(&mut self, filter: &str) {
        if let Some(of) = self.filters.get_mut(filter) {
            (of.ended, of.current, of.is_new) = (self.last, 0, false);
        }
    }

    pub(super) fn remove(&mut self, number: u64, filter: &str, has_succeeded: bool) -> Answered {
        let Some(of) = self.filters.get_mut(filter) else { return Answered::default() };
        let is_ended = number <= of.ended;
        of.packets -= 1;
        of.current -= u32::from(!is_ended);
        if has_succeeded && !is_ended {
            (of.succeeded, of.is_new) = (of.succeeded.max(number), false);
        }
        let is_last = !is_ended && of.is_new && of.current == 0;
        let answered = Answered { is_ended, is_outdated: of.succeeded > number, is_last };
        if of.packets == 0 {
            self.filters.remove(filter);
            if self.filters.is_empty() {
                self.filters.shrink_to_fit();
            }
        }
        answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: bool = true;
    const OLD: bool = false;

    fn subscribe(unanswered: &mut Unanswered, filters: &[(&str, bool)]) -> u64 {
        let number = unanswered.begin();
        filters.iter().for_each(|(filter, is_new)| unanswered.add(filter, *is_new));
        number
    }

    #[test]
    fn answers_hold_until_an_unsubscribe_ends_their_filter() {
        let mut unanswered = Unanswered::default();
        let one = subscribe(&mut unanswered, &[("a", NEW), ("b", NEW)]);
        let two = subscribe(&mut unanswered, &[("a", OLD)]);
        unanswered.end("a");
        unanswered.end("c");
        let three = subscribe(&mut unanswered, &[("a", NEW)]);
        assert!(unanswered.remove(one, "a", false).is_ended);
        assert_eq!(unanswered.remove(three, "a", false), Answered { is_last: true, ..Answered::default() });
        assert!(unanswered.remove(two, "a", false).is_ended);
        assert!(unanswered.remove(one, "b", false).is_last);
        assert!(unanswered.is_empty());
        let four = subscribe(&mut unanswered, &[("a", NEW)]);
        assert_eq!(unanswered.remove(four, "a", true), Answered::default());
    }

    #[test]
    fn the_last_refusal_ends_a_new_subscription_and_no_success_before_it() {
        for (was_there, succeeds, ends) in [(false, false, true), (false, true, false), (true, false, false)]
        {
            let mut unanswered = Unanswered::default();
            let one = subscribe(&mut unanswered, &[("a", !was_there)]);
            let two = subscribe(&mut unanswered, &[("a", OLD)]);
            let answered = unanswered.remove(two, "a", succeeds);
            assert!(!answered.is_last && !answered.is_outdated, "another one waits");
            let answered = unanswered.remove(one, "a", false);
            let expected = Answered { is_ended: false, is_outdated: succeeds, is_last: ends };
            assert_eq!(answered, expected, "there before: {was_there}");
        }
    }

    #[test]
    fn a_subscribe_that_takes_several_turns_keeps_a_filter_that_an_earlier_one_is_refused() {
        for (succeeds, ends) in [(true, false), (false, true)] {
            let mut unanswered = Unanswered::default();
            let one = subscribe(&mut unanswered, &[("a", NEW)]);
            let two = subscribe(&mut unanswered, &[("a", OLD)]);
            assert!(!unanswered.remove(one, "a", false).is_last, "the second one still adds filters");
            unanswered.add("b", NEW);
            assert_eq!(unanswered.remove(two, "a", succeeds).is_last, ends);
            assert_eq!(unanswered.remove(two, "b", succeeds).is_last, ends);
            assert!(unanswered.is_empty());
        }
    }
}
