//! The latest messages of streams, for people who look for one; sessions read forwards, with a cursor.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, after};

use super::{
    StreamId, StreamRef,
    append::EntryValue,
    keys,
    read::{ReadLimit, StreamEntry, body},
    row,
};
use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    position::Position,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// The latest first, each once.
    pub entries: Vec<StreamEntry>,
    pub more: bool,
}

/// Reads the latest messages of `streams` up to a limit in a snapshot; [`StreamEntry::sources`] are indices of `streams`, and
/// complete.
pub async fn newest(
    tx: &Transaction,
    broker: BrokerId,
    streams: &[StreamId],
    limit: ReadLimit,
) -> LayerResult<Newest> {
    let mut latest = Latest::new(limit);
    for (number, stream) in streams.iter().enumerate() {
        let Some(row) = row::stream(tx, broker, *stream, Read::Snapshot).await? else { continue };
        for partition in 0..row.partitions {
            let lane = StreamRef { stream: *stream, partition };
            let above_floor = after(keys::entry(broker, lane, row.floor).as_ref());
            let complete = after(keys::entry(broker, lane, latest.complete_from.before()).as_ref());
            let end = keys::partition(broker, *stream, partition).end();
            let range = KeyRange::new(above_floor.max(complete), end);
            let page = tx.range(range, RangeOptions::last(limit.entries).snapshot()).await?;
            let mut oldest = None;
            for item in page.items {
                let position = Position(*item.key.last_chunk().ok_or(LayerError::Corrupt("key"))?);
                oldest = Some(position);
                latest.add(position, item.value, number)?;
            }
            if page.more {
                latest.leave_out_before(oldest.unwrap_or(Position::MAX));
            }
        }
    }
    let mut newest = Newest { entries: Vec::with_capacity(latest.found.len()), more: latest.more };
    for (Reverse(position), NewestEntry { at_ms, value, sources }) in latest.found {
        let body = match value {
            EntryValue::Inline(body) => body,
            EntryValue::Apart { bytes } => body(tx, broker, position, bytes).await?,
        };
        newest.entries.push(StreamEntry { position, at_ms, body, sources });
    }
    Ok(newest)
}

struct NewestEntry {
    at_ms: u64,
    value: EntryValue,
    sources: Vec<usize>,
}

/// The latest entries of the lanes read so far: no more than the limit and the entry that reaches it, because inline
/// bodies of many lanes together would not fit into memory.
struct Latest {
    limit: ReadLimit,
    found: BTreeMap<Reverse<Position>, NewestEntry>,
    bytes: usize,
    /// Older entries are left out: some lanes were not read there, so sources would be missing.
    complete_from: Position,
    more: bool,
}

impl Latest {
    fn new(limit: ReadLimit) -> Self {
        Self { limit, found: BTreeMap::new(), bytes: 0, complete_from: Position::MIN, more: false }
    }

    fn add(&mut self, position: Position, value: Bytes, source: usize) -> LayerResult<()> {
        if position < self.complete_from {
            return Ok(());
        }
        if let Some(found) = self.found.get_mut(&Reverse(position)) {
            if found.sources.last() != Some(&source) {
                found.sources.push(source);
            }
            return Ok(());
        }
        let (at_ms, value) = EntryValue::decode(value)?;
        self.bytes += value.bytes();
        self.found.insert(Reverse(position), NewestEntry { at_ms, value, sources: vec![source] });
        while let Some((_, oldest)) = self.found.last_key_value() {
            let is_full_without = self.found.len() > self.limit.entries
                || self.bytes - oldest.value.bytes() >= self.limit.bytes;
            if !is_full_without {
                break;
            }
            self.remove_oldest();
            let oldest =
                self.found.last_key_value().map_or(Position::MAX, |(Reverse(position), _)| *position);
            self.leave_out_before(oldest);
        }
        Ok(())
    }

    fn leave_out_before(&mut self, position: Position) {
        self.more = true;
        self.complete_from = self.complete_from.max(position);
        while self.found.last_key_value().is_some_and(|(oldest, _)| oldest.0 < self.complete_from) {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        if let Some((_, oldest)) = self.found.pop_last() {
            self.bytes -= oldest.value.bytes();
        }
    }
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

    /// Each lane alone is within the limit, all together are far above it.
    #[test]
    fn many_lanes_together_hold_no_more_than_the_limit() {
        const BODY: usize = 1_000;
        let database = with([(1, 8), (2, 8)]);
        for round in 0..4 {
            for lane in 0..8 {
                publish(&database, &[(1, lane)], round, &Bytes::from(vec![b'a'; BODY]));
                publish(&database, &[(2, lane)], round, &Bytes::from(vec![b'b'; BODY]));
            }
        }
        let found = look(&database, 500, 3 * BODY);
        assert_eq!((bodies(&found), found.more), (vec![&b"b"[..], b"a", b"b"], true));

        let mut latest = Latest::new(ReadLimit { entries: 500, bytes: 3 * BODY });
        let value = EntryValue::Inline(Bytes::from(vec![b'a'; BODY])).encode(1);
        for place in 0..500_u16 {
            // Older and newer ones by turns.
            let place = if place % 2 == 0 { 500 + place } else { 500 - place };
            let position = Position::new(Position::MIN.stamp(), place);
            latest.add(position, value.clone(), 0).unwrap();
            assert!(latest.bytes <= 3 * BODY && latest.found.len() <= 3, "{} bytes", latest.bytes);
        }
        let kept: Vec<Position> = latest.found.keys().map(|Reverse(position)| *position).collect();
        let expected = [998, 996, 994].map(|place| Position::new(Position::MIN.stamp(), place));
        assert_eq!((kept, latest.more), (expected.to_vec(), true));
    }
}
