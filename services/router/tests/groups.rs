//! Turns in shared subscriptions.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_mqtt::QoS;
use millrace_mqtt::topic::Filter;
use millrace_router::{MatchLimits, Router, ShareGroup, Subscription, Target};
use proptest::prelude::*;

const FILTER: Filter<'static> = Filter { share: Some("workers"), filter: "jobs/+" };

fn target(slot: u32) -> Target {
    Target { core: (slot % 3) as u16, slot, generation: slot }
}

fn subscription(slot: u32) -> Subscription {
    let qos = if slot.is_multiple_of(2) { QoS::AtLeastOnce } else { QoS::AtMostOnce };
    Subscription {
        target: target(slot),
        qos,
        no_local: false,
        retain_as_published: false,
        persistent: false,
        identifier: slot,
    }
}

fn router(members: u32) -> Router {
    let router = Router::new();
    for slot in 0..members {
        assert!(router.subscribe(FILTER, subscription(slot)));
    }
    router
}

fn group(router: &Router) -> Arc<ShareGroup> {
    let matched = router.snapshot().matches("jobs/1", MatchLimits::NONE).unwrap();
    assert!(matched.receivers.is_empty());
    assert_eq!(matched.groups.len(), 1);
    Arc::clone(&matched.groups[0])
}

fn picks(router: &Router, count: u32) -> BTreeMap<Target, u32> {
    let mut picks = BTreeMap::new();
    for _ in 0..count {
        *picks.entry(group(router).pick().unwrap().target).or_default() += 1;
    }
    picks
}

#[test]
fn everyone_gets_the_same_number_of_turns() {
    for members in [1, 2, 3, 7, 33, 100, 1000] {
        let picks = picks(&router(members), members * 4);
        assert_eq!(picks.len(), members as usize);
        assert!(picks.values().all(|count| *count == 4), "{members} members");
    }
}

#[test]
fn members_are_counted_up_to_a_bound() {
    for (members, most, expected) in [(1_000, 16, 16), (1_000, 1_000, 500), (20, 16, 10)] {
        let asked = Cell::new(0);
        let counted = group(&router(members)).count_online(most, |member| {
            asked.set(asked.get() + 1);
            member.slot.is_multiple_of(2)
        });
        assert_eq!(counted, expected);
        assert!(asked.get() <= 4 * most, "{} of {members} are asked", asked.get());
    }
}

#[test]
fn a_full_member_has_a_neighbour_on_its_core_and_few_are_asked() {
    let router = router(100);
    let group = group(&router);
    // Every third slot is on the same core, see `target`.
    for (of, with_room, expected) in [
        (0, 3, Some(3)),
        (99, 3, Some(3)),
        (96, 99, Some(99)),
        (50, 2, Some(2)),
        (0, 1, None),
        (30, 30, None),
    ] {
        let found = group.neighbour(target(of), |member| member == target(with_room));
        let is_far = expected.is_some_and(|slot: u32| (slot + 99 - of) % 99 / 3 > 16);
        let expected = expected.filter(|_| !is_far);
        assert_eq!(found.map(|found| found.target.slot), expected, "behind {of}");
    }
    let asked = Cell::new(0);
    let never = |_| {
        asked.set(asked.get() + 1);
        false
    };
    assert!(group.neighbour(target(0), never).is_none());
    assert_eq!(asked.get(), 16);
}

#[test]
fn turns_go_on_while_others_come_and_go() {
    let router = router(60);
    let mut counts = BTreeMap::new();
    for round in 0..60 {
        // In each round one of the upper half leaves, somewhere in the middle of the turns, or
        // comes back.
        for step in 0..group(&router).len() {
            if step == 17 {
                let slot = 30 + round * 7 % 30;
                if !router.unsubscribe(FILTER, target(slot)) {
                    router.subscribe(FILTER, subscription(slot));
                }
            }
            *counts.entry(group(&router).pick().unwrap().target).or_insert(0) += 1;
        }
    }
    let stayed: Vec<u32> = (0..30).map(|slot| counts[&target(slot)]).collect();
    let (least, most) = (stayed.iter().min().unwrap(), stayed.iter().max().unwrap());
    // All turns happen in one order, so two that stay are never more than one turn apart.
    assert!(most - least <= 1, "{least} to {most}");
}

