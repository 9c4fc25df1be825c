//! No message of a shared subscription is lost. That no message is with two pods is checked when a
//! pod claims it. `history/groups.rs` explains the three sets.

use super::Violations;
use crate::{history::PodHistory, plan::matches};

pub(super) fn check(history: &PodHistory) -> Violations {
    let groups = &history.groups;
    let mut violations = Vec::new();
    for group in &groups.all {
        for (at, id) in history.messages.in_order(group.broker) {
            let Some(message) = history.messages.get(id) else { continue };
            if at.stamp() <= group.since || !matches(&group.filter, &message.topic) {
                continue;
            }
            let place = (group.broker, group.stream, at);
            let is_known =
                [&groups.done, &groups.may_be_done, &groups.left].iter().any(|all| all.contains(&place));
            if !is_known {
                violations.push(format!("groups: {id} at {at:?} of {} is lost", group.filter));
            }
        }
    }
    violations
}
