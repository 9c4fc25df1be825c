//! Finds the streams of a topic. A pod has all filters of a broker in memory, and reads their [`changes`] in the
//! transaction that appends.
//!
//! The same transaction [`watch`]es the topic, so that it conflicts when a stream of a filter that matches is made or removed, and with
//! few other changes of filters. If the subscription that makes a stream commits first, the transaction runs again and finds the
//! stream; if it commits later, it was not acknowledged before the publish.
//!
//! For an exact filter, [`watch`] covers the filter's own row. For wildcards it covers all filters whose first wildcard
//! stands where one could match, behind the same levels (decision 0013).

mod changes;

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, after};

use crate::{
    BrokerId,
    error::LayerResult,
    limits::NAME_BYTES_MAX,
    name::{Bucket, GroupedFilter},
    rows,
    streams::StreamId,
    tags,
    tuple::{Elements, Key},
};

pub use changes::{changes, trim_changes};

/// A stream of a filter: of one group, or of all subscribers that do not share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexedStream {
    /// The group's name; empty without `$share`.
    pub group: Bytes,
    pub stream: StreamId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRow {
    /// The filter without `$share/group/`.
    pub filter: Bytes,
    /// At least one while the filter is in the index.
    pub streams: Vec<IndexedStream>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexPart {
    Exact,
    Wildcard,
}

/// Makes this transaction conflict with changes of filters that match `topic` between its read version and its commit; the
/// same transaction must read [`changes`], so that it sees those before its read version.
pub fn watch(tx: &Transaction, broker: BrokerId, topic: &[u8]) -> LayerResult<()> {
    for range in wildcards(broker, topic) {
        tx.add_read_conflict_range(range)?;
    }
    // Longer filters do not exist.
    if topic.len() <= NAME_BYTES_MAX {
        conflict(tx, &Key::new(broker, tags::EXACT).bytes(topic))?;
    }
    Ok(())
}

/// Levels of a topic with a conflict range each; filters that share more literal levels with the topic have one range
/// together.
const LEVELS_MAX: usize = 8;

/// The rows of wildcard filters that can match a topic: for each level, those that begin with the literal levels before it and have
/// a wildcard there. The levels after the wildcard may still differ, so the ranges also contain filters that do not match.
fn wildcards(broker: BrokerId, topic: &[u8]) -> impl Iterator<Item = KeyRange> {
    let literal = Key::new(broker, tags::WILDCARD).uint(Bucket::of_filter(topic).number());
    let wild = Key::new(broker, tags::WILDCARD).uint(Bucket::WILD.number());
    // Wildcards do not stand for a first level that begins with `$`.
    let first = (!topic.starts_with(b"$")).then(|| between(&wild, b"", b'#', b'+' + 1));
    let is_slash = |at: &usize| topic.get(*at).is_none_or(|byte| *byte == b'/');
    let ends = (0..=topic.len()).filter(is_slash).take_while(|end| *end < NAME_BYTES_MAX);
    let behind = ends.take(LEVELS_MAX).enumerate().map(move |(index, end)| {
        let levels = [&topic[..end], b"/"].concat();
        match end {
            // Only `#` matches the level above it.
            _ if end == topic.len() => between(&literal, &levels, b'#', b'#' + 1),
            _ if index + 1 == LEVELS_MAX => {
                let all = [&topic[..end], &[b'/' + 1]].concat();
                KeyRange::new(literal.clone().bytes(&levels).as_ref(), literal.clone().bytes(&all).as_ref())
            }
            _ => between(&literal, &levels, b'#', b'+' + 1),
        }
    });
    first.into_iter().chain(behind)
}

/// Names in a part of the index that continue after `levels` with a byte from `from` to before `to`.
fn between(part: &Key, levels: &[u8], from: u8, to: u8) -> KeyRange {
    let key = |byte| part.clone().bytes(&[levels, &[byte]].concat());
    KeyRange::new(key(from).as_ref(), key(to).as_ref())
}

/// [`watch`] for all topics: makes the transaction conflict with every change of a broker's filters.
pub fn watch_all(tx: &Transaction, broker: BrokerId) -> LayerResult<()> {
    conflict(tx, &changes::count_key(broker))
}

fn conflict(tx: &Transaction, key: &Key) -> LayerResult<()> {
    let key = key.as_ref();
    Ok(tx.add_read_conflict_range(KeyRange::new(key, after(key)))?)
}

/// Lists up to `limit` filters of a part of the index after `from` in the store's order, as a snapshot read.
pub async fn list(
    tx: &Transaction,
    broker: BrokerId,
    part: IndexPart,
    from: Option<&[u8]>,
    limit: usize,
) -> LayerResult<Vec<IndexRow>> {
    let (prefix, is_wildcard) = match part {
        IndexPart::Exact => (Key::new(broker, tags::EXACT), false),
        IndexPart::Wildcard => (Key::new(broker, tags::WILDCARD), true),
    };
    let begin = from.map_or(prefix.children().begin, |from| after(row_key(broker, from).as_ref()));
    let options = RangeOptions::first(limit).snapshot();
    let page = tx.range(KeyRange::new(begin, prefix.end()), options).await?;
    let read = |row: millrace_storage::KeyValue| {
        let mut elements = Elements::after(&prefix, &row.key)?;
        if is_wildcard {
            elements.uint()?;
        }
        Ok(IndexRow { filter: elements.bytes()?.into(), streams: decode(row.value)? })
    };
    page.items.into_iter().map(read).collect()
}

/// Reads the streams of a filter in a snapshot: for reports, or after a join or leave, which has read them in this transaction.
pub async fn streams(tx: &Transaction, broker: BrokerId, filter: &[u8]) -> LayerResult<Vec<IndexedStream>> {
    streams_of(tx, broker, filter, Read::Snapshot).await
}

pub(crate) async fn streams_of(
    tx: &Transaction,
    broker: BrokerId,
    filter: &[u8],
    read: Read,
) -> LayerResult<Vec<IndexedStream>> {
    tx.get(row_key(broker, filter), read).await?.map_or(Ok(Vec::new()), decode)
}

/// Writes the changed streams of a filter, and logs the change for pods that have the index in memory.
pub(crate) fn change(
    tx: &Transaction,
    broker: BrokerId,
    filter: &[u8],
    streams: &[IndexedStream],
) -> LayerResult<()> {
    let key = row_key(broker, filter);
    if streams.is_empty() {
        tx.clear(key)?;
    } else {
        tx.set(key, encode(streams))?;
    }
    if (GroupedFilter { group: b"", filter }).is_wildcard() {
        // Pods of earlier versions read this counter.
        tx.atomic_add(version_key(broker, Bucket::of_filter(filter)), 1)?;
    }
    changes::append_change(tx, broker, filter, streams)
}

fn row_key(broker: BrokerId, filter: &[u8]) -> Key {
    if (GroupedFilter { group: b"", filter }).is_wildcard() {
        Key::new(broker, tags::WILDCARD).uint(Bucket::of_filter(filter).number()).bytes(filter)
    } else {
        Key::new(broker, tags::EXACT).bytes(filter)
    }
}

fn version_key(broker: BrokerId, bucket: Bucket) -> Key {
    Key::new(broker, tags::BUCKET).uint(bucket.number())
}

fn encode(streams: &[IndexedStream]) -> Bytes {
    let mut value = Vec::with_capacity(streams.len() * 24);
    for IndexedStream { group, stream } in streams {
        value.put_u64(*stream);
        rows::put_sized(&mut value, group);
    }
    value.into()
}

fn decode(mut value: Bytes) -> LayerResult<Vec<IndexedStream>> {
    let mut streams = Vec::with_capacity(1);
    while value.has_remaining() {
        let stream = value.try_get_u64()?;
        streams.push(IndexedStream { stream, group: rows::take_sized(&mut value)? });
    }
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As MQTT matches.
    fn matches(filter: &[&str], topic: &[&str]) -> bool {
        match (filter, topic) {
            (["#"], _) | ([], []) => true,
            (["+", filter @ ..], [_, topic @ ..]) => matches(filter, topic),
            ([one, filter @ ..], [level, topic @ ..]) => one == level && matches(filter, topic),
            _ => false,
        }
    }

    fn names(levels: &[&'static str], most: usize) -> Vec<Vec<&'static str>> {
        let mut all: Vec<Vec<&str>> = levels.iter().map(|level| vec![*level]).collect();
        let mut last = all.clone();
        for _ in 1..most {
            last = last
                .iter()
                .flat_map(|name| levels.iter().map(|level| [&name[..], &[level]].concat()))
                .collect();
            all.extend(last.clone());
        }
        all
    }

    fn is_watched(topic: &str, filter: &str) -> bool {
        let row = row_key(1, filter.as_bytes());
        wildcards(1, topic.as_bytes())
            .any(|range| *range.begin <= *row.as_ref() && *row.as_ref() < *range.end)
    }

    #[test]
    fn every_wildcard_filter_that_matches_is_watched_and_those_below_other_levels_are_not() {
        let filters = names(&["a", "b", "", "$x", "+", "#"], 3);
        let filters = filters.iter().filter(|filter| filter.iter().rev().skip(1).all(|level| *level != "#"));
        let filters: Vec<_> =
            filters.filter(|filter| filter.contains(&"+") || filter.contains(&"#")).collect();
        for topic in names(&["a", "b", "", "$x"], 3) {
            let is_special = topic[0].starts_with('$');
            for filter in &filters {
                let is_wild = matches!(filter[0], "+" | "#");
                let expected = matches(filter, &topic) && !(is_special && is_wild);
                let watched = is_watched(&topic.join("/"), &filter.join("/"));
                assert!(watched || !expected, "{topic:?} {filter:?}");
                let literal = filter.iter().take_while(|level| !matches!(**level, "+" | "#"));
                // A level that begins with `$` stands between the wildcards.
                let is_other = |(index, (one, other)): (usize, (&&str, &&str))| {
                    one != other && (index == 0 || !one.starts_with('$'))
                };
                assert!(!(watched && literal.zip(&topic).enumerate().any(is_other)), "{topic:?} {filter:?}");
            }
        }
    }

    #[test]
    fn levels_of_long_topics_are_watched_together_and_names_without_end_are_not() {
        let deep = ["a"; 30].join("/");
        for levels in 1..30 {
            let filter = format!("{}/+", ["a"; 30][..levels].join("/"));
            assert!(is_watched(&deep, &filter), "{levels}");
            assert!(!is_watched(&deep, &format!("a/b/{filter}")));
        }
        assert!(wildcards(1, deep.as_bytes()).count() <= LEVELS_MAX + 1);
        let endless = format!("a/{}", "b".repeat(60_000));
        assert!(is_watched(&endless, "a/+") && wildcards(1, endless.as_bytes()).count() == 2);
    }
}
