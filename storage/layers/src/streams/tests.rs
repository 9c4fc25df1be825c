use bytes::Bytes;
use millrace_storage::{Database, Read, block_on};
use proptest::prelude::*;

use super::*;
use crate::{
    LayerError, Position,
    limits::STREAMS_PER_PUBLISH_MAX,
    testing::{BROKER, RoundTrips, database, rows, run, try_run},
    usage::{self, Counter},
};

/// A store with these streams, (id, partitions): their rows are as a first subscriber makes them.
pub(super) fn with(streams: impl IntoIterator<Item = (StreamId, u8)>) -> Database {
    let database = database();
    let streams: Vec<_> = streams.into_iter().collect();
    run(&database, async |tx| {
        for (id, partitions) in &streams {
            let mut row = Stream::new(Bytes::from_static(b"a/+"), Position::MIN);
            row.partitions = *partitions;
            tx.set(keys::stream(BROKER, *id), row.encode())?;
        }
        Ok(())
    });
    database
}

pub(super) fn publish(database: &Database, to: &[(StreamId, u8)], now_ms: u64, body: &Bytes) {
    let to: Vec<StreamRef> = to.iter().map(|(stream, partition)| at(*stream, *partition)).collect();
    run(database, async |tx| append(tx, BROKER, &to, NewEntry { number: 0, now_ms, body }));
}

fn at(stream: StreamId, partition: u8) -> StreamRef {
    StreamRef { stream, partition }
}

const ALL: ReadLimit = ReadLimit { entries: 1_000, bytes: usize::MAX };

fn read_all(database: &Database, streams: &[StreamId], cursor: Position) -> StreamBatch {
    let sources: Vec<StreamSource> =
        streams.iter().map(|stream| StreamSource { stream: *stream, since: 0 }).collect();
    run(database, async |tx| read(tx, BROKER, &sources, cursor, ALL).await)
}

fn bodies(batch: &StreamBatch) -> Vec<&[u8]> {
    batch.entries.iter().map(|entry| &*entry.body).collect()
}

pub(super) fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn a_strict_read_ends_before_the_entry_that_exceeds_its_bytes() {
    let database = with([(1, 1)]);
    for (now_ms, body) in (10..).zip(["aa", "bb", "cccccc", "d"]) {
        publish(&database, &[(1, 0)], now_ms, &text(body));
    }
    let source = [StreamSource { stream: 1, since: 0 }];
    let limit = ReadLimit { entries: 10, bytes: 5 };
    let within = |cursor| run(&database, async |tx| read_within(tx, BROKER, &source, cursor, limit).await);
    let first = within(Position::MIN);
    assert!(bodies(&first) == [b"aa", b"bb"] && first.more);
    let none = within(first.through);
    assert!(none.entries.is_empty() && none.more && none.through >= first.through);
    let one = run(&database, async |tx| read(tx, BROKER, &source, none.through, limit).await);
    assert!(bodies(&one) == [b"cccccc"] && one.more);
    let rest = within(one.through);
    assert!(bodies(&rest) == [b"d"] && !rest.more);
}

#[test]
fn streams_are_read_as_one_in_commit_order_and_each_message_once() {
    let database = with([(1, 1), (2, 4)]);
    publish(&database, &[(1, 0)], 10, &text("a"));
    publish(&database, &[(2, 3)], 11, &text("b"));
    publish(&database, &[(1, 0), (2, 1)], 12, &text("c"));
    publish(&database, &[(2, 0)], 13, &text("d"));
    let batch = read_all(&database, &[1, 2], Position::MIN);
    assert_eq!(bodies(&batch), [b"a", b"b", b"c", b"d"]);
    let sources: Vec<&[usize]> = batch.entries.iter().map(|entry| &entry.sources[..]).collect();
    assert_eq!(sources, [&[0][..], &[1], &[0, 1], &[1]]);
    assert_eq!(batch.entries[2].at_ms, 12);
    assert!(!batch.more && batch.missed.is_empty());
    let again = read_all(&database, &[1, 2], batch.through);
    assert!(again.entries.is_empty() && again.through >= batch.through);
}

