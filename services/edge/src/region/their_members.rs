//! Members of shared subscriptions of one broker on one other pod, and their targets in the router.

use std::collections::HashMap;

use millrace_mqtt::QoS;
use millrace_mqtt::topic::Filter;
use millrace_router::{Edit, Subscription, Target};

use super::members::GroupKey;
use super::own_members::PAGE;
use crate::broker::Broker;
use crate::clock::Millis;
use crate::elsewhere::ELSEWHERE;

/// Groups that are not repeated are gone after this time without a notice. A pod sends further members every second.
pub(super) const CONFIRM_MS: Millis = 5_000;

#[derive(Default)]
pub(super) struct TheirMembers {
    /// Number of members, and the round in which the pod sent it last.
    groups: HashMap<GroupKey, (u16, u32)>,
    round: u32,
    /// Groups of earlier rounds may be gone: the time of the last notice about any group.
    confirming: Option<Millis>,
}

impl TheirMembers {
    /// The pod sends all its groups again from now on.
    pub(super) fn all_follow(&mut self, now: Millis) {
        self.round = self.round.wrapping_add(1);
        self.confirming = Some(now);
    }

    pub(super) fn set(&mut self, broker: &Broker, slot: u32, group: GroupKey, count: u16, now: Millis) {
        self.confirming = self.confirming.map(|_| now);
        let (name, filter) = &group;
        let before = self.groups.get(&group).map_or(0, |(count, _)| *count);
        if before != count {
            broker.router.edit(|edit| route(edit, slot, (name, filter), before, count));
        }
        match count {
            0 => self.groups.remove(&group),
            count => self.groups.insert(group, (count, self.round)),
        };
    }

    /// Removes some groups that the pod has not sent again; returns false if no more can be removed now.
    pub(super) fn remove_unconfirmed(&mut self, broker: &Broker, slot: u32, now: Millis) -> bool {
        if self.confirming.is_none_or(|at| now < at + CONFIRM_MS) {
            return false;
        }
        let present = self.round;
        let is_old = |_: &GroupKey, (_, round): &mut (u16, u32)| *round != present;
        let page: Vec<_> = self.groups.extract_if(is_old).take(PAGE).collect();
        remove(broker, slot, &page);
        self.confirming = self.confirming.filter(|_| page.len() == PAGE);
        self.is_confirming()
    }

    pub(super) fn is_confirming(&self) -> bool {
        self.confirming.is_some()
    }

    pub(super) fn remove_all(self, broker: &Broker, slot: u32) {
        let groups: Vec<_> = self.groups.into_iter().collect();
        groups.chunks(PAGE).for_each(|page| remove(broker, slot, page));
    }
}

fn remove(broker: &Broker, slot: u32, page: &[(GroupKey, (u16, u32))]) {
    broker.router.edit(|edit| {
        for ((name, filter), (count, _)) in page {
            route(edit, slot, (name, filter), *count, 0);
        }
    });
}

/// Replaces a pod's `before` targets in the router by `now` targets.
fn route(edit: &mut Edit<'_>, slot: u32, (name, filter): (&str, &str), before: u16, now: u16) {
    let filter = Filter { share: Some(name), filter };
    for member in 0..before.max(now) {
        let target = Target { core: ELSEWHERE, slot, generation: member.into() };
        if member >= now {
            edit.unsubscribe(filter, target);
        } else if member >= before {
            // The maximum: the member's own pod applies the granted QoS.
            let qos = QoS::ExactlyOnce;
            edit.subscribe(
                filter,
                Subscription {
                    target,
                    qos,
                    no_local: false,
                    retain_as_published: true,
                    persistent: false,
                    identifier: 0,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_are_sent_again_stay_in_the_router_and_others_are_removed_in_pages() {
        let broker = Broker::new(5, "acme", 1);
        let group = |number: usize| -> GroupKey { ("g".into(), number.to_string().into()) };
        let mut members = TheirMembers::default();
        let groups = 2 * PAGE + 2;
        (0..groups).for_each(|number| members.set(&broker, 1, group(number), 2, 0));
        let before = broker.router.generation();
        members.all_follow(0);
        (0..PAGE).for_each(|number| members.set(&broker, 1, group(number), 2, 100));
        assert_eq!(broker.router.generation(), before, "nothing has changed");
        assert!(!members.remove_unconfirmed(&broker, 1, 99 + CONFIRM_MS), "more may follow");
        assert_eq!(broker.router.subscriptions(), 2 * groups);
        assert!(members.remove_unconfirmed(&broker, 1, 100 + CONFIRM_MS));
        assert_eq!(broker.router.subscriptions(), 2 * (groups - PAGE));
        assert!(!members.remove_unconfirmed(&broker, 1, 100 + CONFIRM_MS));
        assert_eq!((broker.router.subscriptions(), members.is_confirming()), (2 * PAGE, false));
        members.remove_all(&broker, 1);
        assert_eq!(broker.router.subscriptions(), 0);
    }
}
