//! Rule: a will is published once for each connection that ends without a clean DISCONNECT (P7).
//!
//! Each CONNECT has a will of its own, so "lost" and "twice" can be distinguished. Persistent
//! sessions that held a subscription before that CONNECT receive it. The verdict on a will is one
//! of:
//! - owed: CONNACK was received, and the connection ended by a closed socket, DISCONNECT 0x04, a
//!   takeover or a kill; with a delay, if the client never came back.
//! - forbidden: the connection lives; or it ended by a clean DISCONNECT, which the server has read
//!   (it closed its side) and had [`DISCARD_SETTLES_MS`] to store before a kill, in which the store
//!   answered; or the client resumed its session (CONNACK, session present) before the delay could
//!   have passed [MQTT-3.1.3-9].
//! - either, but never twice: CONNACK did not arrive; the client returned at about the end of the
//!   delay, or its session was gone by then; a kill came before a clean DISCONNECT was settled, so
//!   the server may not know it.
//! - not too early: after the connection's end, and after the delay, unless a new connection ended
//!   the session.
//!
//! "Twice" is exact at QoS 2. At QoS 1 it means twice on one connection, because a redelivery after
//! a reconnect of the subscriber looks the same.

use super::facts::{Connection, Delivery, Facts, Session};
use super::verdict::{CheckRule, Verdict};
use crate::history::{ConnectionId, End, MessageKind, SentMessage};

