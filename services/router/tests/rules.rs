//! The rules of topic filters and shared subscriptions, one line each.

use std::sync::Arc;

use millrace_mqtt::QoS;
use millrace_mqtt::topic::Filter;
use millrace_router::{
    CopyOptions, MatchLimits, Matched, Router, Subscription, Target, TopicTree, TreeStep, Walk,
};

fn target(slot: u32) -> Target {
    Target { core: 0, slot, generation: 1 }
}

fn subscription(slot: u32, qos: QoS) -> Subscription {
    Subscription {
        target: target(slot),
        qos,
        no_local: false,
        retain_as_published: false,
        persistent: false,
        identifier: 0,
    }
}

fn plain(filter: &str) -> Filter<'_> {
    Filter { share: None, filter }
}

fn shared<'a>(name: &'a str, filter: &'a str) -> Filter<'a> {
    Filter { share: Some(name), filter }
}

fn matches(router: &Router, topic: &str) -> Matched {
    router.snapshot().matches(topic, MatchLimits::NONE).unwrap_or_default()
}

/// Asks both trees: the router with one subscription, and the topic tree with one topic.
#[track_caller]
fn check(filter: &str, topic: &str, expected: bool) {
    let router = Router::new();
    assert!(router.subscribe(plain(filter), subscription(1, QoS::AtMostOnce)));
    assert_eq!(!matches(&router, topic).is_empty(), expected, "{filter:?} {topic:?}");
    let router = Router::new();
    assert!(router.subscribe(shared("g", filter), subscription(1, QoS::AtMostOnce)));
    assert_eq!(!matches(&router, topic).is_empty(), expected, "$share/g/{filter:?} {topic:?}");
    let tree = TopicTree::new();
    tree.insert(topic, ());
    assert_eq!(Walk::new(tree.snapshot(), filter).next().is_some(), expected, "tree {filter:?} {topic:?}");
}

#[test]
fn filters_match_by_level() {
    //= [MQTT-4.7.3-4] v5 v3.1.1
    for (filter, topic, expected) in [
        ("a", "a", true),
        ("a", "A", false),
        ("a", "a ", false),
        ("a", "a/", false),
        ("a/", "a/", true),
        ("/", "/", true),
        ("/", "//", false),
        ("/a", "a", false),
        ("a//b", "a//b", true),
        ("a//b", "a/b", false),
        ("a/b", "a/b/c", false),
        ("a/b/c", "a/b", false),
        ("\u{e9}", "e\u{301}", false),
        ("\u{feff}a", "a", false),
        ("a/\u{1F980}", "a/\u{1F980}", true),
    ] {
        check(filter, topic, expected);
    }
}

#[test]
fn wildcards_match_whole_levels() {
    for (filter, topic, expected) in [
        ("#", "a", true),
        ("#", "/", true),
        ("#", "a/b/c", true),
        ("a/#", "a", true),
        ("a/#", "a/", true),
        ("a/#", "a/b/c", true),
        ("a/#", "ab", false),
        ("a/#", "b", false),
        ("/#", "a", false),
        ("/#", "/", true),
        ("/#", "/a/b", true),
        ("+", "a", true),
        ("+", "/", false),
        ("+", "a/b", false),
        ("+/+", "/", true),
        ("/+", "/a", true),
        ("/+", "/", true),
        ("+/b", "a/b", true),
        ("+/b", "/b", true),
        ("+/b", "b", false),
        ("a/+/c", "a//c", true),
        ("a/+/c", "a/b/c", true),
        ("a/+/c", "a/b/d", false),
        ("a/+", "a", false),
        ("a/+", "a/", true),
        ("a/+/#", "a", false),
        ("a/+/#", "a/b", true),
        ("a/+/#", "a/b/c/d", true),
        ("+/+/+", "a/b/c", true),
        ("+/#", "a", true),
    ] {
        check(filter, topic, expected);
    }
}

#[test]
fn a_leading_wildcard_does_not_match_dollar_topics() {
    //= [MQTT-4.7.2-1] v5 v3.1.1
    for (filter, topic, expected) in [
        ("#", "$SYS", false),
        ("#", "$SYS/a", false),
        ("+", "$SYS", false),
        ("+/a", "$SYS/a", false),
        ("+/#", "$SYS/a", false),
        ("#", "$", false),
        ("$SYS/#", "$SYS", true),
        ("$SYS/#", "$SYS/a", true),
        ("$SYS/+", "$SYS/a", true),
        ("$SYS/a", "$SYS/a", true),
        ("a/+", "a/$b", true),
        ("a/#", "a/$b", true),
        ("+/$b", "a/$b", true),
        ("#", "a/$b", true),
    ] {
        check(filter, topic, expected);
    }
}

