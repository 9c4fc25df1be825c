//! Random changes against plain maps and the plain definition of matching.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_mqtt::QoS;
use millrace_mqtt::topic::Filter;
use millrace_router::{MatchLimits, Router, Snapshot, Subscription, Target, TopicTree, TreeSnapshot, Walk};
use proptest::prelude::*;

/// The definition of section 4.7, as plain as it gets.
fn naive(filter: &str, topic: &str) -> bool {
    fn below(filter: &[&str], topic: &[&str]) -> bool {
        match (filter, topic) {
            (["#"], _) => true,
            ([], []) => true,
            (["+", filter @ ..], [_, topic @ ..]) => below(filter, topic),
            ([a, filter @ ..], [b, topic @ ..]) => a == b && below(filter, topic),
            _ => false,
        }
    }
    let hidden = topic.starts_with('$') && filter.starts_with(['+', '#']);
    !hidden && below(&filter.split('/').collect::<Vec<_>>(), &topic.split('/').collect::<Vec<_>>())
}

fn topic() -> impl Strategy<Value = String> {
    let level = prop::sample::select(vec!["", "a", "b", "$SYS"]);
    prop::collection::vec(level, 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("empty", |t| !t.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let level = prop::sample::select(vec!["", "a", "b", "$SYS", "+", "+"]);
    (prop::collection::vec(level, 0..4), prop::bool::weighted(0.3))
        .prop_map(|(mut levels, many)| {
            if many {
                levels.push("#");
            }
            levels.join("/")
        })
        .prop_filter("empty", |filter| !filter.is_empty())
}

fn subscription() -> impl Strategy<Value = Subscription> {
    (0u16..3, 0u32..6, 0u8..3, any::<(bool, bool)>(), 0u32..4).prop_map(
        |(core, slot, qos, flags, identifier)| Subscription {
            target: Target { core, slot, generation: slot % 2 },
            qos: QoS::from_bits(qos).unwrap(),
            no_local: flags.0,
            retain_as_published: flags.1,
            persistent: flags.0 != flags.1,
            identifier,
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Subscribe(Option<&'static str>, String, Subscription),
    /// Removes the n-th existing subscription, so that the removal has an effect.
    Unsubscribe(prop::sample::Index),
    UnsubscribeAny(Option<&'static str>, String, Target),
    Online(prop::sample::Index, bool),
    Keep,
}

fn step() -> impl Strategy<Value = Step> {
    let share = prop::sample::select(vec![None, None, Some("g"), Some("h")]);
    let any_filter = (share, filter(), subscription()).boxed();
    prop_oneof![
        6 => any_filter.clone().prop_map(|(share, filter, s)| Step::Subscribe(share, filter, s)),
        4 => any::<prop::sample::Index>().prop_map(Step::Unsubscribe),
        1 => any_filter.prop_map(|(share, filter, s)| Step::UnsubscribeAny(share, filter, s.target)),
        2 => any::<(prop::sample::Index, bool)>().prop_map(|(index, online)| Step::Online(index, online)),
        1 => Just(Step::Keep),
    ]
}

type Key = (Option<&'static str>, String, Target);
type Model = BTreeMap<Key, (Subscription, bool)>;

fn check(snapshot: &Snapshot, model: &Model, topic: &str) {
    assert_eq!(snapshot.subscriptions(), model.len());
    let matched = snapshot.matches(topic, MatchLimits::NONE).unwrap();
    let mut receivers: BTreeMap<Target, Vec<&Subscription>> = BTreeMap::new();
    let mut groups: BTreeMap<(&str, &str), Vec<(Target, bool)>> = BTreeMap::new();
    for ((share, filter, target), (subscription, online)) in model {
        match share {
            _ if !naive(filter, topic) => {}
            None => receivers.entry(*target).or_default().push(subscription),
            Some(name) => groups.entry((name, filter)).or_default().push((*target, *online)),
        }
    }
    assert!(matched.receivers.iter().map(|receiver| receiver.target).eq(receivers.keys().copied()));
    for (receiver, all) in matched.receivers.iter().zip(receivers.values()) {
        assert_eq!(Some(receiver.qos), all.iter().map(|s| s.qos).max());
        let own: Vec<_> = all.iter().filter(|s| !s.no_local).collect();
        assert_eq!(receiver.own_qos, own.iter().map(|s| s.qos).max());
        if let Some(options) = receiver.copy_options(true) {
            assert_eq!(options.retain_as_published, own.iter().any(|s| s.retain_as_published));
            let mut expected: Vec<_> = own.iter().map(|s| s.identifier).filter(|id| *id != 0).collect();
            let mut identifiers = options.identifiers.to_vec();
            expected.sort_unstable();
            identifiers.sort_unstable();
            assert_eq!(identifiers, expected);
        }
        assert_eq!(
            usize::from(receiver.persistent_subscriptions),
            all.iter().filter(|s| s.persistent).count()
        );
        assert_eq!(receiver.retain_as_published, all.iter().any(|s| s.retain_as_published));
        let mut expected: Vec<_> =
            all.iter().map(|s| s.identifier).filter(|identifier| *identifier != 0).collect();
        let mut identifiers = receiver.identifiers.to_vec();
        expected.sort_unstable();
        identifiers.sort_unstable();
        assert_eq!(identifiers, expected);
    }
    for core in 0..4 {
        let here = &matched.receivers[matched.core_range(core)];
        assert!(here.iter().all(|receiver| receiver.target.core == core));
        assert_eq!(here.len(), receivers.keys().filter(|target| target.core == core).count());
    }
    assert_eq!(matched.is_empty(), receivers.is_empty() && groups.is_empty());
    assert_eq!(matched.groups.len(), groups.len());
    for group in &matched.groups {
        let members = &groups[&(group.name(), group.filter())];
        assert_eq!(group.len(), members.len());
        let online: BTreeSet<_> = members.iter().filter(|member| member.1).map(|member| member.0).collect();
        let all: BTreeSet<_> = members.iter().map(|member| member.0).collect();
        let expected = if online.is_empty() { all } else { online };
        let picked: BTreeSet<_> = (0..expected.len()).map(|_| group.pick().unwrap().target).collect();
        assert_eq!(picked, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_router_matches_like_a_naive_matcher(
        steps in prop::collection::vec(step(), 0..80),
        topics in prop::collection::vec(topic(), 1..12),
        in_one_batch: bool,
    ) {
        let router = Router::new();
        let mut model = Model::new();
        let mut kept: Vec<(Arc<Snapshot>, Model)> = vec![(router.snapshot(), Model::new())];
        if in_one_batch {
            router.edit(|edit| {
                for step in &steps {
                    apply(step, &mut model, |change| match change {
                        Change::Subscribe(filter, s) => edit.subscribe(filter, s),
                        Change::Unsubscribe(filter, target) => edit.unsubscribe(filter, target),
                        Change::Online(filter, target, online) => {
                            edit.set_online(filter, target, online);
                            true
                        }
                    });
                }
            });
        } else {
            for step in &steps {
                if let Step::Keep = step {
                    kept.push((router.snapshot(), model.clone()));
                }
                apply(step, &mut model, |change| match change {
                    Change::Subscribe(filter, s) => router.subscribe(filter, s),
                    Change::Unsubscribe(filter, target) => router.unsubscribe(filter, target),
                    Change::Online(filter, target, online) => {
                        router.set_online(filter, target, online);
                        true
                    }
                });
            }
        }
        kept.push((router.snapshot(), model.clone()));
        prop_assert_eq!(router.subscriptions(), model.len());
        for topic in &topics {
            for (snapshot, model) in &kept {
                check(snapshot, model, topic);
            }
        }
        for (share, filter, target) in model.keys() {
            let existed = router.unsubscribe(Filter { share: *share, filter }, *target);
            prop_assert!(existed);
        }
        prop_assert_eq!(router.subscriptions(), 0);
        for topic in &topics {
            prop_assert!(router.snapshot().matches(topic, MatchLimits::NONE).unwrap().is_empty());
        }
    }

    #[test]
    fn the_topic_tree_is_like_a_map_with_a_naive_filter(
        steps in prop::collection::vec((topic(), any::<u16>(), 0u8..5), 0..80),
        filters in prop::collection::vec(filter(), 1..12),
    ) {
        let tree = TopicTree::new();
        let mut model = BTreeMap::new();
        let mut kept: Vec<(Arc<TreeSnapshot<_>>, BTreeMap<_, _>)> = Vec::new();
        for (topic, number, action) in steps {
            let value = (topic.clone(), number);
            match action {
                0 | 1 => prop_assert_eq!(tree.insert(&topic, value.clone()), model.insert(topic, value)),
                2 => prop_assert_eq!(tree.remove(&topic), model.remove(&topic)),
                3 => prop_assert_eq!(tree.get(&topic), model.get(&topic).cloned()),
                _ => kept.push((tree.snapshot(), model.clone())),
            }
            prop_assert_eq!(tree.len(), model.len());
        }
        kept.push((tree.snapshot(), model.clone()));
        for (filter, (snapshot, model)) in filters.iter().flat_map(|filter| kept.iter().map(move |k| (filter, k))) {
            let mut found: Vec<_> = Walk::new(snapshot.clone(), filter).collect();
            found.sort_unstable();
            let expected: Vec<_> = model.iter().filter(|(t, _)| naive(filter, t)).map(|(_, v)| v.clone()).collect();
            prop_assert_eq!(&found, &expected, "{}", filter);
        }
        for topic in model.keys() {
            prop_assert!(tree.remove(topic).is_some());
        }
        prop_assert!(tree.is_empty());
    }

    #[test]
    fn a_resumed_walk_visits_each_value_that_does_not_change(
        before in prop::collection::btree_set(topic(), 0..40),
        changes in prop::collection::vec((topic(), any::<bool>(), 0usize..6), 0..40),
        filter in filter(),
    ) {
        let tree = TopicTree::new();
        let mut wanted: BTreeMap<String, u32> = BTreeMap::new();
        for topic in &before {
            tree.insert(topic, (topic.clone(), 0));
            wanted.insert(topic.clone(), 0);
        }
        wanted.retain(|topic, _| naive(&filter, topic));
        let mut walk = Walk::new(tree.snapshot(), &filter);
        let mut found: Vec<String> = Vec::new();
        let mut take = |walk: &mut Walk<(String, u32)>, steps: usize| {
            for _ in 0..steps {
                if let millrace_router::TreeStep::Value((topic, version)) = walk.step() {
                    assert_eq!(version, 0, "{topic} is newer than the walk");
                    found.push(topic);
                }
            }
        };
        let mut changed = Vec::new();
        for (topic, is_removed, steps) in changes {
            take(&mut walk, steps);
            walk.suspend();
            prop_assert_eq!(walk.step(), millrace_router::TreeStep::Done);
            if is_removed {
                tree.remove(&topic);
            } else {
                tree.insert(&topic, (topic.clone(), 1));
            }
            changed.push(topic);
            walk.resume(tree.snapshot());
        }
        take(&mut walk, 1_000);
        let len = found.len();
        found.sort_unstable();
        found.dedup();
        prop_assert_eq!(found.len(), len, "a value came twice");
        for topic in &found {
            prop_assert!(wanted.contains_key(topic), "{}", topic);
        }
        for topic in wanted.keys().filter(|topic| !changed.contains(topic)) {
            prop_assert!(found.contains(topic), "{} is missing for {}", topic, filter);
        }
    }
}

enum Change<'a> {
    Subscribe(Filter<'a>, Subscription),
    Unsubscribe(Filter<'a>, Target),
    Online(Filter<'a>, Target, bool),
}

/// Makes one step in the model and, through `change`, in the router; both must agree on what there
/// was.
fn apply(step: &Step, model: &mut Model, change: impl FnOnce(Change<'_>) -> bool) {
    let nth = |index: &prop::sample::Index, model: &Model| {
        (!model.is_empty()).then(|| index.get(&model.keys().collect::<Vec<_>>()).to_owned().clone())
    };
    match step {
        Step::Keep => {}
        Step::Subscribe(share, filter, s) => {
            let is_new = model.insert((*share, filter.clone(), s.target), (*s, true)).is_none();
            assert_eq!(change(Change::Subscribe(Filter { share: *share, filter }, *s)), is_new);
        }
        Step::Unsubscribe(index) => {
            let Some(key) = nth(index, model) else { return };
            model.remove(&key);
            assert!(change(Change::Unsubscribe(Filter { share: key.0, filter: &key.1 }, key.2)));
        }
        Step::UnsubscribeAny(share, filter, target) => {
            let existed = model.remove(&(*share, filter.clone(), *target)).is_some();
            assert_eq!(change(Change::Unsubscribe(Filter { share: *share, filter }, *target)), existed);
        }
        Step::Online(index, online) => {
            let Some(key) = nth(index, model) else { return };
            if let Some(entry) = model.get_mut(&key) {
                entry.1 = *online || key.0.is_none();
            }
            change(Change::Online(Filter { share: key.0, filter: &key.1 }, key.2, *online));
        }
    }
}