#[test]
fn messages_of_one_transaction_keep_their_numbers() {
    let database = with([(1, 1)]);
    run(&database, async |tx| {
        for number in [2u16, 0, 300, 1] {
            let body = Bytes::from(number.to_string());
            append(tx, BROKER, &[at(1, 0)], NewEntry { number, now_ms: 1, body: &body })?;
        }
        Ok(())
    });
    assert_eq!(bodies(&read_all(&database, &[1], Position::MIN)), [&b"0"[..], b"1", b"2", b"300"]);
}

#[test]
fn a_source_counts_from_its_version_on() {
    let database = with([(1, 1)]);
    publish(&database, &[(1, 0)], 1, &text("before"));
    let since = run(&database, async |tx| Ok(tx.read_version().await?));
    publish(&database, &[(1, 0)], 1, &text("after"));
    let sources = [StreamSource { stream: 1, since }, StreamSource { stream: 99, since: 0 }];
    let batch = run(&database, async |tx| read(tx, BROKER, &sources, Position::MIN, ALL).await);
    assert_eq!(bodies(&batch), [b"after"]);
}

#[test]
fn long_bodies_are_stored_once_and_go_with_the_last_entry() {
    let database = with([(1, 1), (2, 1)]);
    let empty = rows(&database).len();
    for (bytes, body_rows) in [(2_000, 1), (200_000, 3)] {
        let body = Bytes::from(vec![7; bytes]);
        publish(&database, &[(1, 0), (2, 0)], 5, &body);
        let kept = rows(&database);
        // Two entries, two counters, the holders, the chunks.
        assert_eq!(kept.len() - empty, 2 + 2 + 1 + body_rows);
        let size: usize = kept.iter().map(|row| row.value.len()).sum();
        assert!(size < bytes + 300, "{size} for {bytes}");
        for streams in [&[1][..], &[1, 2]] {
            assert_eq!(read_all(&database, streams, Position::MIN).entries[0].body, body);
        }
        let sweep = async || run(&database, async |tx| sweep_bodies(tx, BROKER, Position::MIN, 10).await);
        for (stream, removed) in [(1, 0), (2, 1)] {
            run(&database, async |tx| trim(tx, BROKER, stream, Position::end_of(u64::MAX), None).await);
            assert_eq!(block_on(sweep()).removed, removed);
        }
        let left = rows(&database);
        assert_eq!(left.len(), empty + 2, "only the counters are left");
        run(&database, async |tx| {
            for stream in [1, 2] {
                assert_eq!(totals(tx, BROKER, stream).await?, Totals::default());
                tx.clear(keys::totals(BROKER, stream))?;
            }
            Ok(())
        });
    }
}

#[test]
fn a_trim_of_some_entries_goes_on_where_it_ended() {
    let database = with([(1, 1)]);
    for _ in 0..5 {
        publish(&database, &[(1, 0)], 1, &text("x"));
    }
    let trim = || run(&database, async |tx| trim_some(tx, BROKER, 1, Position::end_of(u64::MAX), 2).await);
    let trimmed = [trim(), trim(), trim(), trim()].map(|trimmed| (trimmed.removed.entries, trimmed.more));
    assert_eq!(trimmed, [(2, true), (2, true), (1, false), (0, false)]);
}

#[test]
fn a_body_longer_than_a_value_needs_no_second_stream() {
    let database = with([(1, 1)]);
    let body: Bytes = (0..1_000_000u32).map(|number| number as u8).collect();
    publish(&database, &[(1, 0)], 5, &body);
    assert_eq!(read_all(&database, &[1], Position::MIN).entries[0].body, body);
    let too_long = Bytes::from(vec![0; 8_000_001]);
    let refused = try_run(&database, async |tx| {
        append(tx, BROKER, &[at(1, 0)], NewEntry { number: 0, now_ms: 1, body: &too_long })
    });
    assert_eq!(refused, Err(LayerError::BodyTooLarge(8_000_001)));
}