#[test]
fn overlapping_subscriptions_make_one_receiver_with_the_highest_qos_and_every_identifier() {
    //= [MQTT-3.3.4-2] v5
    //= [MQTT-3.3.4-3] v5
    //= [MQTT-3.3.4-4] v5
    //= [MQTT-3.3.5-1] v3.1.1
    let router = Router::new();
    let with = |qos, identifier, no_local, retain_as_published| Subscription {
        target: target(7),
        qos,
        no_local,
        retain_as_published,
        persistent: false,
        identifier,
    };
    router.subscribe(plain("a/b"), with(QoS::AtMostOnce, 3, true, false));
    router.subscribe(plain("a/+"), with(QoS::ExactlyOnce, 9, true, false));
    router.subscribe(plain("a/#"), with(QoS::AtLeastOnce, 3, true, false));
    let matched = matches(&router, "a/b");
    assert_eq!(matched.receivers.len(), 1);
    let receiver = &matched.receivers[0];
    assert_eq!((receiver.target, receiver.qos), (target(7), QoS::ExactlyOnce));
    assert!(receiver.copy_options(true).is_none() && !receiver.retain_as_published);
    let mut identifiers = receiver.identifiers.to_vec();
    identifiers.sort_unstable();
    assert_eq!(identifiers, [3, 3, 9]);

    router.subscribe(plain("#"), with(QoS::AtMostOnce, 0, false, true));
    let receiver = &matches(&router, "a/b").receivers[0];
    assert_eq!((receiver.identifiers.len(), receiver.retain_as_published), (3, true));
    //= [MQTT-3.8.3-3] v5
    let own = CopyOptions { qos: QoS::AtMostOnce, retain_as_published: true, identifiers: &[] };
    assert_eq!(receiver.copy_options(true), Some(own));
    router.subscribe(plain("+/#"), with(QoS::AtLeastOnce, 7, false, false));
    let receiver = &matches(&router, "a/b").receivers[0];
    let own = CopyOptions { qos: QoS::AtLeastOnce, retain_as_published: true, identifiers: &[7] };
    assert_eq!(receiver.copy_options(true), Some(own));
}

#[test]
fn subscribing_again_replaces() {
    //= [MQTT-3.8.4-3] v5 v3.1.1
    let router = Router::new();
    let filter = plain("a/+");
    assert!(router.subscribe(filter, subscription(1, QoS::AtMostOnce)));
    assert!(!router.subscribe(filter, subscription(1, QoS::ExactlyOnce)));
    assert_eq!(router.subscriptions(), 1);
    assert_eq!(matches(&router, "a/b").receivers[0].qos, QoS::ExactlyOnce);
    // The same filter in a group is another subscription.
    assert!(router.subscribe(shared("g", "a/+"), subscription(1, QoS::AtMostOnce)));
    assert!(router.subscribe(shared("h", "a/+"), subscription(1, QoS::AtMostOnce)));
    assert!(!router.subscribe(shared("h", "a/+"), subscription(1, QoS::AtLeastOnce)));
    assert_eq!(router.subscriptions(), 3);
    assert_eq!(matches(&router, "a/b").groups.len(), 2);
}

#[test]
fn unsubscribing_takes_the_exact_filter_only() {
    //= [MQTT-3.10.4-1] v5 v3.1.1
    let router = Router::new();
    router.subscribe(plain("a/+"), subscription(1, QoS::AtMostOnce));
    router.subscribe(shared("g", "a/+"), subscription(1, QoS::AtMostOnce));
    for filter in [plain("a/b"), plain("a/#"), plain("a/+/"), plain("A/+"), plain("#"), shared("h", "a/+")] {
        assert!(!router.unsubscribe(filter, target(1)), "{filter:?}");
    }
    assert!(!router.unsubscribe(plain("a/+"), target(2)));
    assert!(router.unsubscribe(plain("a/+"), target(1)));
    let matched = matches(&router, "a/b");
    assert_eq!((matched.receivers.len(), matched.groups.len()), (0, 1));
    assert!(router.unsubscribe(shared("g", "a/+"), target(1)));
    assert!(matches(&router, "a/b").is_empty());
    assert_eq!(router.subscriptions(), 0);
}

