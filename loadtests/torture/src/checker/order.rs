//! Messages of one publisher, on one topic, at one QoS, arrive in the order in which they were sent (P4).
//!
//! Only first deliveries count: at QoS 1 "1, 2, 3, 2, 3, 4" is right after a reconnect (4.6), "1, 3, 2" never is.
//! A publisher that sends again after a reconnect keeps its order, so its numbers are the order.

use std::collections::{HashMap, HashSet};

use super::facts::Facts;
use super::verdict::{Rule, Verdict};
use crate::history::{ClientId, Kind};

pub(crate) fn check(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (client, session) in facts.persistent() {
        let mut seen = HashSet::new();
        let mut furthest: HashMap<(ClientId, &str, u8), (u32, usize)> = HashMap::new();
        for delivery in &session.deliveries {
            let message = facts.history.about(delivery.message);
            if message.kind != Kind::Plain || !seen.insert(delivery.message) {
                continue;
            }
            verdict.counts.ordered += 1;
            let source = (message.publisher, &*message.topic, delivery.qos);
            let (highest, at) = furthest.entry(source).or_insert((message.sequence, delivery.at));
            if message.sequence < *highest {
                let (name, who) = (facts.history.name(message.id), &facts.history.who(client).name);
                let what = format!("{name} came to {who} for the first time after number {highest}");
                let publish = facts.publish(message.id);
                let mut shown = vec![*at, delivery.at];
                shown.extend(
                    [publish.first_sent, publish.last_sent, publish.acknowledged].into_iter().flatten(),
                );
                verdict.report(Rule::Order, what, shown);
            } else {
                (*highest, *at) = (message.sequence, delivery.at);
            }
        }
    }
}