#[test]
fn a_publish_that_matches_too_many_streams_is_refused() {
    let database = with([]);
    let streams = |count: usize| (0..count as u64).map(|stream| at(stream, 0)).collect::<Vec<_>>();
    for (body, count) in
        [(&text("x"), 1), (&Bytes::from(vec![1; 1_024]), 2), (&Bytes::from(vec![1; 2_000]), 3)]
    {
        let publish = NewEntry { number: 0, now_ms: 1, body };
        let most = streams(STREAMS_PER_PUBLISH_MAX);
        run(&database, async |tx| append(tx, BROKER, &most, publish));
        let more = streams(STREAMS_PER_PUBLISH_MAX + count);
        let refused = try_run(&database, async |tx| append(tx, BROKER, &more, publish));
        assert_eq!(refused, Err(LayerError::TooManyStreams(STREAMS_PER_PUBLISH_MAX + count)));
    }
}

#[test]
fn appends_and_reads_conflict_with_nobody() {
    let database = with([(1, 1)]);
    block_on(async {
        let (reader, trimmer) = (database.begin_unretried(), database.begin_unretried());
        let sources = [StreamSource { stream: 1, since: 0 }];
        read(&reader, BROKER, &sources, Position::MIN, ALL).await.unwrap();
        reader.set(b"other", &b"1"[..]).unwrap();
        trim(&trimmer, BROKER, 1, Position::end_of(1), None).await.unwrap();
        let appenders = [database.begin_unretried(), database.begin_unretried()];
        for tx in &appenders {
            append(tx, BROKER, &[at(1, 0)], NewEntry { number: 0, now_ms: 1, body: &text("x") }).unwrap();
        }
        for tx in appenders {
            tx.commit().await.unwrap();
        }
        reader.commit().await.unwrap();
        trimmer.commit().await.unwrap();
    });
    assert_eq!(read_all(&database, &[1], Position::MIN).entries.len(), 2);
}

#[test]
fn limits_trim_the_oldest_in_bounded_steps_and_tell_who_missed_what() {
    let database = with([(1, 2)]);
    for number in 0..20u64 {
        publish(&database, &[(1, (number % 2) as u8)], 100 + number, &Bytes::from(vec![0; 10]));
    }
    let cursor = read_all(&database, &[1], Position::MIN).entries[5].position;
    let old = LossCause { reason: LossReason::Age, at_ms: 200 };
    let by_age = async |limit| run(&database, async |tx| trim_by_age(tx, BROKER, 1, 108, limit, old).await);
    let first = block_on(by_age(6));
    assert_eq!((first.removed, first.more), (Totals { entries: 6, bytes: 60 }, true));
    assert!(read_all(&database, &[1], cursor).missed.is_empty(), "the cursor is at the floor");
    let second = block_on(by_age(6));
    assert_eq!((second.removed, second.more), (Totals { entries: 2, bytes: 20 }, false));
    assert_eq!(block_on(by_age(6)), Trimmed { floor: second.floor, ..Trimmed::default() });

    let keep = Totals { entries: 100, bytes: 55 };
    let many = LossCause { reason: LossReason::Size, at_ms: 300 };
    let by_size = run(&database, async |tx| trim_by_size(tx, BROKER, 1, keep, 100, many).await);
    assert_eq!((by_size.removed, by_size.more), (Totals { entries: 7, bytes: 70 }, false));
    let batch = read_all(&database, &[1], cursor);
    assert_eq!(batch.entries.len(), 5);
    assert_eq!(batch.missed, [(0, Missed { at_least: 9, at_most: 9 })]);
    let from_start = read_all(&database, &[1], Position::MIN);
    assert_eq!(from_start.missed, [(0, Missed { at_least: 9, at_most: 15 })]);
    let lost = |cause: LossCause, entries, published_from_ms, published_to_ms| {
        let (first_at_ms, last_at_ms) = (cause.at_ms, cause.at_ms);
        StreamLoss {
            reason: cause.reason,
            first_at_ms,
            last_at_ms,
            published_from_ms,
            published_to_ms,
            entries,
        }
    };
    let all = run(&database, async |tx| losses(tx, BROKER, 1).await);
    assert_eq!(all, [lost(old, 8, 100, 107), lost(many, 7, 108, 114)]);
    run(&database, async |tx| {
        assert_eq!(totals(tx, BROKER, 1).await?, Totals { entries: 5, bytes: 50 });
        assert_eq!(usage::get(tx, BROKER, Counter::TrimmedEntries).await?, 15);
        assert_eq!(usage::get(tx, BROKER, Counter::TrimmedBytes).await?, 150);
        Ok(())
    });
}