/// Milliseconds within which a server that closed its side after a DISCONNECT must have stored that
/// the will is discarded. MQTT does not acknowledge a DISCONNECT, so the limit is ours.
const DISCARD_SETTLES_MS: u64 = 1_000;
/// Milliseconds without any acknowledgement after which the store counts as unreachable: the history
/// does not record when the store itself was killed.
const STORE_ANSWERS_WITHIN_MS: u64 = 250;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Duty {
    Owed,
    Forbidden(&'static str),
    Either,
}

pub(crate) fn check(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (id, made) in &facts.connections {
        let Some(will) = made.will.map(|will| facts.history.about(will)) else { continue };
        let watchers: Vec<_> =
            facts.persistent().filter(|(_, session)| watches(session, &will.topic, made.sent)).collect();
        if watchers.is_empty() {
            continue;
        }
        let later = later_connections(facts, *id, made);
        let duty = duty(facts, made, will, &later);
        count(facts, verdict, made, will, duty);
        let mut fired = false;
        for (watcher, session) in watchers {
            let deliveries: Vec<&Delivery> = session.deliveries_of(will.id).collect();
            fired |= !deliveries.is_empty();
            let name = format!("{} at {}", facts.history.name(will.id), facts.history.who(watcher).name);
            let mut shown = vec![made.sent];
            shown.extend(made.connected.map(|(at, _)| at));
            shown.extend(made.end.map(|(at, _)| at).into_iter().chain(made.hung_up));
            shown.extend(
                later
                    .iter()
                    .take(2)
                    .flat_map(|next| [Some(next.sent), next.connected.map(|c| c.0)])
                    .flatten(),
            );
            shown.extend(deliveries.iter().map(|delivery| delivery.at));
            if deliveries.is_empty() {
                if duty == Duty::Owed {
                    verdict.report(CheckRule::WillLost, name, shown);
                }
            } else if let Duty::Forbidden(why) = duty {
                verdict.report(misfired(facts, made, will, deliveries[0]), format!("{name}: {why}"), shown);
            } else if times(&deliveries) > 1 {
                verdict.report(CheckRule::WillTwice, name, shown);
            } else if let Some(why) = too_early(facts, made, will, &later, deliveries[0]) {
                verdict.report(misfired(facts, made, will, deliveries[0]), format!("{name}: {why}"), shown);
            }
        }
        verdict.counts.wills_fired += usize::from(fired);
    }
}

fn watches(session: &Session, topic: &str, connect_sent: usize) -> bool {
    session.spans_for(topic).iter().any(|span| {
        span.acknowledged.is_some_and(|acknowledged| acknowledged < connect_sent)
            && span.unsubscribe_sent.is_none()
    })
}

fn later_connections<'a>(facts: &'a Facts<'_>, id: ConnectionId, made: &Connection) -> Vec<&'a Connection> {
    let after = facts.connections.range(id..).skip(1).map(|(_, later)| later);
    after.filter(|later| later.client == made.client).collect()
}

/// A kill ends a connection before the client notices it.
fn ended_at(facts: &Facts<'_>, made: &Connection) -> Option<usize> {
    let (end, _) = made.end?;
    Some(facts.kill_of(made, made.sent, end).unwrap_or(end))
}

fn delay_ms(will: &SentMessage) -> u64 {
    match will.kind {
        MessageKind::Will { delay_ms } => delay_ms,
        MessageKind::Plain | MessageKind::Retained => 0,
    }
}

fn duty(facts: &Facts<'_>, made: &Connection, will: &SentMessage, later: &[&Connection]) -> Duty {
    let (Some(_), Some((end, how)), Some(ended)) = (made.connected, made.end, ended_at(facts, made)) else {
        return if made.end.is_none() { Duty::Forbidden("its connection lives") } else { Duty::Either };
    };
    if how == End::Disconnect && ended == end {
        return after_disconnect(facts, made, end, later);
    }
    let delay_ms = delay_ms(will);
    if delay_ms == 0 || later.is_empty() {
        return Duty::Owed;
    }
    // The server cannot have noticed the end before it happened.
    let earliest_ms = facts.at_ms(ended) + delay_ms;
    let resumes = later.iter().take_while(|next| next.connected.is_none_or(|(_, present)| present));
    let mut resumed = resumes.filter_map(|next| next.connected);
    if resumed.any(|(at, _)| facts.at_ms(at) < earliest_ms) {
        return Duty::Forbidden("the session was resumed within the delay");
    }
    Duty::Either
}

fn after_disconnect(facts: &Facts<'_>, made: &Connection, end: usize, later: &[&Connection]) -> Duty {
    let Some(hung_up) = made.hung_up else { return Duty::Either };
    // Kills count only until the next connection, whose CONNECT replaced or removed the will.
    let replaced = later.iter().find_map(|next| next.connected).map_or(usize::MAX, |(at, _)| at);
    match facts.kill_of(made, end, replaced) {
        Some(kill)
            if kill < hung_up
                || facts.store_answers_ms(hung_up, kill, STORE_ANSWERS_WITHIN_MS) < DISCARD_SETTLES_MS =>
        {
            Duty::Either
        }
        _ => Duty::Forbidden("the client sent DISCONNECT"),
    }
}

/// How often the will arrived: exact at QoS 2, otherwise the most on one connection.
fn times(deliveries: &[&Delivery]) -> usize {
    if deliveries.iter().all(|delivery| delivery.qos == 2) {
        return deliveries.iter().filter(|delivery| delivery.is_first).count();
    }
    let on = |connection| deliveries.iter().filter(|other| other.connection == connection).count();
    deliveries.iter().map(|delivery| on(delivery.connection)).max().unwrap_or_default()
}

fn too_early(
    facts: &Facts<'_>,
    made: &Connection,
    will: &SentMessage,
    later: &[&Connection],
    first: &Delivery,
) -> Option<&'static str> {
    // The server closed the connection before the client could end it.
    if matches!(made.end, Some((at, End::ByServer(_))) if ended_at(facts, made) == Some(at)) {
        return None;
    }
    let ended = ended_at(facts, made)?;
    if first.at < ended {
        return Some("before its connection ended");
    }
    let early = facts.at_ms(first.at) < facts.at_ms(ended) + delay_ms(will);
    let disturbed = later.iter().any(|next| next.sent < first.at);
    (early && !disturbed).then_some("before its delay had passed")
}

/// The rule that a wrong will breaks. A delay that spans a restart ends by the time of day, which a
/// jump changes, so these wills have a rule of their own.
fn misfired(facts: &Facts<'_>, made: &Connection, will: &SentMessage, first: &Delivery) -> CheckRule {
    let is_clean = matches!(made.end, Some((_, End::Disconnect)));
    let restarted = ended_at(facts, made).and_then(|ended| facts.kill_between(ended, first.at));
    match restarted {
        Some(_) if delay_ms(will) > 0 && !is_clean => CheckRule::WillEarly,
        _ => CheckRule::WillWrong,
    }
}

fn count(facts: &Facts<'_>, verdict: &mut Verdict, made: &Connection, will: &SentMessage, duty: Duty) {
    match duty {
        Duty::Owed => {
            verdict.counts.wills_required += 1;
            verdict.counts.wills_required_delayed += usize::from(delay_ms(will) > 0);
            let killed = ended_at(facts, made).is_some_and(|at| facts.kills.binary_search(&at).is_ok());
            verdict.counts.wills_required_by_kill += usize::from(killed);
        }
        Duty::Forbidden(_) => verdict.counts.wills_forbidden += 1,
        Duty::Either => {}
    }
}