#[test]
fn the_generation_changes_with_what_is_published_and_only_then() {
    let router = Router::new();
    let filter = plain("a");
    let mut last = router.generation();
    let mut changed = |router: &Router| {
        let now = router.generation();
        assert_eq!(router.snapshot().generation(), now);
        std::mem::replace(&mut last, now) != now
    };
    router.subscribe(filter, subscription(1, QoS::AtMostOnce));
    assert!(changed(&router));
    router.subscribe(filter, subscription(1, QoS::AtMostOnce));
    assert!(!changed(&router), "the same again");
    router.subscribe(filter, subscription(1, QoS::AtLeastOnce));
    assert!(changed(&router));
    router.unsubscribe(filter, target(2));
    assert!(!changed(&router), "nothing there");
    router.subscribe(shared("g", "a"), subscription(1, QoS::AtMostOnce));
    assert!(changed(&router));
    router.set_online(shared("g", "a"), target(1), true);
    assert!(!changed(&router), "was online");
    router.set_online(shared("g", "a"), target(1), false);
    assert!(changed(&router));
    router.set_online(shared("h", "a"), target(1), false);
    assert!(!changed(&router), "no such group");
    router.unsubscribe(filter, target(1));
    assert!(changed(&router));
}

#[test]
fn a_batch_shows_only_whole() {
    let router = Router::new();
    let before = router.snapshot();
    let added = router.edit(|edit| {
        let added =
            (0..100).filter(|slot| edit.subscribe(plain("a"), subscription(*slot, QoS::AtMostOnce))).count();
        assert!(edit.unsubscribe(plain("a"), target(50)));
        assert!(router.snapshot().matches("a", MatchLimits::NONE).unwrap().is_empty());
        added
    });
    assert_eq!((added, router.subscriptions()), (100, 99));
    assert_eq!(router.generation(), before.generation() + 1);
    assert!(before.matches("a", MatchLimits::NONE).unwrap().is_empty());
    assert_eq!(matches(&router, "a").receivers.len(), 99);
}

#[test]
fn receivers_are_found_by_core() {
    let router = Router::new();
    for (core, slot) in [(3, 1), (0, 9), (3, 0), (17, 4), (0, 2), (40, 1)] {
        let target = Target { core, slot, generation: 0 };
        router.subscribe(plain("a"), Subscription { target, ..subscription(0, QoS::AtMostOnce) });
    }
    let matched = matches(&router, "a");
    assert!(matched.receivers.is_sorted_by_key(|receiver| receiver.target));
    for (core, expected) in [(0, 0..2), (1, 2..2), (3, 2..4), (17, 4..5), (18, 5..5), (40, 5..6), (41, 6..6)]
    {
        assert_eq!(matched.core_range(core), expected, "core {core}");
    }
}

#[test]
fn filters_and_topics_of_any_depth_do_not_exhaust_the_stack() {
    let deep = "/".repeat(65_535);
    let tree = TopicTree::new();
    let router = Router::new();
    for len in [65_535, 65_000, 30_000, 29_999] {
        tree.insert(&deep[..len], len);
        router.subscribe(plain(&deep[..len]), subscription(1, QoS::AtMostOnce));
    }
    let wild = "+/".repeat(20_000);
    router.subscribe(plain(&format!("{wild}#")), subscription(2, QoS::AtMostOnce));
    assert_eq!(matches(&router, &deep).receivers.len(), 2);
    assert_eq!(Walk::new(tree.snapshot(), "#").count(), 4);
    assert!(router.unsubscribe(plain(&deep), target(1)));
    assert_eq!(tree.remove(&deep[..30_000]), Some(30_000));
}

#[test]
fn a_match_has_bounds() {
    let router = Router::new();
    // Every level doubles the nodes that a match of `a/a/...` visits.
    for number in 0..1 << 10 {
        let filter: Vec<&str> = (0..10).map(|bit| if number >> bit & 1 == 0 { "a" } else { "+" }).collect();
        router.subscribe(plain(&filter.join("/")), subscription(1, QoS::AtMostOnce));
    }
    let snapshot = router.snapshot();
    let matches = |filters_max, nodes_max| {
        let matched = snapshot
            .matches("a/a/a/a/a/a/a/a/a/a", MatchLimits { filters_max, nodes_max, ..MatchLimits::NONE });
        matched.map(|matched| matched.receivers.len())
    };
    assert_eq!(matches(1 << 10, 1 << 11), Some(1));
    // A match that finds nothing has visited all the same nodes, and one that gives up those before
    // the bound.
    for (nodes_max, expected, found) in [(1 << 11, (1 << 11) - 1, Some(true)), (100, 100, None)] {
        let (mut visited, limits) = (7, MatchLimits { filters_max: 1 << 10, nodes_max, ..MatchLimits::NONE });
        let matched = snapshot.matches_counted("a/a/a/a/a/a/a/a/a/a/z", limits, &mut visited);
        assert_eq!((matched.map(|matched| matched.is_empty()), visited), (found, 7 + expected));
    }
    assert_eq!(matches((1 << 10) - 1, 1 << 11), None, "too many filters");
    assert_eq!(matches(1 << 10, 1 << 10), None, "too many nodes");
}

