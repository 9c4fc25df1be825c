//! Rule: exactly once at QoS 2, and no repeats without a reason at QoS 1.
//!
//! - QoS 2: a correct receiver passes each message to its application once, because it passes no
//!   PUBLISH on while the packet id is unreleased. One more delivery is right when the publisher
//!   lost its session (session present 0): it must publish again, and the server cannot know that
//!   it is the same message. A session with overlapping subscriptions gets one copy, with the
//!   highest QoS; 3.3.4 would allow a copy for each, but the brokers under test are configured not
//!   to send them.
//! - QoS 1: repeats are right after a reconnect or a kill. On one connection a message may arrive
//!   only as often as its publisher sent it. This is checked for sessions of MQTT 5.0 only, because
//!   3.1.1 allows a server to resend at any time.

use std::collections::BTreeMap;

use super::facts::{Delivery, Facts};
use super::verdict::{CheckRule, Verdict};
use crate::history::{ConnectionId, MessageKind};

pub(crate) fn check(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (client, session) in facts.persistent() {
        let who = facts.history.who(client);
        let mut messages: Vec<_> = session.by_message.keys().copied().collect();
        messages.sort_unstable();
        for id in messages {
            let deliveries: Vec<&Delivery> = session.deliveries_of(id).collect();
            verdict.counts.repeats += deliveries.len() - 1;
            let message = facts.history.about(id);
            if message.kind != MessageKind::Plain {
                continue;
            }
            let publish = facts.publish(id);
            let shown = || {
                let sent =
                    [publish.first_sent, publish.last_sent, publish.acknowledged].into_iter().flatten();
                sent.chain(deliveries.iter().map(|delivery| delivery.at)).collect()
            };
            let handed_on =
                deliveries.iter().filter(|delivery| delivery.qos == 2 && delivery.is_first).count();
            verdict.counts.exactly_once += usize::from(handed_on > 0);
            if handed_on > publish.publications.max(1) {
                let what = format!("{} came to {} {handed_on} times", facts.history.name(id), who.name);
                verdict.report(CheckRule::Twice, what, shown());
            }
            if who.v5 && most_on_one_connection(&deliveries) > publish.sends.max(1) {
                let name = facts.history.name(id);
                let what = format!("{name} came to {} again on the same connection", who.name);
                verdict.report(CheckRule::Repeated, what, shown());
            }
        }
    }
    for (at, earlier) in &facts.reused_ids {
        let what = "a PUBLISH has the packet id of a QoS 2 message that was not released".to_owned();
        verdict.report(CheckRule::IdReused, what, vec![*earlier, *at]);
    }
}

fn most_on_one_connection(deliveries: &[&Delivery]) -> usize {
    let mut counts: BTreeMap<ConnectionId, usize> = BTreeMap::new();
    for delivery in deliveries.iter().filter(|delivery| delivery.qos == 1) {
        *counts.entry(delivery.connection).or_default() += 1;
    }
    counts.into_values().max().unwrap_or_default()
}
