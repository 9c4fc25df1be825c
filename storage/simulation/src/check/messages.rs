//! Each acknowledged message is stored once and in order (P1, P4), and each will is published ("fires") once (P7).

use std::collections::BTreeMap;

use millrace_layers::Position;

use super::Violations;
use crate::history::{Found, MessageId, PodHistory, Tenure, Write};

pub(super) fn check(history: &PodHistory) -> Violations {
    let mut violations = once(history);
    violations.extend(order(history));
    violations.extend(wills(history));
    violations
}

fn once(history: &PodHistory) -> Violations {
    let mut violations = Vec::new();
    for (id, message) in history.messages.iter() {
        if message.is_acknowledged && message.places.is_empty() {
            violations.push(format!("lost: message {id} on {} was acknowledged", message.topic));
        }
        if message.places.len() > 1 {
            violations.push(format!("twice: message {id} on {} is at {:?}", message.topic, message.places));
        }
    }
    violations
}

fn order(history: &PodHistory) -> Violations {
    let mut last: BTreeMap<(u64, &str), (MessageId, Position)> = BTreeMap::new();
    let mut violations = Vec::new();
    for (id, message) in history.messages.iter().filter(|(_, message)| message.publisher != 0) {
        let Some(at) = message.places.first() else { continue };
        let before = last.insert((message.publisher, &message.topic), (id, *at));
        if let Some((earlier, before)) = before.filter(|(_, before)| before >= at) {
            violations.push(format!("order: message {id} at {at:?} was sent after {earlier} at {before:?}"));
        }
    }
    violations
}

fn wills(history: &PodHistory) -> Violations {
    let sessions = super::owners::in_order(history);
    let pairs = sessions.values().flat_map(|tenures| tenures.windows(2));
    pairs.filter_map(|pair| will(history, pair[0], pair[1])).collect()
}

fn will(history: &PodHistory, tenure: (u64, &Tenure), next: (u64, &Tenure)) -> Option<String> {
    let (id, delay_s) = tenure.1.will?;
    let fired = history.messages.get(id)?.places.first();
    let next = next.1.found.as_ref()?;
    let client = &tenure.1.client;
    match tenure.1.farewell {
        Some(Write::Done) if fired.is_some() => Some(format!("wills: {client} took {id} back, and it fired")),
        Some(Write::Done | Write::InDoubt) => None,
        _ if next.present && fired.is_some_and(|at| at.stamp() > next.stamp) => {
            Some(format!("wills: {id} of {client} fired after somebody came back"))
        }
        _ if fired.is_none() && must_fire(history, tenure, delay_s, next) => {
            Some(format!("wills: {id} of {client} never fired"))
        }
        _ => None,
    }
}

/// Whether the will of a connection must have fired when the next connection exists.
fn must_fire(history: &PodHistory, (attempt, tenure): (u64, &Tenure), delay_s: u32, next: &Found) -> bool {
    match &next.before {
        // The session ended. If another connection took it first, that may have prevented the will.
        None => !super::owners::may_have_ended(history, tenure),
        Some(before) if before.attempt != attempt => false,
        Some(_) if !next.present => true,
        Some(before) if before.detached_at_ms == 0 => delay_s == 0,
        Some(before) => {
            let delay_ms = u64::from(delay_s.min(before.expiry_s)) * 1_000;
            before.detached_at_ms + delay_ms <= next.now_ms
        }
    }
}
