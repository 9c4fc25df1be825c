//! The SUBSCRIBE packets of a session that the store has not answered.
//!
//! A SUBSCRIBE that waits for retained messages is answered after later packets with the same filter. So its answer says
//! nothing about a filter that an UNSUBSCRIBE has ended since, and its refusal does not end a subscription that another
//! SUBSCRIBE has made or still waits for. A SUBSCRIBE that takes several turns is known from its first turn on.

use std::collections::{HashMap, HashSet};

use millrace_layers::Position;
use millrace_session::ClientSubscription;

#[derive(Default)]
pub(super) struct Unanswered {
    /// Number of the last SUBSCRIBE; the first one is 1.
    last: u64,
    filters: HashMap<Box<str>, FilterRequests, foldhash::fast::RandomState>,
    /// A live session reads the streams of their filters from here on: before, other loops may have routed messages to them.
    pub(super) read_from: Option<Position>,
    /// Filters of refused SUBSCRIBE packets that the store has.
    refused_but_stored: HashSet<Box<str>, foldhash::fast::RandomState>,
}

#[derive(Default)]
struct FilterRequests {
    /// Unanswered SUBSCRIBE packets with the filter.
    packets: u32,
    /// The part of them that no UNSUBSCRIBE has ended.
    current: u32,
    /// An UNSUBSCRIBE has ended the SUBSCRIBE packets up to this number.
    ended: u64,
    /// Number of the last SUBSCRIBE that has succeeded; 0: none.
    succeeded: u64,
    /// Number of the last SUBSCRIBE that was refused; 0: none.
    refused: u64,
    /// The subscription without the SUBSCRIBE packets that wait: the former one, or that of the last success.
    confirmed: Option<ClientSubscription>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answered {
    /// An UNSUBSCRIBE has ended the subscription after this SUBSCRIBE.
    pub(super) is_ended: bool,
    /// A later SUBSCRIBE has succeeded.
    pub(super) is_outdated: bool,
    /// The last SUBSCRIBE was refused and no other one waits: the subscription goes back to this, or ends.
    pub(super) goes_back: Option<Option<ClientSubscription>>,
}

impl Unanswered {
    /// Returns the number of a further SUBSCRIBE.
    pub(super) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds a filter of the last SUBSCRIBE. `former`: the subscription that it replaces.
    pub(super) fn add(&mut self, filter: &str, former: Option<ClientSubscription>) {
        let of = self.filters.entry(filter.into()).or_default();
        if of.current == 0 {
            of.confirmed = former;
        }
        of.packets += 1;
        of.current += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    pub(super) fn end(&mut self, filter: &str) {
        if let Some(of) = self.filters.get_mut(filter) {
            (of.ended, of.current) = (self.last, 0);
        }
    }

    pub(super) fn note_stored(&mut self, filter: &str, is_refused: bool) {
        if is_refused {
            self.refused_but_stored.insert(filter.into());
        } else {
            self.refused_but_stored.remove(filter);
        }
    }

    /// Whether the caller must restore the filter's former subscription in the store.
    pub(super) fn is_undone_in_store(&mut self, filter: &str) -> bool {
        self.refused_but_stored.remove(filter)
    }

    /// `granted`: the subscription that the answered SUBSCRIBE has made.
    pub(super) fn remove(
        &mut self,
        number: u64,
        filter: &str,
        granted: Option<ClientSubscription>,
    ) -> Answered {
        let Some(of) = self.filters.get_mut(filter) else { return Answered::default() };
        let is_ended = number <= of.ended;
        of.packets -= 1;
        of.current -= u32::from(!is_ended);
        let is_outdated = of.succeeded > number;
        if !is_ended && granted.is_none() {
            of.refused = of.refused.max(number);
        } else if !is_ended && !is_outdated {
            (of.succeeded, of.confirmed) = (number, granted);
        }
        let is_last_refused = of.refused > of.succeeded && of.current == 0;
        let goes_back = (!is_ended && is_last_refused).then_some(of.confirmed);
        let answered = Answered { is_ended, is_outdated, goes_back };
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
    use millrace_mqtt::SubscribeOptions;

    use super::*;

    const NEW: Option<ClientSubscription> = None;
    const ENDS: Option<Option<ClientSubscription>> = Some(None);

    /// A subscription that differs from others by its identifier.
    fn old(identifier: u32) -> Option<ClientSubscription> {
        Some(ClientSubscription { options: SubscribeOptions::default(), identifier })
    }

    fn subscribe(unanswered: &mut Unanswered, filters: &[(&str, Option<ClientSubscription>)]) -> u64 {
        let number = unanswered.begin();
        filters.iter().for_each(|(filter, former)| unanswered.add(filter, *former));
        number
    }

    #[test]
    fn answers_hold_until_an_unsubscribe_ends_their_filter() {
        let mut unanswered = Unanswered::default();
        let one = subscribe(&mut unanswered, &[("a", NEW), ("b", NEW)]);
        let two = subscribe(&mut unanswered, &[("a", old(1))]);
        unanswered.end("a");
        unanswered.end("c");
        let three = subscribe(&mut unanswered, &[("a", NEW)]);
        assert!(unanswered.remove(one, "a", None).is_ended);
        assert_eq!(unanswered.remove(three, "a", None), Answered { goes_back: ENDS, ..Answered::default() });
        assert!(unanswered.remove(two, "a", None).is_ended);
        assert_eq!(unanswered.remove(one, "b", None).goes_back, ENDS);
        assert!(unanswered.is_empty());
        let four = subscribe(&mut unanswered, &[("a", NEW)]);
        assert_eq!(unanswered.remove(four, "a", old(4)), Answered::default());
    }

    #[test]
    fn the_last_refusal_brings_back_what_the_store_has() {
        for former in [NEW, old(9)] {
            // The results of both packets, and what the subscription goes back to.
            for (results, goes_back) in [
                ([None, None], Some(former)),
                ([None, old(2)], None),
                ([old(1), None], Some(old(1))),
                ([old(1), old(2)], None),
            ] {
                for order in [[0, 1], [1, 0]] {
                    let mut unanswered = Unanswered::default();
                    let one = subscribe(&mut unanswered, &[("a", former)]);
                    let numbers = [one, subscribe(&mut unanswered, &[("a", old(1))])];
                    let [first, last] =
                        order.map(|index| unanswered.remove(numbers[index], "a", results[index]));
                    assert_eq!(first.goes_back, None, "another one waits");
                    assert_eq!(last.goes_back, goes_back, "{former:?} {results:?} {order:?}");
                    assert_eq!(last.is_outdated, order == [1, 0] && results[1].is_some());
                }
            }
        }
    }

    #[test]
    fn a_subscribe_that_takes_several_turns_keeps_a_filter_that_an_earlier_one_is_refused() {
        for (granted, goes_back) in [(old(2), None), (None, ENDS)] {
            let mut unanswered = Unanswered::default();
            let one = subscribe(&mut unanswered, &[("a", NEW)]);
            let two = subscribe(&mut unanswered, &[("a", old(1))]);
            assert_eq!(
                unanswered.remove(one, "a", None).goes_back,
                None,
                "the second one still adds filters"
            );
            unanswered.add("b", NEW);
            assert_eq!(unanswered.remove(two, "a", granted).goes_back, goes_back);
            assert_eq!(unanswered.remove(two, "b", granted).goes_back.is_some(), granted.is_none());
            assert!(unanswered.is_empty());
        }
    }
}
