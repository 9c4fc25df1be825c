//! New subscriptions where several pods share a store. The store is read for their retained messages in pages, and live copies may
//! arrive before a page. A session gets the messages that were retained when each page was read, then every later one, and none
//! twice (P6).

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::topic;
use millrace_router::Receiver;
use millrace_session::{Budget, Hold, Message, Seconds};

use super::feed::Take;
use super::held::may_hold;
use super::limits;
use super::unanswered::Unanswered;
use crate::jobs::replay::{Replay, RetainedPages};

/// How long a live copy may be on its way from another pod.
const LATE_S: Seconds = 10;

#[derive(Default)]
pub(super) struct NewSubscriptions {
    /// SUBSCRIBE packets whose retained messages are being read.
    pub(super) reading: u32,
    /// Only for sessions that are not persistent.
    pub(super) unanswered_by_store: Unanswered,
    /// The reading thread stops when this is dropped.
    pub(super) asker: Arc<()>,
    held: VecDeque<HeldForReceiver>,
    held_bytes: usize,
    replayed: VecDeque<Replayed>,
    /// Filter levels that look-ups have compared since [`NewSubscriptions::take_compared`].
    compared: Cell<usize>,
}

pub(super) struct HeldForReceiver {
    pub(super) message: Arc<Message>,
    pub(super) receiver: Receiver,
    pub(super) memory: Option<Hold>,
}

/// The pages of a filter's retained messages that a session has got. They are remembered until no live copy of them can still arrive.
struct Replayed {
    filter: Box<str>,
    pages: Arc<RetainedPages>,
    left_out: u64,
    until: Seconds,
}