#[test]
fn a_member_has_its_own_quality_of_service() {
    //= [MQTT-4.8.2-3] v5
    let router = router(2);
    for _ in 0..4 {
        let receiver = group(&router).pick().unwrap();
        let expected = subscription(receiver.target.slot);
        assert_eq!(receiver.qos, expected.qos);
        assert_eq!(receiver.identifiers.iter().copied().sum::<u32>(), expected.identifier);
    }
}

#[test]
fn offline_members_are_picked_only_when_nobody_is_online() {
    let router = router(3);
    router.set_online(FILTER, target(1), false);
    assert_eq!((group(&router).len(), group(&router).online()), (3, 2));
    assert_eq!(picks(&router, 10), BTreeMap::from([(target(0), 5), (target(2), 5)]));
    router.set_online(FILTER, target(0), false);
    router.set_online(FILTER, target(2), false);
    assert_eq!(picks(&router, 9).into_values().collect::<Vec<_>>(), [3, 3, 3]);
    router.set_online(FILTER, target(1), true);
    assert_eq!(picks(&router, 5), BTreeMap::from([(target(1), 5)]));
    // Subscribing again brings a member back, unchanged.
    assert!(!router.subscribe(FILTER, subscription(0)));
    assert_eq!(group(&router).online(), 2);
    for slot in 0..3 {
        assert!(router.unsubscribe(FILTER, target(slot)));
    }
    assert!(router.snapshot().matches("jobs/1", MatchLimits::NONE).unwrap().is_empty());
}

#[test]
fn one_member_can_be_passed_over() {
    let router = router(3);
    let others = |router: &Router| group(router).pick_online(|other| other != target(1));
    for _ in 0..6 {
        assert_ne!(others(&router).unwrap().target, target(1));
    }
    router.set_online(FILTER, target(0), false);
    router.set_online(FILTER, target(2), false);
    assert_eq!(others(&router), None, "the only one online does not count");
    assert_eq!(group(&router).pick().unwrap().target, target(1));
}

#[test]
fn groups_of_one_filter_and_filters_of_one_name_are_apart() {
    let router = router(2);
    router.subscribe(Filter { share: Some("auditors"), filter: "jobs/+" }, subscription(5));
    router.subscribe(Filter { share: Some("workers"), filter: "jobs/#" }, subscription(6));
    let matched = router.snapshot().matches("jobs/1", MatchLimits::NONE).unwrap();
    let mut groups: Vec<_> =
        matched.groups.iter().map(|group| (group.name(), group.filter(), group.len())).collect();
    groups.sort_unstable();
    assert_eq!(groups, [("auditors", "jobs/+", 1), ("workers", "jobs/#", 1), ("workers", "jobs/+", 2)]);
}

#[test]
fn threads_share_the_turns() {
    let router = router(8);
    let picks = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| picks(&router, 2000))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let mut total = BTreeMap::new();
    for (target, count) in picks.into_iter().flatten() {
        *total.entry(target).or_insert(0) += count;
    }
    assert!(total.values().all(|count| *count == 1000), "{total:?}");
}

proptest! {
    #[test]
    fn any_number_of_members_gets_even_turns(slots in proptest::collection::btree_set(any::<u32>(), 1..200)) {
        let router = Router::new();
        for slot in &slots {
            router.subscribe(FILTER, subscription(*slot));
        }
        let picks = picks(&router, slots.len() as u32 * 3);
        prop_assert_eq!(picks.len(), slots.len());
        prop_assert!(picks.values().all(|count| *count == 3));
    }
}
