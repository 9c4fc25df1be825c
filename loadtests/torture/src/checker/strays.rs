//! Every delivery was published, and subscribed to.
//!
//! A delivery needs a subscription that
//! - was sent before the delivery;
//! - whose UNSUBACK, if there was one, arrived after the message was first sent: no new message is
//!   added after it [MQTT-3.10.4-3], but queued ones may still be sent;
//! - whose SUBSCRIBE was sent before PUBACK or PUBCOMP arrived for the message: earlier messages
//!   are not for it (except retained ones, which have another rule).
//!
//! Its QoS is at most that of the message and of the best such subscription.

use std::collections::HashMap;

use super::facts::{Delivery, Facts, Span};
use super::verdict::{CheckRule, Verdict};
use crate::history::{MessageKind, SentMessage};

pub(crate) fn check(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (client, session) in &facts.sessions {
        let name = &facts.history.who(*client).name;
        let mut spans_by_topic: HashMap<&str, Vec<&Span>> = HashMap::new();
        for delivery in &session.deliveries {
            verdict.counts.received += 1;
            let message = facts.history.about(delivery.message);
            let spans =
                spans_by_topic.entry(&message.topic).or_insert_with(|| session.spans_for(&message.topic));
            let asked = spans.iter().filter(|span| asks(facts, span, message, delivery));
            let best = asked.map(|span| span.qos).max();
            if best.is_some_and(|best| delivery.qos <= best.min(message.qos)) {
                continue;
            }
            let mut shown = vec![delivery.at];
            let publish = facts.publish(message.id);
            shown.extend([publish.first_sent, publish.completed].into_iter().flatten());
            for span in spans {
                shown.extend([Some(span.sent), span.unsubscribed].into_iter().flatten());
            }
            let what = facts.history.name(message.id);
            match best {
                None => {
                    let what = format!("{name} got {what} and no subscription asks for it");
                    verdict.report(CheckRule::Stray, what, shown);
                }
                Some(best) => {
                    let what = format!("{name} got {what} at QoS {}, subscribed with {best}", delivery.qos);
                    verdict.report(CheckRule::WrongQos, what, shown);
                }
            }
        }
    }
    for at in &facts.unknown {
        verdict.report(CheckRule::Stray, "a message that nobody published".to_owned(), vec![*at]);
    }
}

/// True if the subscription was requested before the delivery and ended, if at all, after the
/// message was first sent.
fn asks(facts: &Facts<'_>, span: &Span, message: &SentMessage, delivery: &Delivery) -> bool {
    let publish = facts.publish(message.id);
    let had_ended = span.unsubscribed.zip(publish.first_sent).is_some_and(|(unsuback, sent)| unsuback < sent);
    let too_late = message.kind == MessageKind::Plain
        && publish.completed.is_some_and(|completed| completed < span.sent);
    span.sent < delivery.at && !had_ended && !too_late
}