#[test]
fn subscriptions_besides_those_of_the_largest_filter_have_a_bound() {
    let router = Router::new();
    for (filter, clients) in [("a", 10), ("+", 4), ("#", 3)] {
        (0..clients).for_each(|slot| {
            router.subscribe(plain(filter), subscription(slot, QoS::AtMostOnce));
        });
    }
    let snapshot = router.snapshot();
    let matches = |topic, overlap_max| {
        let matched = snapshot.matches(topic, MatchLimits { overlap_max, ..MatchLimits::NONE });
        matched.map(|matched| (matched.receivers.len(), matched.overlap))
    };
    assert_eq!(matches("a", 0), Some((10, 7)), "as many as the largest filter has are allowed");
    assert_eq!(matches("b", 0), Some((4, 3)));
    assert_eq!(matches("a/b", 0), Some((3, 0)));
    for slot in 10..14 {
        router.subscribe(plain("#"), subscription(slot, QoS::AtMostOnce));
    }
    let snapshot = router.snapshot();
    let overlap = |overlap_max| {
        let matched = snapshot.matches("a", MatchLimits { overlap_max, ..MatchLimits::NONE });
        matched.map(|matched| (matched.receivers.len(), matched.overlap))
    };
    assert_eq!([10, 11].map(overlap), [None, Some((14, 11))]);
}

#[test]
fn each_share_name_counts_towards_the_bound_of_a_match() {
    let router = Router::new();
    for number in 0..10 {
        let name = format!("g{number}");
        router.subscribe(shared(&name, "a"), subscription(1, QoS::AtMostOnce));
    }
    router.edit(|edit| {
        assert_eq!((edit.groups("a"), edit.groups("b")), (10, 0));
        assert!(edit.has_group("g3", "a") && !edit.has_group("g10", "a"));
    });
    let matches = |filters_max| {
        router.snapshot().matches("a", MatchLimits { filters_max, ..MatchLimits::NONE }).is_some()
    };
    assert_eq!((matches(9), matches(10)), (false, true));
}

#[test]
fn a_walk_visits_one_node_at_a_time() {
    let tree = TopicTree::new();
    for number in 0..100 {
        tree.insert(&format!("a/{number}/b"), number);
    }
    let mut walk = Walk::new(tree.snapshot(), "a/+/c");
    let steps = std::iter::from_fn(|| (walk.step() != TreeStep::Done).then_some(())).count();
    assert!((100..=103).contains(&steps), "{steps}");
    let mut walk = Walk::new(tree.snapshot(), "#");
    let first = walk.next();
    // The walk keeps its snapshot until it lets go of it.
    (0..100).for_each(|number| assert!(tree.remove(&format!("a/{number}/b")).is_some()));
    assert_eq!((first.is_some(), walk.count()), (true, 99));
}

#[test]
fn a_suspended_walk_keeps_no_value_in_memory() {
    let tree = TopicTree::new();
    let values: Vec<Arc<u32>> = (0..1_000).map(Arc::new).collect();
    for value in &values {
        tree.insert(&format!("a/{}/b/{}", **value % 7, **value), value.clone());
    }
    for filter in ["#", "a/+/b/+", "a/3/#", "+/+/b/999"] {
        let mut walk = Walk::new(tree.snapshot(), filter);
        for steps in [0, 1, 20] {
            (0..steps).for_each(|_| drop(walk.step()));
            walk.suspend();
            assert!(walk.is_suspended());
            for value in &values {
                tree.insert(&format!("a/{}/b/{}", **value % 7, **value), value.clone());
                assert_eq!(Arc::strong_count(value), 2, "{filter} after {steps} steps");
            }
            walk.resume(tree.snapshot());
        }
        assert_eq!(walk.next(), None, "all values are newer");
    }
}