impl NewSubscriptions {
    pub(super) fn take(&self, message: &Message, now: Seconds, budget: Option<&Arc<Budget>>) -> Take {
        if self.reading > 0 {
            let fits = may_hold((self.held.len(), self.held_bytes), message.size(), budget);
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

    fn has_by(&self, message: &Message, now: Seconds, is_for: impl Fn(&str) -> bool) -> bool {
        let Some(position) = message.position().filter(|_| message.is_retained()) else { return false };
        let mut replayed = self.replayed.iter().filter(|replayed| replayed.until >= now);
        // Filters of one SUBSCRIBE share their pages, so the first of them that matches is searched alone.
        let mut searched: Option<&Arc<RetainedPages>> = None;
        replayed.any(|replayed| {
            let is_left_out = replayed.left_out != 0 && replayed.left_out == message.publisher();
            let is_new = searched.is_none_or(|pages| !Arc::ptr_eq(pages, &replayed.pages));
            if is_left_out || !is_new || !is_for(&replayed.filter) {
                return false;
            }
            searched = Some(&replayed.pages);
            let (has, compared) = replayed.pages.has(message.topic(), Position(position));
            self.compared.set(self.compared.get() + compared);
            has
        })
    }

    /// A topic that matches many filters of one SUBSCRIBE costs up to thousands of comparisons.
    pub(super) fn take_compared(&self) -> usize {
        self.compared.take()
    }

    pub(super) fn hold(&mut self, message: &Arc<Message>, receiver: &Receiver, budget: Option<&Arc<Budget>>) {
        let (message, receiver, waiting) = (message.clone(), receiver.clone(), self.held_bytes as u64);
        let memory = Hold::of_waiting(&message, receiver.identifiers.len(), waiting, budget);
        self.held_bytes += Budget::HOLDER_BYTES as usize + message.size();
        self.held.push_back(HeldForReceiver { message, receiver, memory });
    }

    pub(super) fn replayed(&mut self, replays: &[Replay], now: Seconds) {
        self.replayed.retain(|replayed| replayed.until >= now);
        // Older ones would be forgotten at once.
        for replay in &replays[replays.len().saturating_sub(limits::REPLAYED_FILTERS_MAX)..] {
            if self.replayed.len() == limits::REPLAYED_FILTERS_MAX {
                self.replayed.pop_front();
            }
            let (filter, pages, left_out) = (replay.filter.clone(), replay.pages.clone(), replay.left_out);
            self.replayed.push_back(Replayed { filter, pages, left_out, until: now + LATE_S });
        }
    }

    pub(super) fn is_over(&self, now: Seconds) -> bool {
        self.reading == 0
            && self.unanswered_by_store.is_empty()
            && self.replayed.iter().all(|replayed| replayed.until < now)
    }

    /// Returns the held messages when no SUBSCRIBE waits for its retained messages any more.
    pub(super) fn release(&mut self) -> VecDeque<HeldForReceiver> {
        if self.reading > 0 {
            return VecDeque::new();
        }
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use millrace_layers::retained::Bookmark;
    use millrace_mqtt::{Properties, QoS, SubscribeOptions};
    use millrace_router::Target;
    use millrace_session::ClientSubscription;

    use super::*;
    use crate::broker::Broker;
    use crate::core::resume::routed;
    use crate::routes::RouteCache;

    fn message(topic: &str, retain: bool, version: Option<u64>) -> Message {
        let message = Message::new(topic.into(), QoS::AtMostOnce, retain, Properties::EMPTY, b"x", 0);
        message.set_position(version.map(|version| Position::end_of(version).0));
        message
    }

    fn replay(pages: &[(Option<&str>, u64)]) -> Replay {
        let mut read = RetainedPages::new(1, ["a/+".into()].into());
        for (next, version) in pages {
            let next = next.map(|topic| Bookmark::at(1, topic.as_bytes()));
            read.push(0, next, Position::end_of(*version));
        }
        let (filter, qos, pages) = ("a/+".into(), QoS::AtMostOnce, Arc::new(read));
        Replay { filter, qos, identifier: 0, left_out: 0, before: None, retained: None, pages }
    }

    #[test]
    fn a_topic_counts_as_received_up_to_the_version_of_its_page() {
        let mut new = NewSubscriptions::default();
        new.replayed(&[replay(&[(Some("a/d"), 7), (Some("a/g"), 7), (Some("a/k"), 9), (None, 12)])], 100);
        let cases = [("a/c", 7), ("a/d", 7), ("a/f", 7), ("a/g", 9), ("a/j", 9), ("a/k", 12), ("a/z", 12)];
        for (topic, through) in cases {
            for (version, expected) in [(through, Take::Drop), (through + 1, Take::Deliver)] {
                let message = message(topic, true, Some(version));
                assert_eq!(new.take(&message, 100, None), expected, "{message:?}");
            }
        }
    }

    #[test]
    fn only_messages_retained_before_the_page_was_read_are_dropped() {
        let mut new = NewSubscriptions::default();
        new.replayed(&[replay(&[(None, 7)])], 100);
        let cases = [
            (message("a/b", true, Some(7)), Take::Drop),
            (message("a/b", true, Some(8)), Take::Deliver),
            (message("a/b", false, Some(7)), Take::Deliver),
            (message("a/b", true, None), Take::Deliver),
            (message("b/b", true, Some(7)), Take::Deliver),
        ];
        for (message, expected) in cases {
            assert_eq!(new.take(&message, 100, None), expected, "{message:?}");
        }
        assert_eq!(
            new.take(&message("a/b", true, Some(7)), 111, None),
            Take::Deliver,
            "after LATE_S no copy is expected"
        );
        new.reading = 1;
        assert_eq!(new.take(&message("b", false, None), 100, None), Take::Hold);
    }

    #[test]
    fn held_messages_count_in_the_budget_of_their_broker() {
        let (broker, budget) = (Arc::new(Broker::new(1, "b", 1)), Arc::new(Budget::new(400_000, None)));
        let target = Target { core: 0, slot: 0, generation: 1 };
        let options = ClientSubscription { options: SubscribeOptions::default(), identifier: 1 };
        let filter = topic::Filter::parse("t").unwrap();
        broker.router.edit(|edit| edit.subscribe(filter, routed(target, &options, false)));
        let routes = RouteCache::default().get(&broker, "t");
        let sessions = [(); 20].map(|()| {
            let mut new = NewSubscriptions { reading: 1, ..NewSubscriptions::default() };
            loop {
                let message = Arc::new(message("t", false, None));
                match new.take(&message, 100, Some(&budget)) {
                    Take::Hold => new.hold(&message, &routes.receivers(0)[0], Some(&budget)),
                    full => break assert_eq!(full, Take::Drop),
                }
            }
            new
        });
        let held = sessions.each_ref().map(|new| new.held.len());
        assert!(held[0] == limits::HELD_MESSAGES_MAX && held[19] < 800, "{held:?}");
        assert!(budget.used() > 300_000, "{}", budget.used());
        drop(sessions);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_last_filters_of_a_large_subscribe_are_remembered() {
        let mut new = NewSubscriptions::default();
        new.replayed(&[replay(&[(None, 7)])], 100);
        let all = (0..1_000).map(|number| Replay { filter: format!("{number}").into(), ..replay(&[]) });
        new.replayed(&all.collect::<Vec<_>>(), 100);
        let remembered: Vec<_> = new.replayed.iter().map(|replayed| replayed.filter.to_string()).collect();
        let last = 1_000 - limits::REPLAYED_FILTERS_MAX..1_000;
        assert_eq!(remembered, last.map(|number| number.to_string()).collect::<Vec<_>>());
    }
}
