//! Finds the receivers of other pods' messages: each broker has a share of the fabric's thread, which matches the topics of all
//! brokers under the fabric's lock.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_router::Snapshot;

use crate::broker::Broker;
use crate::incidents::{NewIncident, StoredIncidentKind};
use crate::routes::{RouteCache, Routes};

const NO_SHARE_LEFT: &str =
    "messages of clients on other servers came to many topics, or to topics that match many filters";

pub(super) struct Matching {
    routes: RouteCache,
    share: u64,
    used: HashMap<u64, MatchCost>,
}

#[derive(Default)]
struct MatchCost {
    work: u64,
    dropped: u64,
}

impl Matching {
    pub(super) fn new(share: u64) -> Self {
        Self { routes: RouteCache::default(), share, used: HashMap::new() }
    }

    /// `None`: the broker has used up its share, and `count` messages are dropped. `snapshot`: the subscriptions at the moment
    /// when memory took a retained message.
    pub(super) fn get(
        &mut self,
        broker: &Arc<Broker>,
        topic: &str,
        snapshot: Option<&Snapshot>,
        count: u32,
    ) -> Option<Arc<Routes>> {
        // Cached topics are no exception: sessions must not get later messages before the dropped ones (P4).
        if let Some(used) = self.used.get_mut(&broker.id).filter(|used| used.work >= self.share) {
            used.dropped += u64::from(count);
            return None;
        }
        let routes = match snapshot {
            Some(snapshot) => self.routes.get_at(broker, topic, snapshot),
            None => self.routes.get(broker, topic),
        };
        let work = self.routes.take_work();
        if work > 0 {
            self.used.entry(broker.id).or_default().work += work;
        }
        Some(routes)
    }

    /// Gives each broker a new share, and returns the brokers whose messages may have been dropped, and how many were.
    pub(super) fn begin_second(&mut self) -> Vec<(u64, u64)> {
        self.routes.forget_idle();
        let share = self.share;
        let is_used_up = |(_, used): &(u64, MatchCost)| used.work >= share;
        self.used.drain().filter(is_used_up).map(|(broker, used)| (broker, used.dropped)).collect()
    }
}

/// Counts messages that were dropped without being matched; their receivers are not known. Called by one thread at a time.
pub(super) fn count_dropped(broker: &Broker, dropped: u64, now_ms: u64) {
    if let Some(counters) = broker.counters.last() {
        counters.dropped_matching.add(usize::try_from(dropped).unwrap_or(usize::MAX));
    }
    broker.incidents.note(
        &NewIncident::new(StoredIncidentKind::MessagesDropped, "", NO_SHARE_LEFT),
        dropped,
        now_ms,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_has_used_up_its_share_is_matched_again_in_the_next_second() {
        let [costly, other] = [1, 2].map(|id| Arc::new(Broker::new(id, "b", 1)));
        let mut matching = Matching::new(1_000);
        let topics = (0..).map(|number| format!("t/{number}"));
        let matched = topics.take_while(|topic| matching.get(&costly, topic, None, 1).is_some()).count();
        assert!((10..=200).contains(&matched), "{matched} new topics");
        assert!(matching.get(&costly, "t/0", None, 2).is_none(), "a later message would come first");
        assert!(matching.get(&other, "t", None, 1).is_some());
        assert_eq!(matching.begin_second(), [(1, 3)]);
        assert!(
            (0..5_000).all(|_| matching.get(&costly, "t/0", None, 1).is_some()),
            "a cached topic costs nothing"
        );
        assert!(matching.begin_second().is_empty());
    }

    #[test]
    fn dropped_messages_are_counted_and_shown_to_the_tenant() {
        let broker = Broker::new(1, "b", 1);
        broker.incidents.set_on(true);
        (0..2).for_each(|_| count_dropped(&broker, 5, 1_000));
        let counted: u64 = broker.counters.iter().map(|counters| counters.dropped_matching.get()).sum();
        let incidents = broker.incidents.take(1_000);
        assert_eq!((counted, incidents.len()), (10, 1));
        assert_eq!((incidents[0].count, incidents[0].kind), (10, StoredIncidentKind::MessagesDropped));
    }
}
