//! Whether any of many filters matches a topic, asked for many topics, with a bound on the work of all answers.

use millrace_mqtt::QoS;
use millrace_mqtt::topic::{self, Filter};
use millrace_router::{MatchLimits, Router, Subscription, Target};
use millrace_session::Message;

use super::work;
use crate::store::WHOLE_BYTES_MAX;

/// Levels of all filters together, beyond which no question is answered.
const LEVELS_MAX: usize = 10_000;
/// Nodes of the trie that all answers together may visit.
const NODES_MAX: usize = 20_000;

const ANY: Subscription = Subscription {
    target: Target { core: 0, slot: 0, generation: 0 },
    qos: QoS::AtMostOnce,
    no_local: false,
    retain_as_published: false,
    persistent: false,
    identifier: 0,
};

pub(super) struct FilterSet {
    router: Router,
    levels: usize,
    nodes: usize,
    unknown_bytes: usize,
}

impl FilterSet {
    pub(super) fn new<'f>(filters: impl Iterator<Item = &'f str>) -> Self {
        let (router, mut levels) = (Router::new(), 0);
        router.edit(|edit| {
            for filter in filters.filter_map(Filter::parse) {
                levels += topic::levels(filter.filter.as_bytes());
                if levels > LEVELS_MAX {
                    break;
                }
                edit.subscribe(filter, ANY);
            }
        });
        Self { router, levels, nodes: 0, unknown_bytes: 0 }
    }

    /// `None`: finding the answer is too much work.
    pub(super) fn matches(&mut self, topic: &str) -> Option<bool> {
        let nodes_max = NODES_MAX.saturating_sub(self.nodes);
        if self.levels > LEVELS_MAX || nodes_max == 0 {
            return None;
        }
        let mut visited = 0;
        let limits = MatchLimits { filters_max: 0, nodes_max, ..MatchLimits::NONE };
        let found = self.router.snapshot().matches_counted(topic, limits, &mut visited);
        self.nodes += visited;
        match found {
            Some(_) => Some(false),
            // The search ended at the first filter that matches, or at the limit of nodes.
            None if visited < nodes_max => Some(true),
            None => None,
        }
    }

    /// For a message for which `matches` gave `None`: whether the session may still store it whole, as if no filter matched.
    /// Such messages get half of what a session may store whole.
    pub(super) fn may_store_whole(&mut self, message: &Message) -> bool {
        self.unknown_bytes += message.size();
        self.unknown_bytes <= WHOLE_BYTES_MAX / 2
    }

    /// The session already stores as many bytes whole for the same reason.
    pub(super) fn with_unknown(self, bytes: usize) -> Self {
        Self { unknown_bytes: bytes, ..self }
    }

    pub(super) fn work(&self) -> u64 {
        work::LEVEL * self.levels as u64 + work::NODE * self.nodes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_matches_if_any_filter_does() {
        let mut set = FilterSet::new(["a/+", "b/#", "c"].into_iter());
        let found = ["a/x", "b", "b/x/y", "c", "a", "c/x", "$SYS/x"].map(|topic| set.matches(topic));
        let all = [true, true, true, true, false, false, false];
        assert_eq!(found, all.map(Some));
        assert_eq!(FilterSet::new([].into_iter()).matches("a"), Some(false));
    }

    #[test]
    fn answers_end_with_the_budget() {
        let filters: Vec<String> = (0..512)
            .map(|number| {
                (0..9).map(|bit| if number >> bit & 1 == 0 { "a/" } else { "+/" }).collect::<String>() + "x"
            })
            .collect();
        let mut set = FilterSet::new(filters.iter().map(|filter| &**filter));
        let topic = "a/".repeat(9) + "y";
        let answers = (0..1_000).map_while(|_| set.matches(&topic)).count();
        assert!((10..40).contains(&answers), "{answers} answers that each visit 1,000 nodes");
        assert_eq!(set.matches("b"), None);
        assert!(set.work() < 300_000, "{}", set.work());
    }

    #[test]
    fn filters_with_too_many_levels_get_no_answer() {
        let long = "a/".repeat(100);
        let filters: Vec<String> = (0..1_000).map(|number| format!("{long}{number}")).collect();
        let mut set = FilterSet::new(filters.iter().map(|filter| &**filter));
        assert_eq!(set.matches("b"), None);
    }
}
