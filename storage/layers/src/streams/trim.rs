//! Removes entries that all subscribers have read, or that exceed a limit.
//!
//! A transaction that appends cannot trim, because keys whose versionstamp is not known yet cannot be read.

use millrace_storage::{KeyRange, Read, Transaction, after};

use super::{
    StreamId, StreamRef,
    append::EntryValue,
    keys,
    losses::{self, LossCause, LossReason, StreamLoss},
    merge::{Merge, Start},
    row::{self, Stream},
    totals::{self, Totals},
};
use crate::{
    BrokerId,
    error::LayerResult,
    limits::{SETTLED_GROUPS_MAX, TRIM_BYTES_MAX, TRIM_ENTRIES_MAX},
    position::Position,
    usage::{self, Counter},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    pub removed: Totals,
    pub floor: Position,
    /// The trim ended at its limit, before all entries were removed that it should remove.
    pub more: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    pub now_ms: u64,
    /// Entries that were published before this time go.
    pub before_ms: u64,
    pub keep: Totals,
    pub over_keep: LossReason,
}

/// Counts of all entries of a stream between two positions, which must be exact: the stream's totals are reduced by
/// them, and nothing is removed where they are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedSpan {
    /// Counted are entries after this position.
    pub from: Position,
    /// Totals from there to the end of the trim.
    pub totals: Totals,
}

/// Removes entries that all subscribers have read, up to and including `through`, and does not count them as lost. The
/// only subscriber of a stream calls it with its own cursor, in the transaction that writes the cursor, if
/// [`crate::subscriptions::is_sole`] returns true.
///
/// `read` has the caller's counts, so that the entries need not be counted again. It is used only if it begins at the
/// stream's floor; otherwise there was another trim meanwhile, or earlier entries are left.
pub async fn trim(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    through: Position,
    read: Option<CountedSpan>,
) -> LayerResult<Trimmed> {
    trim_most(tx, broker, stream, through, read, Most::of_entries(TRIM_ENTRIES_MAX)).await
}

/// [`trim`] of up to `limit` entries, and [`TRIM_BYTES_MAX`].
pub async fn trim_some(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    through: Position,
    limit: usize,
) -> LayerResult<Trimmed> {
    trim_most(tx, broker, stream, through, None, Most::of_piece(limit)).await
}

/// [`trim_some`] for one of several streams in a transaction.
pub(super) async fn trim_part(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    through: Position,
) -> LayerResult<Trimmed> {
    trim_most(tx, broker, stream, through, None, Most::of_part()).await
}

async fn trim_most(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    through: Position,
    read: Option<CountedSpan>,
    most: Most,
) -> LayerResult<Trimmed> {
    let Some(row) = row::stream(tx, broker, stream, Read::Serializable).await? else {
        return Ok(Trimmed::default());
    };
    let through = through.min(Position::end_of(tx.read_version().await?));
    if through <= row.floor {
        return Ok(Trimmed { floor: row.floor, ..Trimmed::default() });
    }
    let known = read.filter(|span| span.from == row.floor).map(|span| span.totals);
    let found = match known {
        Some(totals) => Trimmable { totals, last: through, more: false, published_ms: None },
        None => {
            let until = |next: Position, _: &Totals| next > through;
            let mut found = find(tx, broker, stream, &row, most, Stop::Before(&until)).await?;
            if !found.more {
                found.last = through;
            }
            found
        }
    };
    remove(tx, broker, stream, row, found, None).await
}

/// Removes up to `limit` entries, and [`TRIM_BYTES_MAX`], that were published before `before_ms`, read or not, and counts them as trimmed in the
/// broker's usage.
pub async fn trim_by_age(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    before_ms: u64,
    limit: usize,
    cause: LossCause,
) -> LayerResult<Trimmed> {
    let Some(row) = row::stream(tx, broker, stream, Read::Serializable).await? else {
        return Ok(Trimmed::default());
    };
    let is_young = |at_ms: u64| at_ms >= before_ms;
    let found = find(tx, broker, stream, &row, Most::of_piece(limit), Stop::Young(&is_young)).await?;
    remove(tx, broker, stream, row, found, Some(cause)).await
}

/// Removes up to `limit` of the oldest entries, and [`TRIM_BYTES_MAX`], read or not, until the stream has no more than `keep`, and counts them
/// as trimmed in the broker's usage.
pub async fn trim_by_size(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    keep: Totals,
    limit: usize,
    cause: LossCause,
) -> LayerResult<Trimmed> {
    let Some(row) = row::stream(tx, broker, stream, Read::Serializable).await? else {
        return Ok(Trimmed::default());
    };
    let has = totals::totals(tx, broker, stream).await?;
    let fits = |_: Position, gone: &Totals| {
        has.entries <= keep.entries + gone.entries && has.bytes <= keep.bytes + gone.bytes
    };
    let found = find(tx, broker, stream, &row, Most::of_piece(limit), Stop::Before(&fits)).await?;
    remove(tx, broker, stream, row, found, Some(cause)).await
}

