//! Rule: a new subscriber gets the last completed retained message of each topic (PUBACK, PUBCOMP),
//! or a later one (P6).
//!
//! Each retained topic has one publisher. A message that was sent and not completed may be the
//! retained one or not. A message older than the last completed one before the SUBSCRIBE must not
//! arrive, unless its publisher resent it later. A missing topic counts once the subscriber has
//! waited long enough.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::filter::matches;
use super::verdict::{CheckRule, Verdict};
use crate::history::{ConnectionId, Event, MessageId, MessageKind};

/// One SUBSCRIBE of a client without a session. The numbers are indexes of events: of the
/// SUBSCRIBE, of the first message of each topic, and of the moment until which the client waited.
#[derive(Default)]
struct RetainedProbe<'a> {
    subscribed: usize,
    filter: &'a str,
    seen: BTreeMap<&'a str, (usize, MessageId)>,
    waited: Option<usize>,
}

pub(crate) fn check(facts: &Facts<'_>, verdict: &mut Verdict) {
    let mut topics: BTreeMap<&str, Vec<MessageId>> = BTreeMap::new();
    for message in facts.history.messages.iter().filter(|message| message.kind == MessageKind::Retained) {
        topics.entry(&message.topic).or_default().push(message.id);
    }
    for (connection, probe) in probes(facts) {
        for (topic, messages) in topics.iter().filter(|(topic, _)| matches(probe.filter, topic)) {
            let last = messages.iter().rev().find(|id| {
                facts.publish(**id).completed.is_some_and(|completed| completed < probe.subscribed)
            });
            let Some(last) = last else { continue };
            judge(facts, verdict, &probe, connection, (topic, *last));
        }
    }
}

fn judge(
    facts: &Facts<'_>,
    verdict: &mut Verdict,
    probe: &RetainedProbe<'_>,
    connection: ConnectionId,
    (topic, last): (&str, MessageId),
) {
    let client = &facts.history.who(facts.history.owner(connection)).name;
    let owed = facts.publish(last);
    let mut shown: Vec<usize> = vec![probe.subscribed];
    shown.extend([owed.last_sent, owed.completed].into_iter().flatten());
    match (probe.seen.get(topic), probe.waited) {
        (Some((at, seen)), _) => {
            verdict.counts.retained += 1;
            let older = facts.history.about(*seen).sequence < facts.history.about(last).sequence;
            let publish = facts.publish(*seen);
            if older && publish.last_sent < owed.last_sent {
                shown.push(*at);
                let (seen, last) = (facts.history.name(*seen), facts.history.name(last));
                let what = format!("{client} saw {seen} though {last} was completed");
                verdict.report(CheckRule::Retained, what, shown);
            }
        }
        (None, Some(waited)) => {
            verdict.counts.retained += 1;
            shown.push(waited);
            let what = format!("{client} saw nothing though {} was completed", facts.history.name(last));
            verdict.report(CheckRule::Retained, what, shown);
        }
        // The connection ended before the message could arrive.
        (None, None) => {}
    }
}

fn probes<'a>(facts: &Facts<'a>) -> BTreeMap<ConnectionId, RetainedProbe<'a>> {
    let history = facts.history;
    let mut probes: BTreeMap<ConnectionId, RetainedProbe<'a>> = BTreeMap::new();
    for (at, stamped) in history.events.iter().enumerate() {
        let Some(connection) = stamped.event.connection() else { continue };
        if history.who(history.owner(connection)).persistent {
            continue;
        }
        match &stamped.event {
            Event::SubscribeSent { filter, .. } => {
                probes
                    .insert(connection, RetainedProbe { subscribed: at, filter, ..RetainedProbe::default() });
            }
            Event::Received { message: Ok(message), retained: true, .. } => {
                if let Some(probe) = probes.get_mut(&connection) {
                    probe.seen.entry(&history.about(*message).topic).or_insert((at, *message));
                }
            }
            Event::Probed { .. } => {
                if let Some(probe) = probes.get_mut(&connection) {
                    probe.waited = Some(at);
                }
            }
            _ => {}
        }
    }
    probes
}
