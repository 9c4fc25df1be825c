//! The log of changes of the filter index, in commit order. A pod that has the index in memory reads the new changes
//! instead of a row for each topic. The log has a limit: a pod that has missed removed changes loads the whole index
//! again.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, StoreVersion, Transaction, TransactionOption, after};

use super::{IndexRow, IndexedStream, decode, encode};
use crate::{
    BrokerId,
    error::LayerResult,
    limits::INDEX_CHANGES_KEPT,
    position::Position,
    rows, tags,
    tuple::{Elements, Key},
};

/// The counts are for [`trim_changes`] and [`super::watch_all`].
pub(super) fn append_change(
    tx: &Transaction,
    broker: BrokerId,
    filter: &[u8],
    streams: &[IndexedStream],
) -> LayerResult<()> {
    let key = log(broker).before_position();
    tx.set_versionstamped_key(key, [0; 2], Key::name(filter), encode(streams))?;
    Ok(tx.atomic_add(count_key(broker), 1)?)
}

/// Reads in a snapshot the filters that changed after `since` with their present streams, none for a filter without
/// subscribers. Returns `None` when the log does not reach back that far, or has more than [`INDEX_CHANGES_KEPT`]
/// changes since, because loading the whole index is cheaper then. [`super::watch`] adds the conflicts with later
/// changes.
pub async fn changes(
    tx: &Transaction,
    broker: BrokerId,
    since: StoreVersion,
) -> LayerResult<Option<Vec<IndexRow>>> {
    let prefix = log(broker);
    let begin = prefix.clone().position(Position::end_of(since));
    let options = RangeOptions::first(INDEX_CHANGES_KEPT + 1).snapshot();
    let mut range = KeyRange::new(begin.as_ref(), prefix.end());
    let (mut found, mut left) = (BTreeMap::new(), INDEX_CHANGES_KEPT);
    loop {
        let page = tx.range(range.clone(), RangeOptions { limit: left + 1, ..options }).await?;
        if page.items.len() > left {
            return Ok(None);
        }
        left -= page.items.len();
        range.begin = page.items.last().map_or(Bytes::new(), |last| after(&last.key));
        for row in page.items {
            let (_, filter) = read_key(&prefix, &row.key)?;
            if filter.is_empty() {
                return Ok(None);
            }
            found.insert(filter, decode(row.value)?);
        }
        if !page.more {
            let rows = found.into_iter().map(|(filter, streams)| IndexRow { filter: filter.into(), streams });
            return Ok(Some(rows.collect()));
        }
    }
}

/// Removes the oldest changes beyond [`INDEX_CHANGES_KEPT`], at most `at_most`. Returns their number, and the `from`
/// of the next trim, before which no change is left.
pub async fn trim_changes(
    tx: &Transaction,
    broker: BrokerId,
    from: Position,
    at_most: usize,
) -> LayerResult<(usize, Position)> {
    tx.set_option(TransactionOption::FreesSpace);
    let excess = rows::counter(tx, &count_key(broker), Read::Snapshot).await?;
    let excess =
        usize::try_from(excess).unwrap_or(usize::MAX).saturating_sub(INDEX_CHANGES_KEPT).min(at_most);
    if excess == 0 {
        return Ok((0, from));
    }
    // Serializable, so that two concurrent trims do not count the same changes twice. One more row, because the first
    // may be the marker of an earlier trim.
    let options = RangeOptions { limit: excess + 1, reverse: false, read: Read::Serializable };
    let prefix = log(broker);
    let begin = log(broker).position(from);
    let page = tx.range(KeyRange::new(&begin, prefix.end()), options).await?;
    let keys = page.items.iter().map(|row| Ok((read_key(&prefix, &row.key)?, &row.key)));
    let mut keys = keys.collect::<LayerResult<Vec<_>>>()?;
    keys.retain(|((_, filter), _)| !filter.is_empty());
    keys.truncate(excess);
    let Some(((position, _), last)) = keys.last() else {
        // The counter was too high: a transaction that changes one filter twice counts twice, but writes one key.
        tx.clear(count_key(broker))?;
        return Ok((0, from));
    };
    tx.clear_range(KeyRange::new(begin, after(last)))?;
    tx.set(prefix.position(*position).bytes(b""), Bytes::new())?;
    tx.atomic_add(count_key(broker), -i64::try_from(keys.len()).unwrap_or(i64::MAX))?;
    Ok((keys.len(), *position))
}

