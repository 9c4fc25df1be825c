//! The retained message of a topic is the last one in commit order (P6), also as of a
//! subscription's own commit.

use std::collections::{BTreeMap, BTreeSet};

use millrace_layers::{BrokerId, Position};

use super::Violations;
use crate::{
    history::{MessageId, PodHistory, Retain},
    plan::matches,
};

type Writes = BTreeMap<Position, (MessageId, Retain)>;

pub(super) fn check(history: &PodHistory) -> Violations {
    let mut writes: BTreeMap<(BrokerId, &str), Writes> = BTreeMap::new();
    for (id, message) in history.messages.iter().filter(|(_, message)| message.retain != Retain::No) {
        let of_topic = writes.entry((message.broker, &message.topic)).or_default();
        of_topic.extend(message.places.iter().map(|at| (*at, (id, message.retain))));
    }
    let mut violations = Vec::new();
    for seen in &history.retained {
        let of_broker = writes.keys().filter(|(broker, _)| *broker == seen.broker);
        let topics: BTreeSet<&str> =
            of_broker.map(|(_, topic)| *topic).chain(seen.found.keys().map(String::as_str)).collect();
        for topic in topics.into_iter().filter(|topic| matches(&seen.filter, topic)) {
            let end = Position::new(seen.stamp, 0);
            let of_topic = writes.get(&(seen.broker, topic));
            let last = of_topic.and_then(|writes| writes.range(..end).next_back());
            let expected = last.filter(|(_, (_, retain))| *retain == Retain::Set).map(|(_, (id, _))| *id);
            let found = seen.found.get(topic).copied();
            if expected != found {
                let at = seen.stamp;
                violations.push(format!("retained: {topic} at {at:?} has {found:?}, not {expected:?}"));
            }
        }
    }
    violations
}
