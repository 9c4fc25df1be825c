//! Receivers of other pods' messages: each broker has a share of the fabric's thread, which matches the topics of all
//! brokers under the fabric's lock.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_router::Snapshot;

use crate::broker::Broker;
use crate::routes::{RouteCache, Routes};

pub(super) struct Matching {
    routes: RouteCache,
    share: u64,
    /// Work that brokers caused since the last [`Matching::begin_second`].
    used: HashMap<u64, u64>,
}

impl Matching {
    pub(super) fn new(share: u64) -> Self {
        Self { routes: RouteCache::default(), share, used: HashMap::new() }
    }

    /// `None`: the broker has used up its share.
    pub(super) fn get(
        &mut self,
        broker: &Arc<Broker>,
        topic: &str,
        snapshot: Option<&Snapshot>,
    ) -> Option<Arc<Routes>> {
        // Cached topics are no exception: sessions must not get later messages before the dropped ones (P4).
        if self.used.get(&broker.id).is_some_and(|used| *used >= self.share) {
            return None;
        }
        let routes = match snapshot {
            Some(snapshot) => self.routes.get_at(broker, topic, snapshot),
            None => self.routes.get(broker, topic),
        };
        let work = self.routes.take_work();
        if work > 0 {
            *self.used.entry(broker.id).or_default() += work;
        }
        Some(routes)
    }

    /// Gives each broker a new share. Returns the brokers whose messages may have been dropped.
    pub(super) fn begin_second(&mut self) -> Vec<u64> {
        self.routes.forget_idle();
        let share = self.share;
        self.used.drain().filter(|(_, used)| *used >= share).map(|(broker, _)| broker).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_has_used_up_its_share_is_matched_again_in_the_next_second() {
        let [costly, other] = [1, 2].map(|id| Arc::new(Broker::new(id, "b", 1)));
        let mut matching = Matching::new(1_000);
        let topics = (0..).map(|number| format!("t/{number}"));
        let matched = topics.take_while(|topic| matching.get(&costly, topic, None).is_some()).count();
        assert!((10..=200).contains(&matched), "{matched} new topics");
        assert!(matching.get(&costly, "t/0", None).is_none(), "a later message would come first");
        assert!(matching.get(&other, "t", None).is_some());
        assert_eq!(matching.begin_second(), [1]);
        assert!(
            (0..5_000).all(|_| matching.get(&costly, "t/0", None).is_some()),
            "a cached topic costs nothing"
        );
        assert!(matching.begin_second().is_empty());
    }
}