fn read_key(prefix: &Key, key: &[u8]) -> LayerResult<(Position, Vec<u8>)> {
    let mut elements = Elements::after(prefix, key)?;
    Ok((elements.position()?, elements.bytes()?))
}

fn log(broker: BrokerId) -> Key {
    Key::new(broker, tags::CHANGE)
}

pub(super) fn count_key(broker: BrokerId) -> Key {
    Key::new(broker, tags::CHANGES)
}

#[cfg(test)]
mod tests {
    use millrace_storage::Database;

    use super::*;
    use crate::testing::{BROKER, database, run};

    fn change(database: &Database, filter: &str, stream: u64) {
        let streams = [IndexedStream { group: Bytes::new(), stream }];
        let streams = if stream == 0 { &[][..] } else { &streams };
        run(database, async |tx| super::super::change(tx, BROKER, filter.as_bytes(), streams));
    }

    fn since(database: &Database, version: StoreVersion) -> Option<Vec<(String, Vec<u64>)>> {
        let changed = run(database, async |tx| changes(tx, BROKER, version).await)?;
        let row = |row: IndexRow| {
            let filter = String::from_utf8(row.filter.to_vec()).unwrap();
            (filter, row.streams.iter().map(|indexed| indexed.stream).collect())
        };
        Some(changed.into_iter().map(row).collect())
    }

    fn now(database: &Database) -> StoreVersion {
        run(database, async |tx| Ok(tx.read_version().await?))
    }

    #[test]
    fn a_pod_reads_the_last_change_of_each_filter_since_its_version() {
        let database = database();
        assert_eq!(since(&database, 0), Some(vec![]));
        change(&database, "a/+", 1);
        change(&database, "b", 2);
        let known = now(&database);
        assert_eq!(since(&database, 0).unwrap(), [("a/+".into(), vec![1]), ("b".into(), vec![2])]);
        assert_eq!(since(&database, known), Some(vec![]));
        change(&database, "b", 0);
        change(&database, "a/+", 0);
        change(&database, "a/+", 3);
        assert_eq!(since(&database, known).unwrap(), [("a/+".into(), vec![3]), ("b".into(), vec![])]);
    }

    #[test]
    fn a_pod_that_missed_trimmed_changes_must_load_the_index_and_others_need_not() {
        let database = database();
        let mut from = Position::MIN;
        let mut trim = |at_most| {
            let (removed, next) = run(&database, async |tx| trim_changes(tx, BROKER, from, at_most).await);
            from = next;
            removed
        };
        change(&database, "first", 1);
        let early = now(&database);
        for number in 0..INDEX_CHANGES_KEPT {
            change(&database, &format!("{}", number % 7), number as u64 + 1);
        }
        assert_eq!(since(&database, 0), None, "loading is cheaper");
        assert_eq!(since(&database, early).map(|rows| rows.len()), Some(7));
        assert_eq!(trim(500), 1);
        assert_eq!((since(&database, 0), trim(500)), (None, 0));
        assert_eq!(since(&database, early).map(|rows| rows.len()), Some(7), "it had what has gone");
        let late = now(&database);
        for number in 0..30 {
            change(&database, "more", number + 1);
        }
        let mut removed = 0;
        while let more @ 1.. = trim(12) {
            removed += more;
        }
        assert_eq!(removed, 30);
        assert_eq!(since(&database, early), None);
        assert_eq!(since(&database, late).unwrap(), [("more".into(), vec![30])]);
    }
}
