//! Reads all streams of a session as one, with one cursor.

use bytes::Bytes;
use millrace_storage::{RangePage, Read, Reply, StoreVersion, Transaction};

use super::{
    StreamId, StreamRef,
    append::EntryValue,
    keys,
    merge::{Merge, Raw, Start},
    row::{self, Missed, Stream},
};
use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    position::Position,
    rows,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSource {
    pub stream: StreamId,
    /// Entries appended up to this version are left out.
    pub since: StoreVersion,
}

/// Limits of a read, which returns at least one entry, whatever its length.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    pub entries: usize,
    pub bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEntry {
    pub position: Position,
    pub at_ms: u64,
    pub body: Bytes,
    /// Indices of the sources that have it.
    pub sources: Vec<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamBatch {
    /// In commit order, each once.
    pub entries: Vec<StreamEntry>,
    /// The batch is complete up to here, never before the cursor.
    pub through: Position,
    pub more: bool,
    /// Sources with entries that were trimmed before this cursor read them.
    pub missed: Vec<(usize, Missed)>,
}

impl Default for Position {
    fn default() -> Self {
        Self::MIN
    }
}

/// Reads the entries after `cursor` in `sources`, all at one version, so the result is complete up to
/// [`StreamBatch::through`].
pub async fn read(
    tx: &Transaction,
    broker: BrokerId,
    sources: &[StreamSource],
    cursor: Position,
    limit: ReadLimit,
) -> LayerResult<StreamBatch> {
    read_some(tx, broker, sources, cursor, limit, false).await
}

/// As [`read`], but leaves out an entry that exceeds `limit.bytes`, also if it is the first one: the batch ends before it.
pub async fn read_within(
    tx: &Transaction,
    broker: BrokerId,
    sources: &[StreamSource],
    cursor: Position,
    limit: ReadLimit,
) -> LayerResult<StreamBatch> {
    read_some(tx, broker, sources, cursor, limit, true).await
}

async fn read_some(
    tx: &Transaction,
    broker: BrokerId,
    sources: &[StreamSource],
    cursor: Position,
    limit: ReadLimit,
    is_strict: bool,
) -> LayerResult<StreamBatch> {
    let end = Position::end_of(tx.read_version().await?);
    let mut batch = StreamBatch::default();
    let (starts, source_of_lane) = open(tx, broker, sources, cursor, &mut batch).await?;
    let mut merge = Merge::open(tx, broker, &starts, limit.entries).await?;
    let mut collected = Collected::default();
    while let Some(next) = merge.peek() {
        if collected.is_full(next, limit) {
            batch.more = true;
            break;
        }
        let Some(raw) = merge.next().await? else { break };
        let source = source_of_lane[raw.lane];
        collected.add(raw, source)?;
    }
    let left_out = if is_strict && collected.bytes > limit.bytes { collected.entries.pop() } else { None };
    batch.more |= left_out.is_some();
    let last = collected.entries.last().map(|entry| entry.position);
    let last = left_out.map(|entry| entry.position.before()).or(last);
    batch.through = last.filter(|_| batch.more).unwrap_or(end).max(cursor);
    batch.entries = collected.into_entries(tx, broker).await?;
    Ok(batch)
}

/// Start of each partition, behind trimmed entries because an engine may have to walk through cleared keys.
pub(super) async fn open(
    tx: &Transaction,
    broker: BrokerId,
    sources: &[StreamSource],
    cursor: Position,
    batch: &mut StreamBatch,
) -> LayerResult<(Vec<Start>, Vec<usize>)> {
    let replies: Vec<_> = sources.iter().map(|source| row::ask(tx, broker, source.stream)).collect();
    let (mut starts, mut source_of_lane) = (Vec::new(), Vec::new());
    for (number, (source, reply)) in sources.iter().zip(replies).enumerate() {
        let Some(stream) = reply.await?.map(Stream::decode).transpose()? else { continue };
        let from = cursor.max(Position::end_of(source.since));
        let missed = stream.missed_since(from);
        if missed.at_most > 0 {
            batch.missed.push((number, missed));
        }
        for partition in 0..stream.partitions {
            let lane = StreamRef { stream: source.stream, partition };
            starts.push(Start { lane, after: from.max(stream.floor) });
            source_of_lane.push(number);
        }
    }
    Ok((starts, source_of_lane))
}

#[derive(Default)]
struct Collected {
    entries: Vec<Unresolved>,
    bytes: usize,
}

struct Unresolved {
    position: Position,
    at_ms: u64,
    value: EntryValue,
    sources: Vec<usize>,
}

impl Collected {
    /// Whether no other entry fits; an entry that is in the batch still gets further sources.
    fn is_full(&self, next: Position, limit: ReadLimit) -> bool {
        self.entries.last().is_some_and(|last| last.position != next)
            && (self.entries.len() >= limit.entries || self.bytes >= limit.bytes)
    }

    fn add(&mut self, raw: Raw, source: usize) -> LayerResult<()> {
        match self.entries.last_mut() {
            Some(last) if last.position == raw.position => {
                if last.sources.last() != Some(&source) {
                    last.sources.push(source);
                }
            }
            _ => {
                let (at_ms, value) = EntryValue::decode(raw.value)?;
                self.bytes += value.bytes();
                self.entries.push(Unresolved { position: raw.position, at_ms, value, sources: vec![source] });
            }
        }
        Ok(())
    }

    async fn into_entries(self, tx: &Transaction, broker: BrokerId) -> LayerResult<Vec<StreamEntry>> {
        let mut entries = Vec::with_capacity(self.entries.len());
        let mut unresolved = self.entries.into_iter().peekable();
        while unresolved.peek().is_some() {
            let asked: Vec<_> = unresolved
                .by_ref()
                .take(TOGETHER)
                .map(|entry| {
                    let is_apart = matches!(entry.value, EntryValue::Apart { .. });
                    (is_apart.then(|| ask_body(tx, broker, entry.position)), entry)
                })
                .collect();
            for (reply, Unresolved { position, at_ms, value, sources }) in asked {
                let body = match value {
                    EntryValue::Inline(body) => body,
                    EntryValue::Apart { bytes } => {
                        let first = match reply {
                            Some(reply) => reply.await?,
                            None => return Err(LayerError::Corrupt("body")),
                        };
                        join_body(tx, broker, position, bytes, first).await?
                    }
                };
                entries.push(StreamEntry { position, at_ms, body, sources });
            }
        }
        Ok(entries)
    }
}

/// Bodies that are asked for together, because a store across a network takes a round trip for each.
const TOGETHER: usize = 16;

pub(super) async fn body(
    tx: &Transaction,
    broker: BrokerId,
    position: Position,
    bytes: usize,
) -> LayerResult<Bytes> {
    let first = ask_body(tx, broker, position).await?;
    join_body(tx, broker, position, bytes, first).await
}

fn ask_body(tx: &Transaction, broker: BrokerId, position: Position) -> Reply<'_, RangePage> {
    rows::first(tx, &keys::body(broker, position).children(), Read::Snapshot)
}

async fn join_body(
    tx: &Transaction,
    broker: BrokerId,
    position: Position,
    bytes: usize,
    first: RangePage,
) -> LayerResult<Bytes> {
    let range = keys::body(broker, position).children();
    let body = rows::join(rows::rest(tx, range, Read::Snapshot, first).await?);
    if body.len() == bytes { Ok(body) } else { Err(LayerError::Corrupt("body")) }
}
