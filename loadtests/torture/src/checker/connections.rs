//! Rule: connections end when they must, and only then.
//!
//! The server may close a connection when it is killed, and must close it when the client id
//! connects anew (P5). It has no other reason, because all clients keep to the protocol and to the
//! limits.

use super::facts::Facts;
use super::verdict::{CheckRule, Verdict};
use crate::history::{End, Event};

pub(crate) fn check(facts: &Facts<'_>, verdict: &mut Verdict) {
    verdict.counts.kills = facts.kills.len();
    for made in facts.connections.values() {
        let Some((at, end)) = made.end else { continue };
        let name = &facts.history.who(made.client).name;
        match end {
            End::TakenOver => verdict.counts.takeovers += usize::from(made.connected.is_some()),
            End::ByServer(_) if facts.kill_of(made, made.sent, at).is_none() => {
                let what = format!("{name} was disconnected without a kill or a takeover");
                verdict.report(CheckRule::Closed, what, vec![made.sent, at]);
            }
            _ => {}
        }
    }
    for (at, stamped) in facts.history.events.iter().enumerate() {
        if let Event::Lingers { connection } = stamped.event
            && let Some(made) = facts.connections.get(&connection)
            // Only a later connection with a CONNACK has taken over. Without it, the pod of that connection was killed or had no store.
            && facts.connections.range(connection..).skip(1).any(|(_, next)| {
                next.client == made.client && next.connected.is_some()
            })
        {
            let what = format!("{} has two connections", facts.history.who(made.client).name);
            let end = made.end.map(|(at, _)| at);
            verdict.report(
                CheckRule::Lingers,
                what,
                [Some(made.sent), end, Some(at)].into_iter().flatten().collect(),
            );
        }
    }
}
