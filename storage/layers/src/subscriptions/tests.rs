//! Subscriptions and the filter index: which changes of a filter's subscribers disturb concurrent publishes, and which do not.

mod model;

use std::collections::BTreeSet;

use millrace_storage::{Database, Read, StoreError, Transaction, block_on};

use super::*;
use crate::{
    LayerError, Position,
    index::{self, IndexPart},
    limits::EXACT_COUNT_MAX,
    sessions::{Owned, fence},
    streams::{self, ReadLimit, StreamSource},
    tags,
    testing::{BROKER, attached, database, id, request, rows, run, try_run},
    tuple::Key,
};

/// QoS 1, no other option.
const NONE: StoredOptions = StoredOptions { bits: 1, identifier: 0 };

async fn owned<'t>(tx: &'t Transaction, client: &'t str, epoch: u64) -> Owned<'t> {
    fence(tx, id(client), epoch).await.unwrap()
}

fn sessions(database: &Database, count: usize) -> Vec<(String, u64)> {
    let attach = |number| {
        let client = format!("c{number}");
        let epoch = attached(database, &client, &request("pod", 1)).epoch;
        (client, epoch)
    };
    (0..count).map(attach).collect()
}

fn subscribed(database: &Database, (client, epoch): &(String, u64), filter: &str) -> Subscribed {
    run(database, async |tx| subscribe(&owned(tx, client, *epoch).await, filter.as_bytes(), NONE).await)
}

fn unsubscribed(database: &Database, (client, epoch): &(String, u64), filter: &str) -> bool {
    run(database, async |tx| unsubscribe(&owned(tx, client, *epoch).await, filter.as_bytes()).await)
}

fn wildcards(database: &Database) -> Vec<Vec<u8>> {
    let rows = run(database, async |tx| index::list(tx, BROKER, IndexPart::Wildcard, None, 1_000).await);
    rows.into_iter().map(|row| row.filter.to_vec()).collect()
}

/// How many changes the index has seen.
fn changes(database: &Database) -> u64 {
    run(database, async |tx| crate::rows::counter(tx, &Key::new(BROKER, tags::CHANGES), Read::Snapshot).await)
}

/// The reads of a publish before it appends.
async fn watch(publish: &Transaction, topic: &str) {
    index::changes(publish, BROKER, 0).await.unwrap();
    index::watch(publish, BROKER, topic.as_bytes()).unwrap();
}

#[test]
fn only_the_first_and_the_last_subscriber_of_a_filter_change_the_index() {
    let database = database();
    let sessions = sessions(&database, 3);
    let (mut streams, mut expected) = (BTreeSet::new(), 0);
    for round in 0..2 {
        for (number, session) in sessions.iter().enumerate() {
            let made = subscribed(&database, session, "a/+");
            assert_eq!((made.is_first, made.existed), (number == 0, false));
            streams.insert(made.stream);
            assert_eq!(
                subscribed(&database, session, "a/+"),
                Subscribed { is_first: false, existed: true, ..made }
            );
        }
        expected += 1;
        assert_eq!(changes(&database), expected);
        assert_eq!(wildcards(&database), [b"a/+"]);
        for (number, session) in sessions.iter().enumerate() {
            assert!(unsubscribed(&database, session, "a/+") && !unsubscribed(&database, session, "a/+"));
            let last = number + 1 == sessions.len();
            expected += u64::from(last);
            assert_eq!(changes(&database), expected, "round {round}, session {number}");
        }
        assert!(wildcards(&database).is_empty());
    }
    assert_eq!(streams.len(), 2, "the second life of a filter has a stream of its own");
}

#[test]
fn exact_filters_are_found_by_their_topic() {
    let database = database();
    let sessions = sessions(&database, 2);
    let plain = subscribed(&database, &sessions[0], "a/b");
    let shared = subscribed(&database, &sessions[1], "$share/g/a/b");
    let find = |topic: &str| run(&database, async |tx| index::streams(tx, BROKER, topic.as_bytes()).await);
    let found: Vec<_> = find("a/b").into_iter().map(|indexed| (indexed.group, indexed.stream)).collect();
    assert_eq!(found, [((&b""[..]).into(), plain.stream), ((&b"g"[..]).into(), shared.stream)]);
    assert!(find("a").is_empty());
    run(&database, async |tx| index::watch(tx, BROKER, &[b'x'; 60_000]));
    unsubscribed(&database, &sessions[0], "a/b");
    assert_eq!(find("a/b").len(), 1);
    unsubscribed(&database, &sessions[1], "$share/g/a/b");
    assert!(find("a/b").is_empty());
}