enum Stop<'a> {
    /// Ends before the first entry for which this returns true. It gets the position of the entry and the totals before it.
    Before(&'a (dyn Fn(Position, &Totals) -> bool + Sync)),
    /// The same by the entry's time of publication, unix milliseconds.
    Young(&'a (dyn Fn(u64) -> bool + Sync)),
}

/// Entries that one trim reads, and bytes of their rows after which it reads no other.
#[derive(Clone, Copy)]
struct Most {
    entries: usize,
    bytes: usize,
}

impl Most {
    fn of_entries(entries: usize) -> Self {
        Self { entries: entries.min(TRIM_ENTRIES_MAX), bytes: usize::MAX }
    }

    fn of_part() -> Self {
        Self { entries: TRIM_ENTRIES_MAX / SETTLED_GROUPS_MAX, bytes: TRIM_BYTES_MAX / SETTLED_GROUPS_MAX }
    }

    fn of_piece(entries: usize) -> Self {
        Self { bytes: TRIM_BYTES_MAX, ..Self::of_entries(entries) }
    }
}

#[derive(Clone, Copy)]
struct Trimmable {
    totals: Totals,
    last: Position,
    more: bool,
    /// The oldest and the newest; `None` if the entries were not read.
    published_ms: Option<(u64, u64)>,
}

/// Reads entries from the floor on, in commit order over all partitions, until `stop` or `most` ends it.
async fn find(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    row: &Stream,
    most: Most,
    stop: Stop<'_>,
) -> LayerResult<Trimmable> {
    let lane = |partition| Start { lane: StreamRef { stream, partition }, after: row.floor };
    let starts: Vec<Start> = (0..row.partitions).map(lane).collect();
    let mut merge = Merge::open(tx, broker, &starts, most.entries.min(100)).await?;
    let mut bytes = 0;
    let mut found = Trimmable { totals: Totals::default(), last: row.floor, more: false, published_ms: None };
    while let Some(next) = merge.peek() {
        if let Stop::Before(is_end) = stop
            && is_end(next, &found.totals)
        {
            break;
        }
        if found.totals.entries >= most.entries as u64 || bytes >= most.bytes {
            found.more = true;
            break;
        }
        let Some(raw) = merge.next().await? else { break };
        bytes += raw.value.len();
        let (at_ms, value) = EntryValue::decode(raw.value)?;
        if let Stop::Young(is_young) = stop
            && is_young(at_ms)
        {
            break;
        }
        found.totals.add(value.bytes());
        found.last = raw.position;
        let (oldest, newest) = found.published_ms.unwrap_or((at_ms, at_ms));
        found.published_ms = Some((oldest.min(at_ms), newest.max(at_ms)));
    }
    Ok(found)
}

/// With a cause a subscriber may not have read the entries, so they count as trimmed.
async fn remove(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    mut row: Stream,
    found: Trimmable,
    cause: Option<LossCause>,
) -> LayerResult<Trimmed> {
    let Trimmable { totals: removed, last, more, published_ms } = found;
    if last <= row.floor {
        return Ok(Trimmed { floor: row.floor, more, removed: Totals::default() });
    }
    if removed.entries > 0 {
        for partition in 0..row.partitions {
            let of = StreamRef { stream, partition };
            let begin = keys::entry(broker, of, row.floor);
            let end = after(keys::entry(broker, of, last).as_ref());
            tx.clear_range(KeyRange::new(begin, end))?;
        }
        totals::remove(tx, broker, stream, removed)?;
    }
    if let Some(LossCause { reason, at_ms }) = cause {
        row.lose(last, removed.entries);
        if let Some((published_from_ms, published_to_ms)) = published_ms {
            let (first_at_ms, last_at_ms, entries) = (at_ms, at_ms, removed.entries);
            let loss =
                StreamLoss { reason, first_at_ms, last_at_ms, published_from_ms, published_to_ms, entries };
            losses::note(tx, broker, stream, loss).await?;
        }
        usage::add(tx, broker, Counter::TrimmedEntries, removed.entries)?;
        usage::add(tx, broker, Counter::TrimmedBytes, removed.bytes)?;
    } else {
        row.raise(last);
    }
    tx.set(keys::stream(broker, stream), row.encode())?;
    Ok(Trimmed { removed, floor: row.floor, more })
}
