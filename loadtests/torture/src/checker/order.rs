//! Rule: messages of one publisher, on one topic, at one QoS, arrive in the order in which they
//! were sent (P4).
//!
//! Only first deliveries count: after a reconnect, QoS 1 allows "1, 2, 3, 2, 3, 4" (4.6), and never
//! "1, 3, 2". A publisher that resends after a reconnect keeps its order, so its sequence numbers
//! are the order. This holds even if the server refused the first copy: it must then refuse later
//! messages until the publisher sends them again.

use std::collections::{HashMap, HashSet};

use super::facts::Facts;
use super::verdict::{CheckRule, Verdict};
use crate::history::{ClientId, MessageKind};

pub(crate) fn check(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (client, session) in facts.persistent() {
        let mut seen = HashSet::new();
        let mut furthest: HashMap<(ClientId, &str, u8), (u32, usize)> = HashMap::new();
        for delivery in &session.deliveries {
            let message = facts.history.about(delivery.message);
            if message.kind != MessageKind::Plain || !seen.insert(delivery.message) {
                continue;
            }
            verdict.counts.ordered += 1;
            let source = (message.publisher, &*message.topic, delivery.qos);
            let (highest, at) = furthest.entry(source).or_insert((message.sequence, delivery.at));
            let publish = facts.publish(message.id);
            // The first copy of a resent message may have reached the server before the
            // subscription.
            let was_owed_first = publish.sends <= 1
                || session.spans_for(&message.topic).iter().any(|span| {
                    span.acknowledged.is_some_and(|at| publish.first_sent.is_none_or(|first| at < first))
                        && span.unsubscribe_sent.is_none_or(|at| at > delivery.at)
                });
            if message.sequence < *highest && was_owed_first {
                let (name, who) = (facts.history.name(message.id), &facts.history.who(client).name);
                let what = format!("{name} came to {who} for the first time after number {highest}");
                let mut shown = vec![*at, delivery.at];
                shown.extend(
                    [publish.first_sent, publish.last_sent, publish.acknowledged].into_iter().flatten(),
                );
                verdict.report(CheckRule::Order, what, shown);
            } else if message.sequence >= *highest {
                (*highest, *at) = (message.sequence, delivery.at);
            }
        }
    }
}
