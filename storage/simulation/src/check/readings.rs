//! Reads are complete: they return every matching message since the subscription, except those that
//! a limit trimmed and counted (P1, P2, P3), and nothing else (P8).
//!
//! A session's life begins when it is made and ends when it expires or is removed. Each pod that
//! owns it during that life has a tenure.

use std::{collections::BTreeMap, ops::Bound};

use millrace_layers::Position;
use millrace_storage::Versionstamp;

use super::{CHECKER, Violations};
use crate::{
    history::{MessageId, PodHistory, Reading, Subscribed, Tenure, Write},
    plan::matches,
};

/// The position from which on a subscription of a session's life is complete.
type CompleteFrom = BTreeMap<(u64, Subscribed), Versionstamp>;

pub(super) fn check(history: &PodHistory) -> Violations {
    let complete_from = complete_from(history);
    let orders: BTreeMap<_, _> =
        history.brokers.iter().map(|broker| (*broker, history.messages.in_order(*broker))).collect();
    let accepted = accepted(history);
    let mut violations = Vec::new();
    for reading in &history.readings {
        let tenure = &history.tenures[&reading.attempt];
        let Some(life) = tenure.found.as_ref().map(|found| found.life) else { continue };
        violations.extend(foreign(history, tenure, reading));
        if !counts(reading, tenure, accepted.get(&reading.attempt)) {
            continue;
        }
        let complete = |subscribed: &Subscribed| complete_from.get(&(life, subscribed.clone())).copied();
        violations.extend(missing(history, &orders[&tenure.broker], tenure, reading, &complete));
    }
    violations
}

/// The last cursor that the store has accepted, by attempt.
fn accepted(history: &PodHistory) -> BTreeMap<u64, Position> {
    let mut accepted: BTreeMap<u64, Position> = BTreeMap::new();
    for (attempt, tenure) in &history.tenures {
        let taken = tenure.cursors.iter().filter(|(_, write)| *write == Write::Done);
        let seen = tenure.found.as_ref().and_then(|found| found.before.as_ref());
        let own = taken.map(|(cursor, _)| (*attempt, *cursor));
        for (attempt, cursor) in own.chain(seen.map(|before| (before.attempt, before.cursor))) {
            let last = accepted.entry(attempt).or_insert(cursor);
            *last = cursor.max(*last);
        }
    }
    accepted
}

/// A session need not have advanced over a reading: another pod repeats the readings of a pod that
/// has lost the session.
fn counts(reading: &Reading, tenure: &Tenure, accepted: Option<&Position>) -> bool {
    tenure.pod == CHECKER || accepted.is_some_and(|cursor| reading.through <= *cursor)
}

fn complete_from(history: &PodHistory) -> CompleteFrom {
    let mut all = BTreeMap::new();
    for tenure in history.tenures.values() {
        let Some(found) = &tenure.found else { continue };
        for (subscribed, stamp) in &tenure.complete_from {
            let first = all.entry((found.life, subscribed.clone())).or_insert(*stamp);
            *first = (*first).min(*stamp);
        }
    }
    all
}

/// Entries that no subscription of the session covers, and entries out of order.
fn foreign(history: &PodHistory, tenure: &Tenure, reading: &Reading) -> Violations {
    let mut violations = Vec::new();
    let mut last = reading.from;
    for (at, id) in &reading.entries {
        let Some(message) = history.messages.get(*id) else { continue };
        let wanted = |subscribed: &Subscribed| {
            matches(&subscribed.filter, &message.topic) && *at > Position::end_of(subscribed.since)
        };
        if message.broker != tenure.broker || !reading.sources.iter().any(wanted) {
            violations.push(format!("foreign: {} got {id} on {}", tenure.client, message.topic));
        }
        if *at <= last || *at > reading.through {
            violations.push(format!("order: {} got {at:?} after {last:?}", tenure.client));
        }
        last = *at;
    }
    violations
}

/// Entries that the reading skipped although a subscription covers them, beyond those counted as
/// trimmed.
fn missing(
    history: &PodHistory,
    order: &BTreeMap<Position, MessageId>,
    tenure: &Tenure,
    reading: &Reading,
    complete_from: &dyn Fn(&Subscribed) -> Option<Versionstamp>,
) -> Violations {
    let mut violations = Vec::new();
    let span = (Bound::Excluded(reading.from), Bound::Included(reading.through));
    let read: BTreeMap<Position, MessageId> = reading.entries.iter().copied().collect();
    for (number, subscribed) in reading.sources.iter().enumerate() {
        let Some(since) = complete_from(subscribed) else { continue };
        let is_wanted = |at: &Position, id: MessageId| {
            let topic = history.messages.get(id).map(|message| &message.topic);
            at.stamp() > since && topic.is_some_and(|topic| matches(&subscribed.filter, topic))
        };
        let mut gone =
            order.range(span).filter(|(at, id)| is_wanted(at, **id) && !read.contains_key(at)).peekable();
        let first = gone.peek().map(|(at, id)| (**at, **id));
        let (count, counted) = (gone.count() as u64, reading.missed.get(&number).copied().unwrap_or(0));
        if let Some((at, id)) = first.filter(|_| count > counted) {
            let (client, filter) = (&tenure.client, &subscribed.filter);
            violations.push(format!(
                "missing: {client} ({filter} since {since:?}) did not get {count}, {counted} counted as \
                 trimmed: {id} at {at:?}"
            ));
        }
    }
    violations
}
