//! New subscriptions where several pods share a store. Live copies may arrive before the retained messages, which are
//! read from the store in pages. A session gets each page as of its reading, then everything after it, and nothing
//! twice (P6).

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::topic;
use millrace_router::Receiver;
use millrace_session::{Message, Seconds};

use super::feed::Take;
use super::unanswered::Unanswered;
use crate::jobs::replay::{Replay, RetainedPages};

/// Messages held for a session while its retained messages are read.
const HELD_MAX: usize = 1_000;
const HELD_BYTES_MAX: usize = 1024 * 1024;
/// How long a live copy may be on its way from another pod.
const LATE_S: Seconds = 10;
const REPLAYED_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Fresh {
    /// SUBSCRIBE packets whose retained messages are being read.
    pub(super) asking: u32,
    /// Only for sessions that are not persistent.
    pub(super) unanswered_by_store: Unanswered,
    /// The store stops reading once this is dropped.
    pub(super) asker: Arc<()>,
    held: VecDeque<(Arc<Message>, Receiver)>,
    held_bytes: usize,
    replayed: VecDeque<Replayed>,
    /// Filter levels that look-ups have compared since [`Fresh::take_compared`].
    compared: Cell<usize>,
}

/// The pages of a filter's retained messages that a session has got, until no live copy can be late.
struct Replayed {
    filter: Box<str>,
    pages: Arc<RetainedPages>,
    until: Seconds,
}

impl Fresh {
    pub(super) fn take(&self, message: &Message, now: Seconds) -> Take {
        if self.asking > 0 {
            let fits = self.held.len() < HELD_MAX && self.held_bytes + message.size() <= HELD_BYTES_MAX;
            return if fits { Take::Hold } else { Take::Drop };
        }
        if self.has(message, now) { Take::Drop } else { Take::Deliver }
    }

    /// Whether the session got this as a retained message.
    pub(super) fn has(&self, message: &Message, now: Seconds) -> bool {
        self.has_by(message, now, |filter| topic::matches(filter, message.topic()))
    }

    /// Whether the session got this for its subscription to `filter`.
    pub(super) fn has_for(&self, filter: &str, message: &Message, now: Seconds) -> bool {
        self.has_by(message, now, |replayed| replayed == filter)
    }

    fn has_by(&self, message: &Message, now: Seconds, is_it: impl Fn(&str) -> bool) -> bool {
        let Some(place) = message.place().filter(|_| message.retain()) else { return false };
        let mut replayed = self.replayed.iter().filter(|replayed| replayed.until >= now);
        // Filters of one SUBSCRIBE share their pages, which are searched once.
        let mut searched: Option<&Arc<RetainedPages>> = None;
        replayed.any(|replayed| {
            let is_new = searched.is_none_or(|pages| !Arc::ptr_eq(pages, &replayed.pages));
            if !is_new || !is_it(&replayed.filter) {
                return false;
            }
            searched = Some(&replayed.pages);
            let (has, compared) = replayed.pages.has(message.topic(), Position(place));
            self.compared.set(self.compared.get() + compared);
            has
        })
    }

    /// A topic that matches many filters of one SUBSCRIBE costs up to thousands of comparisons.
    pub(super) fn take_compared(&self) -> usize {
        self.compared.take()
    }

    pub(super) fn hold(&mut self, message: &Arc<Message>, receiver: &Receiver) {
        self.held_bytes += message.size();
        self.held.push_back((message.clone(), receiver.clone()));
    }

    /// Remembers which retained messages the session has got.
    pub(super) fn replayed(&mut self, replays: &[Replay], now: Seconds) {
        self.replayed.retain(|replayed| replayed.until >= now);
        for replay in replays {
            if self.replayed.len() == REPLAYED_MAX {
                self.replayed.pop_front();
            }
            let (filter, pages) = (replay.filter.clone(), replay.pages.clone());
            self.replayed.push_back(Replayed { filter, pages, until: now + LATE_S });
        }
    }

    pub(super) fn is_over(&self, now: Seconds) -> bool {
        self.asking == 0
            && self.unanswered_by_store.is_empty()
            && self.replayed.iter().all(|replayed| replayed.until < now)
    }

    /// Returns the held messages once nothing is read any more.
    pub(super) fn release(&mut self) -> VecDeque<(Arc<Message>, Receiver)> {
        if self.asking > 0 {
            return VecDeque::new();
        }
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use millrace_layers::retained::Bookmark;
    use millrace_mqtt::{Properties, QoS};

    use super::*;

    fn message(topic: &str, retain: bool, version: Option<u64>) -> Message {
        let message = Message::new(topic.into(), QoS::AtMostOnce, retain, Properties::EMPTY, b"x", 0);
        message.set_place(version.map(|version| Position::end_of(version).0));
        message
    }

    fn replay(pages: &[(Option<&str>, u64)]) -> Replay {
        let mut read = RetainedPages::new(1, ["a/+".into()].into());
        for (next, version) in pages {
            let next = next.map(|topic| Bookmark::at(1, topic.as_bytes()));
            read.push(0, next, Position::end_of(*version));
        }
        let (filter, qos, pages) = ("a/+".into(), QoS::AtMostOnce, Arc::new(read));
        Replay { filter, qos, identifier: 0, retained: None, pages }
    }

    #[test]
    fn each_topic_is_known_as_of_the_page_that_covers_it() {
        let mut fresh = Fresh::default();
        fresh.replayed(&[replay(&[(Some("a/d"), 7), (Some("a/g"), 7), (Some("a/k"), 9), (None, 12)])], 100);
        let cases = [("a/c", 7), ("a/d", 7), ("a/f", 7), ("a/g", 9), ("a/j", 9), ("a/k", 12), ("a/z", 12)];
        for (topic, through) in cases {
            for (version, expected) in [(through, Take::Drop), (through + 1, Take::Deliver)] {
                let message = message(topic, true, Some(version));
                assert_eq!(fresh.take(&message, 100), expected, "{message:?}");
            }
        }
    }

    #[test]
    fn only_what_was_retained_before_the_reading_is_known() {
        let mut fresh = Fresh::default();
        fresh.replayed(&[replay(&[(None, 7)])], 100);
        let cases = [
            (message("a/b", true, Some(7)), Take::Drop),
            (message("a/b", true, Some(8)), Take::Deliver),
            (message("a/b", false, Some(7)), Take::Deliver),
            (message("a/b", true, None), Take::Deliver),
            (message("b/b", true, Some(7)), Take::Deliver),
        ];
        for (message, expected) in cases {
            assert_eq!(fresh.take(&message, 100), expected, "{message:?}");
        }
        assert_eq!(fresh.take(&message("a/b", true, Some(7)), 111), Take::Deliver, "that late nothing comes");
        fresh.asking = 1;
        assert_eq!(fresh.take(&message("b", false, None), 100), Take::Hold);
    }
}