#[test]
fn a_trim_believes_what_its_caller_read_only_from_the_floor_on() {
    let database = with([(1, 1)]);
    for _ in 0..6 {
        publish(&database, &[(1, 0)], 1, &text("12345"));
    }
    let batch = read_all(&database, &[1], Position::MIN);
    let third = batch.entries[2].position;
    let counted = |from| Some(CountedSpan { from, totals: Totals { entries: 3, bytes: 15 } });
    let trimmed = run(&database, async |tx| trim(tx, BROKER, 1, third, counted(Position::MIN)).await);
    assert_eq!(trimmed.removed, Totals { entries: 3, bytes: 15 });
    let fifth = batch.entries[4].position;
    let trimmed = run(&database, async |tx| trim(tx, BROKER, 1, fifth, counted(Position::MIN)).await);
    assert_eq!(trimmed.removed, Totals { entries: 2, bytes: 10 }, "the floor was elsewhere: counted anew");
    assert_eq!(run(&database, async |tx| totals(tx, BROKER, 1).await), Totals { entries: 1, bytes: 5 });
    assert!(read_all(&database, &[1], Position::MIN).missed.is_empty(), "what was acknowledged is not lost");
}

#[test]
fn partitions_only_grow_and_what_was_in_them_stays_in_order() {
    let database = with([(1, 1)]);
    publish(&database, &[(1, 0)], 1, &text("1"));
    run(&database, async |tx| set_partitions(tx, BROKER, 1, 2).await);
    publish(&database, &[(1, 1)], 1, &text("2"));
    run(&database, async |tx| set_partitions(tx, BROKER, 1, 1).await);
    publish(&database, &[(1, 0)], 1, &text("3"));
    let row = run(&database, async |tx| stream(tx, BROKER, 1, Read::Snapshot).await).unwrap();
    assert_eq!(row.partitions, 2);
    assert_eq!(bodies(&read_all(&database, &[1], Position::MIN)), [b"1", b"2", b"3"]);
}

#[derive(Clone, Debug)]
struct Published {
    to: Vec<StreamRef>,
    bytes: usize,
}

