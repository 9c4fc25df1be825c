//! The row of a stream: its filter, the number of its partitions, and its trims.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, RangeOptions, Read, Reply, Transaction, after};

use super::{StreamId, keys};
use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    limits::{PARTITIONS_MAX, TRIM_STEPS_MAX},
    position::{Position, position},
    rows,
    tuple::Elements,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The filter, with its `$share/group/`.
    pub name: Bytes,
    /// 1 to [`PARTITIONS_MAX`]; only grows, so that an append by an older number goes to a partition that is read.
    pub partitions: u8,
    /// Entries up to here are removed.
    pub floor: Position,
    /// Trims of entries that may not have been read, oldest first.
    steps: Vec<CountStep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CountStep {
    through: Position,
    entries: u64,
}

/// Bounds of the number of entries that a cursor before the floor missed; they differ if one trim removed entries on
/// both sides of the cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    pub at_least: u64,
    pub at_most: u64,
}

impl Stream {
    pub(crate) fn new(name: Bytes, floor: Position) -> Self {
        Self { name, partitions: 1, floor, steps: Vec::new() }
    }

    #[must_use]
    pub fn missed_since(&self, cursor: Position) -> Missed {
        let mut missed = Missed::default();
        for step in self.steps.iter().rev().take_while(|step| step.through > cursor) {
            missed.at_least = missed.at_most;
            missed.at_most += step.entries;
        }
        // If the cursor is exactly where an older trim ended, it missed every entry of the trims after that one.
        let older = self.steps.iter().rev().find(|step| step.through <= cursor);
        if older.is_some_and(|step| step.through == cursor) {
            missed.at_least = missed.at_most;
        }
        missed
    }

    /// Raises the floor over entries that all subscribers have read.
    pub(super) fn raise(&mut self, through: Position) {
        self.floor = self.floor.max(through);
    }

    /// Raises the floor over entries that may not have been read.
    pub(super) fn lose(&mut self, through: Position, entries: u64) {
        self.raise(through);
        self.steps.push(CountStep { through, entries });
        if self.steps.len() > TRIM_STEPS_MAX {
            let oldest = self.steps.remove(0);
            self.steps[0].entries += oldest.entries;
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut value = Vec::with_capacity(16 + self.name.len() + self.steps.len() * 20);
        value.put_u8(self.partitions);
        value.put_slice(&self.floor.0);
        rows::put_sized(&mut value, &self.name);
        for step in &self.steps {
            value.put_slice(&step.through.0);
            value.put_u64(step.entries);
        }
        value.into()
    }

    pub(super) fn decode(mut value: Bytes) -> LayerResult<Self> {
        let partitions = value.try_get_u8()?;
        let floor = position(&mut value)?;
        let name = rows::take_sized(&mut value)?;
        let mut steps = Vec::new();
        while value.has_remaining() {
            steps.push(CountStep { through: position(&mut value)?, entries: value.try_get_u64()? });
        }
        Ok(Self { name, partitions, floor, steps })
    }
}

/// A stream; `None` when its last subscriber has left.
pub async fn stream(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    read: Read,
) -> LayerResult<Option<Stream>> {
    tx.get(keys::stream(broker, stream), read).await?.map(Stream::decode).transpose()
}

/// Asks for the row of a stream in a snapshot, for [`Stream::decode`], so that the rows of many streams come together.
pub(super) fn ask(tx: &Transaction, broker: BrokerId, stream: StreamId) -> Reply<'_, Option<Bytes>> {
    tx.get(keys::stream(broker, stream), Read::Snapshot)
}

/// Lists up to `limit` streams of a broker after `from` in order of ids, as a snapshot read; a page may end early, and
/// an empty page is the end.
pub async fn list(
    tx: &Transaction,
    broker: BrokerId,
    from: Option<StreamId>,
    limit: usize,
) -> LayerResult<Vec<(StreamId, Stream)>> {
    let prefix = keys::streams(broker);
    let begin = from.map_or(prefix.children().begin, |from| after(keys::stream(broker, from).as_ref()));
    let page = tx.range(KeyRange::new(begin, prefix.end()), RangeOptions::first(limit).snapshot()).await?;
    let read = |row: millrace_storage::KeyValue| {
        Ok((Elements::after(&prefix, &row.key)?.uint()?, Stream::decode(row.value)?))
    };
    page.items.into_iter().map(read).collect()
}

pub async fn set_partitions(
    tx: &Transaction,
    broker: BrokerId,
    id: StreamId,
    partitions: u8,
) -> LayerResult<()> {
    let mut row = stream(tx, broker, id, Read::Serializable).await?.ok_or(LayerError::Corrupt("stream"))?;
    row.partitions = row.partitions.max(partitions.min(PARTITIONS_MAX));
    Ok(tx.set(keys::stream(broker, id), row.encode())?)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::{
        sessions::fence,
        subscriptions::{StoredOptions, subscribe},
        testing::{BROKER, attached, database, id, request, run},
    };

    fn at(version: u64) -> Position {
        Position::end_of(version)
    }

    #[test]
    fn what_a_cursor_missed_is_known_between_two_bounds() {
        let mut stream = Stream::new(Bytes::from_static(b"a/+"), at(5));
        for (version, entries) in [(10, 3), (20, 5), (30, 7)] {
            stream.lose(at(version), entries);
        }
        stream.raise(at(40));
        assert_eq!(stream.floor, at(40));
        for (cursor, at_least, at_most) in [
            (1, 12, 15),
            (9, 12, 15),
            (10, 12, 12),
            (15, 7, 12),
            (20, 7, 7),
            (29, 0, 7),
            (30, 0, 0),
            (50, 0, 0),
        ] {
            assert_eq!(stream.missed_since(at(cursor)), Missed { at_least, at_most }, "{cursor}");
        }
        assert_eq!(Stream::decode(stream.encode()), Ok(stream));
    }

    #[test]
    fn old_trims_are_summed_up() {
        let mut stream = Stream::new(Bytes::new(), Position::MIN);
        for version in 1..=100 {
            stream.lose(at(version), 1);
        }
        assert_eq!(stream.steps.len(), TRIM_STEPS_MAX);
        assert_eq!(stream.missed_since(Position::MIN).at_most, 100);
        assert_eq!(stream.missed_since(at(99)), Missed { at_least: 1, at_most: 1 });
    }

    #[test]
    fn streams_are_listed_page_by_page() {
        let database = database();
        let epoch = attached(&database, "c", &request("pod", 1)).epoch;
        for filter in ["a/+", "b", "$share/g/b"] {
            run(&database, async |tx| {
                let owned = fence(tx, id("c"), epoch).await?;
                subscribe(&owned, filter.as_bytes(), StoredOptions::default()).await
            });
        }
        let page = |from, limit| run(&database, async |tx| list(tx, BROKER, from, limit).await);
        let mut all = page(None, 10);
        let first = page(None, 2);
        assert_eq!([first.clone(), page(first.last().map(|(id, _)| *id), 10)].concat(), all);
        all.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        let names: Vec<_> = all.iter().map(|(_, stream)| &stream.name[..]).collect();
        assert_eq!(names, [&b"$share/g/b"[..], b"a/+", b"b"]);
    }
}
