use millrace_mqtt::QoS;
use millrace_mqtt::topic::{self, Filter};
use proptest::prelude::*;

use super::*;
use crate::{Router, Subscription, Target};

fn digest_of(filters: &[&str]) -> Digest {
    let digest = Digest::with_room(filters.len());
    for filter in filters {
        digest.insert(Code::of(Filter::parse(filter).unwrap())).unwrap();
    }
    digest
}

fn subscription(slot: u32) -> Subscription {
    let target = Target { core: 0, slot, generation: 0 };
    let qos = QoS::AtMostOnce;
    Subscription {
        target,
        qos,
        no_local: false,
        retain_as_published: false,
        persistent: false,
        identifier: 0,
    }
}

/// A level out of few, so that much matches.
fn level(wild: bool) -> impl Strategy<Value = &'static str> {
    let wildcards: &[&str] = if wild { &["+", "+", "+"] } else { &[] };
    prop::sample::select([&["", "a", "b", "$SYS", "aa"], wildcards].concat())
}

fn topic() -> impl Strategy<Value = String> {
    prop_oneof![9 => prop::collection::vec(level(false), 1..5), 1 => prop::collection::vec(level(false), 30..40)]
        .prop_map(|levels| levels.join("/"))
        .prop_filter("empty", |topic| !topic.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let levels = prop_oneof![
        9 => prop::collection::vec(level(true), 0..5),
        1 => prop::collection::vec(level(true), 30..40)
    ];
    (prop::sample::select(vec!["", "", "$share/g/"]), levels, prop::bool::weighted(0.3))
        .prop_map(|(share, mut levels, many)| {
            levels.extend(many.then_some("#"));
            format!("{share}{}", levels.join("/"))
        })
        .prop_filter("not valid", |filter| Filter::parse(filter).is_some())
}

proptest! {
    #[test]
    fn a_digest_never_misses_a_matching_topic(
        filters in prop::collection::vec(filter(), 0..20),
        topics in prop::collection::vec(topic(), 1..20),
    ) {
        let router = Router::new();
        let digest = Digest::with_room(0);
        for (filter, slot) in filters.iter().zip(0..) {
            let filter = Filter::parse(filter).unwrap();
            router.subscribe(filter, subscription(slot));
            prop_assert!(digest.insert(Code::of(filter)).is_ok());
        }
        // It counts every group of shared subscriptions, and has no spare room.
        let of_router = router.snapshot().digest(|_| true, 0).unwrap();
        let mut bytes = Vec::new();
        digest.encode(&mut bytes);
        let decoded = Digest::decode(&bytes).unwrap();
        prop_assert!(decoded.is_same(&digest));
        for topic in &topics {
            let matches = |shared: bool| filters.iter().any(|filter| {
                let filter = Filter::parse(filter).unwrap();
                (shared || filter.share.is_none()) && topic::matches(filter.filter, topic)
            });
            let code = TopicCode::of(topic);
            for digest in [&digest, &of_router, &decoded] {
                prop_assert!(!matches(false) || digest.may_match(&code, false));
                prop_assert!(!matches(true) || digest.may_match(&code, true));
            }
        }
    }

    #[test]
    fn the_digest_of_a_router_is_that_of_its_filters(filters in prop::collection::vec(filter(), 0..20)) {
        let router = Router::new();
        for (filter, slot) in filters.iter().zip(0..) {
            router.subscribe(Filter::parse(filter).unwrap(), subscription(slot));
        }
        let one_by_one = digest_of(&filters.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assert!(router.snapshot().digest(|_| true, 0).unwrap().is_same(&one_by_one));
    }

    #[test]
    fn bytes_that_are_no_digest_are_refused_or_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Some(digest) = Digest::decode(&bytes) {
            let _ = digest.may_match(&TopicCode::of("a/b/c"), true);
            let _ = digest.insert(Code::of(Filter { share: None, filter: "a/+" }));
        }
        if let Some(bytes) = bytes.first_chunk()
            && let Some(code) = Code::from_bytes(*bytes)
        {
            prop_assert_eq!(code.to_bytes(), *bytes);
            let digest = Digest::with_room(1);
            prop_assert!(digest.insert(code).is_ok());
            let _ = digest.may_match(&TopicCode::of("a/b/c"), true);
        }
    }
}

#[test]
fn each_shape_matches_what_its_filters_do_and_nothing_of_other_shapes() {
    let topics = ["a", "a/b", "a/b/c", "b", "b/a", "/", "a/", "/a", "$SYS", "$SYS/a", "a/b/c/d"];
    let filters = [
        "a", "a/b", "+", "+/b", "a/+", "#", "a/#", "a/b/#", "+/#", "+/+", "$SYS/#", "$SYS/+", "/", "/#",
        "+/+/+/d",
    ];
    for filter in filters {
        let digest = digest_of(&[filter]);
        for topic in topics {
            assert_eq!(
                digest.may_match(&TopicCode::of(topic), false),
                topic::matches(filter, topic),
                "{filter} {topic}"
            );
        }
    }
}

#[test]
fn filters_of_shared_subscriptions_count_only_when_they_are_asked_for() {
    let digest = digest_of(&["$share/g/a/+"]);
    let topic = TopicCode::of("a/b");
    assert_eq!((digest.may_match(&topic, false), digest.may_match(&topic, true)), (false, true));
    let router = Router::new();
    router.subscribe(Filter::parse("$share/g/a/+").unwrap(), subscription(0));
    let counting = |counts: bool| router.snapshot().digest(|_| counts, 0).unwrap();
    assert!(counting(true).is_same(&digest) && counting(false).filters() == 0);
}

#[test]
fn false_positives_are_rare_until_a_digest_is_full() {
    for filters in [100, 10_000, 200_000] {
        let digest = Digest::with_room(filters);
        let mut number = 0;
        while !digest.is_full() {
            let filter = format!("device/{number}/cmd");
            digest.insert(Code::of(Filter { share: None, filter: &filter })).unwrap();
            number += 1;
        }
        assert!(number >= filters, "{number} of {filters}");
        let asked = 100_000;
        let found = (0..asked)
            .filter(|other| digest.may_match(&TopicCode::of(&format!("device/{other}/state")), false))
            .count();
        // 1 in 270; and a few more, as small digests vary.
        assert!(found * 100 < asked, "{found} of {asked}, {filters} filters");
    }
}

#[test]
fn a_hundred_million_filters_take_some_two_hundred_megabytes() {
    let digest = Digest::with_room(1_000_000);
    let mut bytes = Vec::new();
    digest.encode(&mut bytes);
    assert!(bytes.len() * 100 < 201_000_000, "{}", bytes.len());
    let largest = Digest::with_room(usize::MAX);
    bytes.clear();
    largest.encode(&mut bytes);
    assert_eq!(bytes.len(), 1 + BITS_MAX / 8);
}

#[test]
fn a_repeated_filter_changes_nothing_and_too_many_shapes_are_refused() {
    let digest = digest_of(&["a/b"]);
    assert_eq!(digest.insert(Code::of(Filter { share: None, filter: "a/b" })), Ok(false));
    // Each has its `+` somewhere else.
    let shapes = (0..8).flat_map(|before| {
        (0..8).map(move |after| format!("{}+/{}#", "a/".repeat(before), "a/".repeat(after)))
    });
    let inserted = shapes.map(|filter| digest.insert(Code::of(Filter { share: None, filter: &filter })));
    assert_eq!(
        inserted.take_while(Result::is_ok).count(),
        SHAPES_MAX - 1,
        "one is of filters without wildcards"
    );
    assert!(digest.may_match(&TopicCode::of("a/b"), false), "what was there still is");
}
