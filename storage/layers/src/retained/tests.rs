use std::collections::BTreeMap;

use millrace_storage::limits::PAGE_BYTES_MAX;
use millrace_storage::{Database, block_on};
use proptest::prelude::*;

use super::*;
use crate::testing::{BROKER, database, rows, run};

fn with(topics: impl IntoIterator<Item = String>) -> Database {
    let database = database();
    let topics: Vec<String> = topics.into_iter().collect();
    run(&database, async |tx| {
        for topic in &topics {
            set(tx, BROKER, topic.as_bytes(), &Bytes::from(format!("at {topic}"))).await?;
        }
        Ok(())
    });
    database
}

fn search(database: &Database, filter: &str, limit: usize) -> (Vec<String>, usize) {
    let (mut topics, mut examined, mut from) = (Vec::new(), 0, None);
    loop {
        let tx = database.begin_unretried();
        let page = matching(&tx, BROKER, filter.as_bytes(), from.as_ref(), limit, Read::Snapshot);
        let page = block_on(page).unwrap();
        assert!(page.items.len() <= limit);
        examined += page.examined;
        for item in page.items {
            let topic = String::from_utf8(item.topic.to_vec()).unwrap();
            assert_eq!(item.body, format!("at {topic}"));
            topics.push(topic);
        }
        from = page.next;
        if from.is_none() {
            topics.sort();
            return (topics, examined);
        }
    }
}

#[test]
fn a_page_goes_on_after_a_topic_whether_it_has_a_message_or_not() {
    let database = with(["a", "a/b", "b"].map(String::from));
    for (topic, rest) in [("a", &["a/b", "b"][..]), ("a/a", &["a/b", "b"]), ("a/b", &["b"]), ("b", &[])] {
        let from = Bookmark::after(BROKER, topic.as_bytes());
        let tx = database.begin_unretried();
        let page = block_on(all(&tx, BROKER, Some(&from), 10, Read::Snapshot)).unwrap();
        let topics: Vec<_> = page.items.iter().map(|item| &item.topic[..]).collect();
        assert_eq!(topics, rest.iter().map(|topic| topic.as_bytes()).collect::<Vec<_>>(), "{topic}");
    }
}

#[test]
fn filters_find_what_they_match() {
    let topics = ["a", "a/b", "a/b/c", "a/c", "/a", "a/", "a//b", "b", "$SYS/x", "$a", "%", "ab/c", "/"];
    let database = with(topics.map(String::from));
    for (filter, found) in [
        ("a", &["a"][..]),
        ("x", &[]),
        ("a/+", &["a/", "a/b", "a/c"]),
        ("a/#", &["a", "a/", "a//b", "a/b", "a/b/c", "a/c"]),
        ("+", &["%", "a", "b"]),
        ("+/+", &["/", "/a", "a/", "a/b", "a/c", "ab/c"]),
        ("+/c", &["a/c", "ab/c"]),
        ("+/+/b", &["a//b"]),
        ("#", &["%", "/", "/a", "a", "a/", "a//b", "a/b", "a/b/c", "a/c", "ab/c", "b"]),
        ("$SYS/#", &["$SYS/x"]),
        ("$SYS/+", &["$SYS/x"]),
        ("+/x", &[]),
    ] {
        for limit in [1, 2, 100] {
            assert_eq!(search(&database, filter, limit).0, found, "{filter}");
        }
    }
}

