//! The latest messages of streams, for people who look for one. Sessions read forwards, with a cursor.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, after};

use super::{
    StreamId, StreamRef,
    append::Value,
    keys,
    read::{Entry, ReadLimit, body},
    row,
};
use crate::{
    BrokerId,
    error::{Error, Result},
    position::Position,
};

/// The latest messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// The last one first, each once.
    pub entries: Vec<Entry>,
    /// Whether older ones are left.
    pub more: bool,
}

/// Reads the latest messages of `streams` up to a limit. [`Entry::sources`] are indices of `streams`, and complete. A snapshot read.
///
/// # Errors
/// The store's.
pub async fn newest(
    tx: &Transaction,
    broker: BrokerId,
    streams: &[StreamId],
    limit: ReadLimit,
) -> Result<Newest> {
    let mut found: BTreeMap<Reverse<Position>, (Bytes, Vec<usize>)> = BTreeMap::new();
    // Before this position a lane was not read, so an entry there could lack sources.
    let mut complete_from = Position::MIN;
    let mut more = false;
    for (number, stream) in streams.iter().enumerate() {
        let Some(row) = row::stream(tx, broker, *stream, Read::Snapshot).await? else { continue };
        for partition in 0..row.partitions {
            let lane = StreamRef { stream: *stream, partition };
            let begin = after(keys::entry(broker, lane, row.floor).as_ref());
            let range = KeyRange::new(begin, keys::partition(broker, *stream, partition).end());
            let page = tx.range(range, RangeOptions::last(limit.entries).snapshot()).await?;
            let mut oldest = None;
            for item in page.items {
                let position = Position(*item.key.last_chunk().ok_or(Error::Corrupt("key"))?);
                oldest = Some(position);
                let (_, sources) = found.entry(Reverse(position)).or_insert((item.value, Vec::new()));
                if sources.last() != Some(&number) {
                    sources.push(number);
                }
            }
            if page.more {
                more = true;
                complete_from = complete_from.max(oldest.unwrap_or(Position::MAX));
            }
        }
    }
    let mut newest = Newest { entries: Vec::new(), more };
    let mut bytes = 0;
    for (Reverse(position), (value, sources)) in found {
        let is_full = newest.entries.len() >= limit.entries || bytes >= limit.bytes;
        if position < complete_from || is_full {
            newest.more = true;
            break;
        }
        let (at_ms, value) = Value::decode(value)?;
        bytes += value.bytes();
        let body = match value {
            Value::Inline(body) => body,
            Value::Apart { bytes } => body(tx, broker, position, bytes).await?,
        };
        newest.entries.push(Entry { position, at_ms, body, sources });
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits::CHUNK_BYTES,
        streams::tests::{publish, text, with},
        testing::{BROKER, run},
    };

    fn look(database: &millrace_storage::Database, entries: usize, bytes: usize) -> Newest {
        run(database, async |tx| newest(tx, BROKER, &[1, 2], ReadLimit { entries, bytes }).await)
    }

    fn bodies(found: &Newest) -> Vec<&[u8]> {
        found.entries.iter().map(|entry| &entry.body[..entry.body.len().min(1)]).collect()
    }

    #[test]
    fn the_latest_come_first_each_once_with_all_its_streams() {
        let database = with([(1, 1), (2, 4)]);
        publish(&database, &[(1, 0)], 10, &text("a"));
        publish(&database, &[(2, 3)], 11, &text("b"));
        publish(&database, &[(1, 0), (2, 1)], 12, &Bytes::from(vec![b'c'; CHUNK_BYTES + 1]));
        publish(&database, &[(2, 0)], 13, &text("d"));
        let all = look(&database, 10, usize::MAX);
        assert_eq!((bodies(&all), all.more), (vec![&b"d"[..], b"c", b"b", b"a"], false));
        assert_eq!(all.entries[1].sources, [0, 1]);
        assert_eq!((all.entries[1].at_ms, all.entries[1].body.len()), (12, CHUNK_BYTES + 1));

        let few = look(&database, 2, usize::MAX);
        assert_eq!((bodies(&few), few.more), (vec![&b"d"[..], b"c"], true));
        let short = look(&database, 10, 100);
        assert_eq!((bodies(&short), short.more), (vec![&b"d"[..], b"c"], true), "one long body ends it");
    }

    /// The second lane is read only up to its limit, and what is older may stand there as well.
    #[test]
    fn what_may_stand_in_a_part_that_was_not_read_is_left_out() {
        let database = with([(1, 1), (2, 1)]);
        publish(&database, &[(1, 0), (2, 0)], 1, &text("a"));
        for _ in 0..3 {
            publish(&database, &[(2, 0)], 2, &text("b"));
        }
        let found = look(&database, 2, usize::MAX);
        assert_eq!((bodies(&found), found.more), (vec![&b"b"[..], b"b"], true));
    }
}