fn published() -> impl Strategy<Value = Vec<Vec<Published>>> {
    let to = proptest::collection::btree_map(1..5u64, 0..3u8, 1..4)
        .prop_map(|to| to.into_iter().map(|(stream, partition)| at(stream, partition)).collect());
    let one = (to, prop_oneof![8 => 0..50usize, 1 => 1_025..3_000usize])
        .prop_map(|(to, bytes)| Published { to, bytes });
    proptest::collection::vec(proptest::collection::vec(one, 1..6), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn reading_on_from_the_cursor_gives_all_of_it_once_and_in_order(
        transactions in published(),
        sources in proptest::collection::btree_set(1..5u64, 1..4),
        limit in (1..20usize, prop_oneof![Just(usize::MAX), 1..4_000usize]),
    ) {
        let database = with((1..5).map(|stream| (stream, 3)));
        let sources: Vec<StreamSource> = sources.into_iter().map(|stream| StreamSource { stream, since: 0 }).collect();
        let limit = ReadLimit { entries: limit.0, bytes: limit.1 };
        let (mut expected, mut found, mut cursor) = (Vec::new(), Vec::new(), Position::MIN);
        for (number, transaction) in transactions.iter().enumerate() {
            run(&database, async |tx| {
                for (place, message) in transaction.iter().enumerate() {
                    let body = Bytes::from(vec![place as u8; message.bytes]);
                    let publish = NewEntry { number: place as u16, now_ms: number as u64, body: &body };
                    append(tx, BROKER, &message.to, publish)?;
                }
                Ok(())
            });
            for (place, message) in transaction.iter().enumerate() {
                let has = |source: &StreamSource| message.to.iter().any(|to| to.stream == source.stream);
                let within: Vec<usize> = (0..sources.len()).filter(|index| has(&sources[*index])).collect();
                if !within.is_empty() {
                    expected.push((number as u64, place as u8, message.bytes, within));
                }
            }
            // Read a part between transactions, all at the end.
            let mut more = true;
            while more {
                let batch = run(&database, async |tx| read(tx, BROKER, &sources, cursor, limit).await);
                prop_assert!(batch.through >= cursor && batch.entries.len() <= limit.entries);
                prop_assert!(batch.entries.iter().all(|entry| entry.position > cursor && entry.position <= batch.through));
                cursor = batch.through;
                for entry in batch.entries {
                    let place = entry.position.number() as u8;
                    prop_assert!(entry.body.iter().all(|byte| *byte == place));
                    found.push((entry.at_ms, place, entry.body.len(), entry.sources));
                }
                more = batch.more && number + 1 == transactions.len();
            }
        }
        prop_assert_eq!(found, expected);
    }
}

/// A store across a network takes a round trip for each wait.
#[test]
fn reads_of_many_streams_and_bodies_come_together() {
    let database = with((1..=500).map(|stream| (stream, 1)));
    for _ in 0..48 {
        publish(&database, &[(1, 0), (2, 0)], 5, &Bytes::from(vec![7; 2_000]));
    }
    let (trips, counted) = RoundTrips::of(&database);
    let streams: Vec<StreamId> = (1..=500).collect();
    assert_eq!(read_all(&counted, &streams, Position::MIN).entries.len(), 48);
    let count = trips.take();
    assert!((3..40).contains(&count), "{count} round trips");
}

#[test]
fn empty_streams_and_unheld_bodies_are_removed_in_few_round_trips() {
    let database = with((1..=100).map(|stream| (stream, 1)));
    let all: Vec<(StreamId, u8)> = (1..=100).map(|stream| (stream, 0)).collect();
    for _ in 0..3 {
        publish(&database, &all, 5, &Bytes::from(vec![7; 2_000]));
    }
    run(&database, async |tx| {
        (1..=100).try_for_each(|stream| {
            tx.clear_range(keys::partition(BROKER, stream, 0).children())?;
            drop_stream(tx, BROKER, stream, 1)
        })
    });
    let (trips, counted) = RoundTrips::of(&database);
    let swept = run(&counted, async |tx| sweep_dropped(tx, BROKER, &DroppedFrom::default(), 100).await);
    let count = trips.take();
    assert!(swept.removed == 100 && count < 20, "{swept:?} in {count} round trips");
    // A step ends after a number of reads: the rest of the bodies comes with the next one.
    let step = |from, limit| run(&counted, async |tx| sweep_bodies(tx, BROKER, from, limit).await);
    let first = step(Position::MIN, 10);
    let count = trips.take();
    assert!(first.removed == 1 && first.next.is_some() && count < 20, "{first:?} in {count} round trips");
    let second = step(first.next.unwrap(), 10);
    assert_eq!((second.removed, step(second.next.unwrap(), 10)), (1, Swept { removed: 1, next: None }));
}