#[test]
fn long_names_and_too_many_groups_are_refused() {
    let database = database();
    let session = &sessions(&database, 1)[0];
    let subscribe = |filter: String| {
        try_run(&database, async |tx| {
            subscribe(&owned(tx, &session.0, session.1).await, filter.as_bytes(), NONE).await
        })
    };
    assert!(subscribe("x".repeat(1_024)).is_ok());
    assert_eq!(subscribe("x".repeat(1_025)), Err(LayerError::NameTooLong { bytes: 1_025, bytes_max: 1_024 }));
    for group in 0..64 {
        subscribe(format!("$share/g{group}/a")).unwrap();
    }
    assert_eq!(subscribe("$share/g64/a".into()), Err(LayerError::TooManyGroups));
}

/// Transactions that were all begun, and have all read, before the first commits.
async fn together(transactions: Vec<Transaction>) -> Vec<Result<(), StoreError>> {
    let commits: Vec<_> = transactions.into_iter().map(Transaction::commit).collect();
    let mut results = Vec::new();
    for commit in commits {
        results.push(commit.await.map(|_| ()));
    }
    results
}

/// Transactions that are all begun at once, as many clients would.
async fn at_once(
    database: &Database,
    sessions: &[(String, u64)],
    body: impl AsyncFn(&Owned<'_>) -> bool,
) -> Vec<Transaction> {
    let begin = async |(client, epoch): &(String, u64)| {
        let tx = database.begin_unretried();
        assert!(body(&owned(&tx, client, *epoch).await).await);
        tx
    };
    futures_util::future::join_all(sessions.iter().map(begin)).await
}

#[test]
fn a_storm_on_one_filter_disturbs_neither_itself_nor_publishes() {
    let database = database();
    let sessions = sessions(&database, 400);
    subscribed(&database, &sessions[0], "a/+");
    block_on(async {
        let publish = database.begin_unretried();
        watch(&publish, "a/b").await;
        publish.set(b"written", &b""[..]).unwrap();

        let joins =
            at_once(&database, &sessions[1..], async |owned| subscribe(owned, b"a/+", NONE).await.is_ok())
                .await;
        assert!(together(joins).await.iter().all(Result::is_ok));

        // Most leave, in transactions that all read the same large number.
        let leaves =
            at_once(&database, &sessions[300..], async |owned| unsubscribe(owned, b"a/+").await.unwrap())
                .await;
        assert!(together(leaves).await.iter().all(Result::is_ok));
        publish.commit().await.unwrap();
    });
    assert_eq!(changes(&database), 1);
    // The rest leave in small numbers, where each is counted: the last one takes the filter with it.
    for session in &sessions[..300] {
        assert!(unsubscribed(&database, session, "a/+"));
    }
    assert!(wildcards(&database).is_empty());
    assert_eq!(changes(&database), 2);
}

#[test]
fn a_filter_that_all_left_at_once_is_found_by_the_sweep() {
    let database = database();
    let count = EXACT_COUNT_MAX as usize + 1;
    let sessions = sessions(&database, count + 1);
    for session in &sessions[..count] {
        subscribed(&database, session, "a/+");
    }
    let stream = subscribed(&database, &sessions[0], "a/+").stream;
    block_on(async {
        let leaves =
            at_once(&database, &sessions[..count], async |owned| unsubscribe(owned, b"a/+").await.unwrap())
                .await;
        assert!(together(leaves).await.iter().all(Result::is_ok));
    });
    assert_eq!(run(&database, async |tx| subscribers(tx, BROKER, stream).await), 0);
    assert_eq!(wildcards(&database), [b"a/+"], "nobody knew that it was the last");
    // Somebody who joins now finds the stream in place.
    assert_eq!(subscribed(&database, &sessions[count], "a/+").stream, stream);
    let sweep = || run(&database, async |tx| sweep(tx, BROKER, None, 10).await);
    assert_eq!(sweep(), SweptFilters::default());
    run(&database, async |tx| Ok(tx.atomic_add(members::count_key(BROKER, stream), -1)?));
    assert_eq!(sweep(), SweptFilters { removed: 1, next: None });
    assert!(wildcards(&database).is_empty());
}

#[test]
fn a_sweep_and_somebody_who_joins_conflict() {
    let database = database();
    let session = &sessions(&database, 1)[0];
    let stream = subscribed(&database, session, "a/+").stream;
    run(&database, async |tx| Ok(tx.atomic_add(members::count_key(BROKER, stream), -1)?));
    let tx = database.begin_unretried();
    assert_eq!(block_on(sweep(&tx, BROKER, None, 10)).unwrap().removed, 1);
    run(&database, async |tx| Ok(tx.atomic_add(members::count_key(BROKER, stream), 1)?));
    assert_eq!(block_on(tx.commit()), Err(StoreError::Conflict));
}

#[test]
fn a_publish_conflicts_with_the_first_and_the_last_subscription_that_it_would_miss() {
    for (filter, topic, disturbs) in [
        ("a/+", "a/b", true),
        ("#", "a/b", true),
        ("a/b", "a/b", true),
        ("a/c", "a/b", false),
        ("#", "$a/b", false),
        ("a/b/c/#", "home/b", false),
        ("devices/8/#", "devices/7/temp", false),
        ("devices/7/#", "devices/7/temp", true),
        ("devices/+/temp", "devices/7/temp", true),
    ] {
        let database = database();
        let session = &sessions(&database, 1)[0];
        for change in [true, false] {
            let publish = database.begin_unretried();
            block_on(async {
                watch(&publish, topic).await;
                publish.set(b"written", &b""[..]).unwrap();
            });
            if change {
                subscribed(&database, session, filter);
            } else {
                unsubscribed(&database, session, filter);
            }
            assert_eq!(block_on(publish.commit()).is_err(), disturbs, "{filter} {topic} {change}");
        }
    }
}

#[test]
fn the_last_to_leave_and_the_next_to_join_never_lose_a_stream() {
    let database = database();
    let sessions = sessions(&database, 2);
    for joiner_first in [true, false] {
        let stream = subscribed(&database, &sessions[0], "a/+").stream;
        let (leave, join) = (database.begin_unretried(), database.begin_unretried());
        block_on(async {
            unsubscribe(&owned(&leave, &sessions[0].0, sessions[0].1).await, b"a/+").await.unwrap();
            subscribe(&owned(&join, &sessions[1].0, sessions[1].1).await, b"a/+", NONE).await.unwrap();
            let (first, second) = if joiner_first { (join, leave) } else { (leave, join) };
            first.commit().await.unwrap();
            assert_eq!(second.commit().await.unwrap_err(), StoreError::Conflict);
        });
        // A refused transaction is run again.
        if joiner_first {
            assert!(unsubscribed(&database, &sessions[0], "a/+"));
            assert!(run(&database, async |tx| is_sole(tx, BROKER, stream).await));
        } else {
            assert_ne!(subscribed(&database, &sessions[1], "a/+").stream, stream);
        }
        assert_eq!(wildcards(&database), [b"a/+"]);
        unsubscribed(&database, &sessions[1], "a/+");
    }
}

#[test]
fn a_sole_subscriber_learns_in_time_of_a_second_one() {
    let database = database();
    let sessions = sessions(&database, 2);
    let stream = subscribed(&database, &sessions[0], "a").stream;
    let tx = database.begin_unretried();
    assert!(block_on(is_sole(&tx, BROKER, stream)).unwrap());
    tx.set(b"trimmed", &b""[..]).unwrap();
    subscribed(&database, &sessions[1], "a");
    assert_eq!(block_on(tx.commit()), Err(StoreError::Conflict));
    assert!(!run(&database, async |tx| is_sole(tx, BROKER, stream).await));
}

#[test]
fn rows_of_a_dropped_stream_are_swept_in_pieces() {
    let database = database();
    let session = &sessions(&database, 1)[0];
    let before = rows(&database);
    let stream = subscribed(&database, session, "a").stream;
    let to = [streams::StreamRef { stream, partition: 0 }];
    for _ in 0..25 {
        let body = bytes::Bytes::from_static(b"x");
        let publish = streams::NewEntry { number: 0, now_ms: 1, body: &body };
        run(&database, async |tx| streams::append(tx, BROKER, &to, publish));
    }
    unsubscribed(&database, session, "a");
    let limit = ReadLimit { entries: 10, bytes: 1_000 };
    let sources = [StreamSource { stream, since: 0 }];
    let read = async |tx: &Transaction| streams::read(tx, BROKER, &sources, Position::MIN, limit).await;
    assert!(run(&database, read).entries.is_empty(), "nobody reads it any more");
    let (mut from, mut removed) = (Some(streams::DroppedFrom::default()), Vec::new());
    while let Some(begin) = from {
        let swept = run(&database, async |tx| streams::sweep_dropped(tx, BROKER, &begin, 10).await);
        removed.push(swept.removed);
        from = swept.next;
    }
    assert_eq!(removed, [10, 10, 6]);
    assert_eq!(rows(&database), before);
}

#[test]
fn a_step_of_a_sweep_removes_many_small_streams() {
    let database = database();
    let session = &sessions(&database, 1)[0];
    let before = rows(&database);
    for number in 0..25 {
        let filter = format!("a/{number}");
        let stream = subscribed(&database, session, &filter).stream;
        let to = [streams::StreamRef { stream, partition: 0 }];
        let body = bytes::Bytes::from_static(b"x");
        let publish = streams::NewEntry { number: 0, now_ms: 1, body: &body };
        run(&database, async |tx| streams::append(tx, BROKER, &to, publish));
        unsubscribed(&database, session, &filter);
    }
    let mut steps = 0;
    let mut from = Some(streams::DroppedFrom::default());
    while let Some(begin) = from {
        from = run(&database, async |tx| streams::sweep_dropped(tx, BROKER, &begin, 10).await).next;
        steps += 1;
    }
    assert_eq!(steps, 5, "a stream has two rows");
    assert_eq!(rows(&database), before);
}

#[test]
fn nothing_is_kept_for_a_subscription_with_qos_0_until_it_asks_for_more() {
    let database = database();
    let sessions = sessions(&database, 1);
    let ask = |bits| {
        run(&database, async |tx| {
            let owned = owned(tx, &sessions[0].0, sessions[0].1).await;
            subscribe(&owned, b"a/+", StoredOptions { bits, identifier: 0 }).await
        })
    };
    let first = ask(0);
    assert_eq!((first.stream, first.existed, first.is_first), (NO_STREAM, false, false));
    assert!(wildcards(&database).is_empty());
    let second = ask(1);
    assert!(second.stream != NO_STREAM && second.existed && second.is_first);
    assert_eq!(wildcards(&database), [b"a/+"]);
    // It keeps its stream, for what that has already.
    assert_eq!(ask(0).stream, second.stream);
    assert!(unsubscribed(&database, &sessions[0], "a/+"));
    assert!(wildcards(&database).is_empty());
    ask(0);
    assert!(unsubscribed(&database, &sessions[0], "a/+"));
}

#[test]
fn the_progress_of_a_group_goes_with_its_stream() {
    let database = database();
    let sessions = sessions(&database, 1);
    let stream = subscribed(&database, &sessions[0], "$share/g/a").stream;
    let at = |version| Position::end_of(version);
    let progress =
        streams::GroupProgress { cursor: at(7), acknowledged: [at(9), at(11)].into_iter().collect() };
    let set = || run(&database, async |tx| streams::set_progress(tx, BROKER, stream, &progress).await);
    let get = || run(&database, async |tx| streams::progress(tx, BROKER, stream).await);
    assert_eq!(get(), streams::GroupProgress::default());
    set();
    assert_eq!(get(), progress);
    unsubscribed(&database, &sessions[0], "$share/g/a");
    assert_eq!(get(), streams::GroupProgress::default());
    set();
    assert_eq!(get(), streams::GroupProgress::default(), "nothing is written for a stream that is gone");
}

#[test]
fn retained_messages_stay_due_until_the_client_has_them() {
    let database = database();
    let session = &sessions(&database, 1)[0];
    let subscribe_with = |bits| {
        let options = StoredOptions { bits, identifier: 7 };
        run(&database, async |tx| subscribe(&owned(tx, &session.0, session.1).await, b"a", options).await)
    };
    let bits = || run(&database, async |tx| list(tx, id(&session.0)).await)[0].options.bits;
    let done = |filter: &'static [u8]| {
        run(&database, async |tx| replayed(&owned(tx, &session.0, session.1).await, filter).await);
    };
    done(b"a");
    subscribe_with(1 | REPLAY_DUE);
    assert_eq!(bits(), 1 | REPLAY_DUE);
    // A later SUBSCRIBE that asks for none does not take them away.
    subscribe_with(2);
    done(b"b");
    assert_eq!(bits(), 2 | REPLAY_DUE);
    done(b"a");
    assert_eq!(bits(), 2);
}
