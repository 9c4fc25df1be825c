//! Session present is correct [MQTT-3.2.2-2] [MQTT-3.2.2-3].
//!
//! It must be 1 for a persistent client that connects without clean start
//! - after a SUBACK or PUBREC: the session then has durable state (P1, P2), with kills or without;
//! - after a CONNACK, if the server was not killed since.
//!
//! A CONNACK alone promises nothing over a kill, because a session without state has nothing to
//! lose. It must be 0 with clean start, for a client that is not persistent, and for one that never
//! sent a CONNECT before.

use std::collections::HashMap;

use super::facts::{Connection, Facts};
use super::verdict::{CheckRule, Verdict};
use crate::history::{ClientId, ConnectionId, Event, PublishAnswer};

/// Indices of events of a client in the history: from which on its session may exist, its last CONNACK,
/// and from which on the session survives kills (none expires during a run); and its last connection.
#[derive(Default)]
struct Known {
    possible: Option<usize>,
    accepted: Option<usize>,
    durable: Option<usize>,
    last: Option<ConnectionId>,
}

pub(crate) fn check(facts: &Facts<'_>, verdict: &mut Verdict) {
    let mut known: HashMap<ClientId, Known> = HashMap::new();
    for (at, stamped) in facts.history.events.iter().enumerate() {
        let Some(connection) = stamped.event.connection() else { continue };
        let client = facts.history.owner(connection);
        if !facts.history.who(client).persistent {
            if matches!(stamped.event, Event::Connected { session_present: true, .. }) {
                nowhere(facts, verdict, client, vec![at]);
            }
            continue;
        }
        let known = known.entry(client).or_default();
        match &stamped.event {
            Event::Connected { session_present, .. } => {
                let Some(made) = facts.connections.get(&connection) else { continue };
                connected(facts, verdict, (known, made), at, *session_present);
                known.possible.get_or_insert(made.sent);
                known.accepted = Some(at);
            }
            Event::ConnectSent { .. } => {
                // The server may have accepted the earlier CONNECT without a CONNACK arriving.
                if let Some(before) = known.last.and_then(|last| facts.connections.get(&last)) {
                    known.possible.get_or_insert(before.sent);
                }
                known.last = Some(connection);
            }
            Event::Subscribed { .. } | Event::Answered { answer: PublishAnswer::PubRec, .. } => {
                known.durable.get_or_insert(at);
            }
            _ => {}
        }
    }
}

fn connected(
    facts: &Facts<'_>,
    verdict: &mut Verdict,
    (known, made): (&mut Known, &Connection),
    at: usize,
    session_present: bool,
) {
    let name = &facts.history.who(made.client).name;
    if session_present {
        if made.clean || known.possible.is_none() {
            nowhere(facts, verdict, made.client, vec![made.sent, at]);
        }
        verdict.counts.resumed += 1;
        let since_kill = known.accepted.and_then(|accepted| facts.kill_between(accepted, at));
        verdict.counts.resumed_after_kill += usize::from(since_kill.is_some());
        return;
    }
    if !made.clean {
        let survived = known.accepted.filter(|accepted| facts.kill_between(*accepted, at).is_none());
        if let Some(evidence) = known.durable.or(survived) {
            let what = format!("{name} had a session and was told that there is none");
            verdict.report(CheckRule::SessionGone, what, vec![evidence, made.sent, at]);
        }
    }
    *known = Known { last: known.last, ..Known::default() };
}

fn nowhere(facts: &Facts<'_>, verdict: &mut Verdict, client: ClientId, shown: Vec<usize>) {
    let what = format!("{} was told of a session that cannot be", facts.history.who(client).name);
    verdict.report(CheckRule::SessionFromNowhere, what, shown);
}