#[test]
fn everything_is_found_page_by_page_whatever_it_begins_with() {
    let topics = ["a", "a/b", "$SYS/x", "$a", "%", "", "/"];
    let database = with(topics.map(String::from));
    let (mut names, mut from) = (Vec::new(), None);
    loop {
        let tx = database.begin_unretried();
        let page = block_on(all(&tx, BROKER, from.as_ref(), 2, Read::Snapshot)).unwrap();
        assert!(page.items.len() <= 2);
        names.extend(page.items.into_iter().map(|item| String::from_utf8(item.topic.to_vec()).unwrap()));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    names.sort();
    assert_eq!(names, ["", "$SYS/x", "$a", "%", "/", "a", "a/b"]);
}

#[test]
fn a_filter_reads_only_what_it_leads_to() {
    let mut topics = Vec::new();
    for site in 0..20 {
        for device in 0..50 {
            topics.push(format!("site{site}/dev{device}/state"));
        }
        topics.push(format!("site{site}/meta"));
    }
    let database = with(topics);
    let (found, examined) = search(&database, "+/meta", 1_000);
    assert_eq!(found.len(), 20);
    assert!(examined <= 3 * 20 + 2, "looked at {examined} of 1020");
    let (found, examined) = search(&database, "+/dev7/+", 1_000);
    assert_eq!(found.len(), 20);
    assert!(examined <= 4 * 20 + 2, "looked at {examined} of 1020");
    let (found, examined) = search(&database, "site7/#", 1_000);
    assert_eq!((found.len(), examined), (51, 51));
}

#[test]
fn a_page_of_nothing_but_gaps_ends_early_and_goes_on() {
    let database = with((0..500).map(|number| format!("a{number}/x")));
    let tx = database.begin_unretried();
    let page = block_on(matching(&tx, BROKER, b"+/y", None, 2, Read::Snapshot)).unwrap();
    assert!(page.items.is_empty() && page.next.is_some());
    assert_eq!(page.examined, 2 * RETAINED_SKIPS_PER_ITEM);
    // In the order of the keys.
    let mut topics: Vec<_> = (0..500).map(|number| format!("a{number}/x")).collect();
    topics.sort_by(|a, b| a.split('/').cmp(b.split('/')));
    assert_eq!(page.examined_to.unwrap(), topics[page.examined - 1]);
    assert_eq!(search(&database, "+/y", 2).0, Vec::<String>::new());
}

#[test]
fn a_page_ends_after_a_bounded_number_of_reads_and_goes_on() {
    let groups = RETAINED_READS.1 + 50;
    // Each group is longer than what is read at once, so each gap costs a read.
    let database =
        with((0..groups).flat_map(|group| (0..20).map(move |device| format!("g{group}/d{device}"))));
    for (limit, reads_max) in [(1_000, RETAINED_READS.1), (1, RETAINED_READS.0)] {
        let tx = database.begin_unretried();
        let page = block_on(matching(&tx, BROKER, b"+/meta", None, limit, Read::Snapshot)).unwrap();
        assert!(page.items.is_empty() && page.next.is_some(), "{limit}");
        assert!(page.examined <= 2 * reads_max, "{limit}: looked at {}", page.examined);
    }
    assert_eq!(search(&database, "+/d7", 10).0.len(), groups);
    assert_eq!(search(&database, "+/meta", 1).0, Vec::<String>::new());
}

/// The messages that a search finds, and the bytes that each of its pages reads.
fn bytes_of_pages(database: &Database, filter: &str) -> (usize, Vec<usize>) {
    let (mut found, mut bytes, mut from) = (0, Vec::new(), None);
    loop {
        let tx = database.begin_unretried();
        let page = matching(&tx, BROKER, filter.as_bytes(), from.as_ref(), 1_000, Read::Snapshot);
        let page = block_on(page).unwrap();
        found += page.items.len();
        bytes.push(page.bytes);
        from = page.next;
        if from.is_none() {
            return (found, bytes);
        }
    }
}

#[test]
fn a_page_ends_after_many_bytes_whether_they_match_or_not() {
    const BODY: usize = 50_000;
    const TOPICS: usize = 300;
    let database = database();
    // A read returns rows of several groups, and a filter with `+` steps over most of them.
    for topic in 0..TOPICS {
        run(&database, async |tx| {
            let topic = format!("g{:03}/{}", topic / 4, ["u", "v", "w", "x"][topic % 4]);
            set(tx, BROKER, topic.as_bytes(), &Bytes::from(vec![b'x'; BODY])).await
        });
    }
    for (filter, matches) in [("#", TOPICS), ("+/x", TOPICS / 4), ("+/y", 0), ("+/u/+", 0)] {
        let (found, bytes) = bytes_of_pages(&database, filter);
        assert_eq!(found, matches, "{filter}");
        let most = bytes.iter().copied().max().unwrap_or_default();
        assert!(most <= RETAINED_PAGE_BYTES + PAGE_BYTES_MAX + 2 * BODY, "{filter}: {most} bytes in a page");
        let rows = bytes.iter().sum::<usize>() / BODY;
        assert!(rows <= 2 * TOPICS && bytes.len() <= 40, "{filter}: {rows} rows, {} pages", bytes.len());
        assert!(rows >= TOPICS / 4, "{filter}: {rows} rows were counted");
    }
}

#[test]
fn long_bodies_count_whole() {
    let database = database();
    for topic in 0..8 {
        run(&database, async |tx| {
            set(tx, BROKER, format!("a/{topic}").as_bytes(), &Bytes::from(vec![b'x'; 600_000])).await
        });
    }
    let (found, bytes) = bytes_of_pages(&database, "a/#");
    assert_eq!((found, bytes.len()), (8, 4));
    assert!(bytes.iter().all(|bytes| *bytes >= 1_200_000), "{bytes:?}");
}

#[test]
fn long_bodies_are_replaced_whole() {
    let database = database();
    for bytes in [10, 250_000, 100_000, 0, 90_000, 90_001] {
        let body = Bytes::from(vec![bytes as u8; bytes]);
        let kept = run(&database, async |tx| {
            set(tx, BROKER, b"a/b", &body).await?;
            get(tx, BROKER, b"a/b", Read::Serializable).await
        });
        assert_eq!(kept, Some(body.clone()), "{bytes}");
        let tx = database.begin_unretried();
        let page = block_on(matching(&tx, BROKER, b"a/#", None, 10, Read::Snapshot)).unwrap();
        assert_eq!(page.items[0].body, body);
    }
    run(&database, async |tx| clear(tx, BROKER, b"a/b").await);
    assert_eq!(rows(&database), []);
}

#[test]
fn two_writers_of_a_topic_do_not_conflict_and_the_last_one_wins() {
    let database = database();
    let (first, second) = (database.begin_unretried(), database.begin_unretried());
    block_on(async {
        set(&first, BROKER, b"a", &Bytes::from_static(b"1")).await.unwrap();
        set(&second, BROKER, b"a", &Bytes::from_static(b"2")).await.unwrap();
        second.commit().await.unwrap();
        first.commit().await.unwrap();
        let kept = get(&database.begin_unretried(), BROKER, b"a", Read::Snapshot).await.unwrap();
        assert_eq!(kept, Some(Bytes::from_static(b"1")));
    });
}

fn matches(filter: &[&str], topic: &[&str]) -> bool {
    if topic[0].starts_with('$') && matches!(filter[0], "+" | "#") {
        return false;
    }
    for (depth, level) in filter.iter().enumerate() {
        match *level {
            "#" => return true,
            "+" if topic.len() > depth => {}
            exact if topic.get(depth) == Some(&exact) => {}
            _ => return false,
        }
    }
    filter.len() == topic.len()
}

fn topics() -> impl Strategy<Value = String> {
    let level = prop_oneof![Just(""), Just("a"), Just("b"), Just("ab"), Just("$a"), Just("é")];
    proptest::collection::vec(level, 1..5).prop_map(|levels| levels.join("/"))
}

fn filters() -> impl Strategy<Value = String> {
    let level = prop_oneof![3 => Just("+"), 1 => Just("a"), 1 => Just("b"), 1 => Just(""), 1 => Just("$a")];
    (proptest::collection::vec(level, 1..5), any::<bool>())
        .prop_map(|(levels, rest)| levels.join("/") + if rest { "/#" } else { "" })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn the_walk_finds_what_looking_at_all_finds(
        sets in proptest::collection::btree_map(topics(), any::<bool>(), 0..40),
        filters in proptest::collection::vec(filters(), 5),
        limit in 1..20usize,
    ) {
        let model: BTreeMap<String, ()> = sets.keys().map(|topic| (topic.clone(), ())).collect();
        let database = with(model.keys().cloned());
        for filter in filters.iter().map(String::as_str).chain(["#"]) {
            let levels: Vec<&str> = filter.split('/').collect();
            let expected: Vec<&String> = model
                .keys()
                .filter(|topic| matches(&levels, &topic.split('/').collect::<Vec<_>>()))
                .collect();
            let (found, _) = search(&database, filter, limit);
            prop_assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{}", filter);
        }
    }
}

#[test]
fn retained_bytes_are_metered_as_long_as_they_are_stored() {
    let database = database();
    let level = || {
        let row = Key::new(BROKER, tags::USAGE_LEVEL).uint(4);
        run(&database, async |tx| crate::rows::counter(tx, &row, Read::Snapshot).await)
    };
    let put = |topic: &'static str, bytes: usize| {
        run(&database, async |tx| set(tx, BROKER, topic.as_bytes(), &Bytes::from(vec![7; bytes])).await);
    };
    // The middle one has three chunks.
    for (topic, bytes, all) in
        [("a", 10, 10), ("b", 250_000, 250_010), ("b", 30, 40), ("a", 0, 30), ("a", 5, 35)]
    {
        put(topic, bytes);
        assert_eq!(level(), all, "{topic} {bytes}");
    }
    run(&database, async |tx| {
        set(tx, BROKER, b"c", &Bytes::from_static(b"12345")).await?;
        set(tx, BROKER, b"c", &Bytes::from_static(b"1")).await?;
        clear(tx, BROKER, b"nothing").await?;
        clear(tx, BROKER, b"b").await
    });
    assert_eq!(level(), 6, "a transaction sees what it has written itself");
    let now_ms = database.begin_unretried().unix_ms();
    let later = now_ms + 2 * metering::WINDOW_MS;
    let used = run(&database, async |tx| metering::used(tx, BROKER, now_ms, later + 1, later).await);
    let second = used[1];
    assert_eq!((second.retained_byte_s, second.stored_byte_s), (6 * 3_600, 0));
    run(&database, async |tx| {
        clear(tx, BROKER, b"a").await?;
        clear(tx, BROKER, b"c").await
    });
    assert_eq!(level(), 0);
}

#[test]
fn large_messages_on_topics_below_each_other_leave_each_other_alone() {
    let database = database();
    let topics = ["a", "a/b", "a/b/c"];
    let put = |topic: &str, byte: u8, bytes: usize| {
        run(&database, async |tx| set(tx, BROKER, topic.as_bytes(), &Bytes::from(vec![byte; bytes])).await);
    };
    let found = |topic: &str| {
        let found = run(&database, async |tx| get(tx, BROKER, topic.as_bytes(), Read::Snapshot).await);
        found.map(|body| (body.len(), body.iter().all(|byte| *byte == body[0])))
    };
    (1..).zip(topics).for_each(|(byte, topic)| put(topic, byte, 250_000));
    assert_eq!(topics.map(found), [Some((250_000, true)); 3]);
    put("a", 7, 10);
    assert_eq!(topics.map(found), [Some((10, true)), Some((250_000, true)), Some((250_000, true))]);
    run(&database, async |tx| clear(tx, BROKER, b"a/b").await);
    assert_eq!(topics.map(found), [Some((10, true)), None, Some((250_000, true))]);
}
