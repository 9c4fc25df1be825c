//! Rule: nothing acknowledged is lost (P1, P2, P3).
//!
//! The server owes a message to a persistent session if the session's SUBACK came before the
//! message was first sent, and the message was acknowledged. It does not owe:
//! - an unacknowledged message, which may have arrived or not;
//! - a message that a session had not received when it sent UNSUBSCRIBE, because a server may drop
//!   what it has not begun to send (3.10.4). But if a later message of the same publisher and topic
//!   did arrive before that UNSUBSCRIBE, over the same filter, the server skipped the earlier one.

use std::collections::{BTreeMap, HashMap};

use super::facts::{Facts, PublishFacts, Session, Span};
use super::verdict::{CheckRule, Verdict};
use crate::history::{ClientId, MessageId, MessageKind, SentMessage};

/// Subscriptions made later than this after the first publish are counted separately: they show that
/// the run checked subscriptions made while messages flowed.
const LATE_MS: u64 = 500;

pub(crate) fn check(facts: &Facts<'_>, verdict: &mut Verdict) {
    let mut by_topic: BTreeMap<&str, Vec<MessageId>> = BTreeMap::new();
    for message in
        facts.history.messages.iter().filter(|message| !matches!(message.kind, MessageKind::Will { .. }))
    {
        by_topic.entry(&message.topic).or_default().push(message.id);
    }
    let flowing = facts.publishes.iter().filter_map(|publish| publish.first_sent).min();
    let late_ms = flowing.map_or(u64::MAX, |at| facts.at_ms(at) + LATE_MS);
    for (client, session) in facts.persistent() {
        let progress = Progress::of(facts, session);
        for (topic, messages) in &by_topic {
            let spans = session.spans_for(topic);
            if spans.is_empty() {
                continue;
            }
            for id in messages {
                let message = facts.history.about(*id);
                let owed = spans.iter().find(|span| owes(facts, &progress, &spans, span, message));
                let Some(span) = owed else { continue };
                verdict.counts.required += 1;
                verdict.counts.required_late += usize::from(facts.at_ms(span.sent) >= late_ms);
                judge(facts, verdict, (client, session), span, message);
            }
        }
    }
}

fn judge(
    facts: &Facts<'_>,
    verdict: &mut Verdict,
    (client, session): (ClientId, &Session),
    span: &Span,
    message: &SentMessage,
) {
    let PublishFacts { first_sent, last_sent, acknowledged, .. } = *facts.publish(message.id);
    let name = &facts.history.who(client).name;
    let mut shown: Vec<usize> = [Some(span.sent), span.acknowledged, first_sent, last_sent, acknowledged]
        .into_iter()
        .flatten()
        .collect();
    match session.deliveries_of(message.id).map(|delivery| delivery.qos).max() {
        None => {
            let what = format!("{} never came to {name}", facts.history.name(message.id));
            verdict.report(CheckRule::Missing, what, shown);
        }
        Some(qos) if qos < message.qos.min(span.qos) => {
            let what = format!("{} came to {name} at QoS {qos}", facts.history.name(message.id));
            shown.extend(session.deliveries_of(message.id).map(|delivery| delivery.at));
            verdict.report(CheckRule::WrongQos, what, shown);
        }
        Some(_) => {}
    }
}

/// True if the server owes the message to the session because of this subscription.
fn owes(facts: &Facts<'_>, progress: &Progress, spans: &[&Span], span: &Span, message: &SentMessage) -> bool {
    let publish = facts.publish(message.id);
    let (Some(subscribed), Some(sent), Some(acknowledged)) =
        (span.acknowledged, publish.first_sent, publish.acknowledged)
    else {
        return false;
    };
    if subscribed > sent {
        return false;
    }
    span.unsubscribe_sent.is_none_or(|unsubscribe| {
        acknowledged < unsubscribe
            && spans.iter().all(|other| other.filter == span.filter)
            && progress.before(unsubscribe, message) > Some(message.sequence)
    })
}

/// For each publisher and topic, the highest sequence number that the session had received, by
/// event.
struct Progress(HashMap<(ClientId, String), Vec<(usize, u32)>>);

impl Progress {
    fn of(facts: &Facts<'_>, session: &Session) -> Self {
        let mut by_source: HashMap<_, Vec<(usize, u32)>> = HashMap::new();
        if session.spans.iter().all(|span| span.unsubscribe_sent.is_none()) {
            return Self(by_source);
        }
        for delivery in &session.deliveries {
            let message = facts.history.about(delivery.message);
            let furthest = by_source.entry((message.publisher, message.topic.to_string())).or_default();
            let highest = furthest.last().map_or(0, |(_, sequence)| *sequence);
            furthest.push((delivery.at, highest.max(message.sequence)));
        }
        Self(by_source)
    }

    /// The highest sequence number of the message's publisher and topic that was received before an
    /// event.
    fn before(&self, at: usize, message: &SentMessage) -> Option<u32> {
        let furthest = self.0.get(&(message.publisher, message.topic.to_string()))?;
        let next = furthest.partition_point(|(received, _)| *received < at);
        furthest[..next].last().map(|(_, sequence)| *sequence)
    }
}
