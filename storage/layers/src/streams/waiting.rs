//! Counts the entries after a cursor, for inspection, without reading bodies that are stored apart.

use millrace_storage::Transaction;

use super::{
    append::EntryValue,
    merge::Merge,
    read::{StreamBatch, StreamSource, open},
    row::Missed,
    totals::Totals,
};
use crate::{BrokerId, error::LayerResult, position::Position, positions::Positions};

const PAGE: usize = 1_000;
/// Acknowledged entries in a row that are read before the read continues behind their range, and the rows it then asks for.
const SKIP_AFTER: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingMessages {
    pub totals: Totals,
    /// When the first of them was published, unix milliseconds.
    pub oldest_at_ms: Option<u64>,
    /// Whether there are more messages than the limit.
    pub more: bool,
    /// Entries that were trimmed before they were read, in all sources.
    pub missed: Missed,
}

/// Counts up to `limit` messages after `cursor` in `sources` that are not in `acknowledged`. A message that stands in several streams
/// counts once. The read is a snapshot, so it never conflicts.
pub async fn waiting(
    tx: &Transaction,
    broker: BrokerId,
    sources: &[StreamSource],
    cursor: Position,
    acknowledged: &Positions,
    limit: usize,
) -> LayerResult<WaitingMessages> {
    let mut batch = StreamBatch::default();
    let (mut starts, _) = open(tx, broker, sources, cursor, &mut batch).await?;
    let mut merge = Merge::open(tx, broker, &starts, limit.min(PAGE)).await?;
    let mut waiting = WaitingMessages::default();
    for (_, missed) in batch.missed {
        waiting.missed.at_least += missed.at_least;
        waiting.missed.at_most += missed.at_most;
    }
    let (mut last, mut skipped) = (None, 0);
    while let Some(raw) = merge.next().await? {
        if acknowledged.contains(raw.position) {
            skipped += 1;
            if skipped == SKIP_AFTER {
                let behind = acknowledged.skip(raw.position);
                starts.iter_mut().for_each(|start| start.after = start.after.max(behind));
                (merge, skipped) = (Merge::open(tx, broker, &starts, SKIP_AFTER).await?, 0);
            }
            continue;
        }
        if last == Some(raw.position) {
            continue;
        }
        skipped = 0;
        if waiting.totals.entries >= limit as u64 {
            waiting.more = true;
            break;
        }
        last = Some(raw.position);
        let (at_ms, value) = EntryValue::decode(raw.value)?;
        waiting.totals.add(value.bytes());
        waiting.oldest_at_ms.get_or_insert(at_ms);
    }
    Ok(waiting)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        limits::CHUNK_BYTES,
        sessions::fence,
        streams::{LossCause, LossReason, NewEntry, ReadLimit, StreamRef, append, read, trim_by_size},
        subscriptions::{StoredOptions, subscribe},
        testing::{BROKER, RoundTrips, attached, database, id, request, run},
    };

    #[test]
    fn what_waits_is_counted_once_and_not_beyond_the_limit() {
        let database = database();
        let epoch = attached(&database, "c", &request("pod", 1)).epoch;
        let subscribed = run(&database, async |tx| {
            let owned = fence(tx, id("c"), epoch).await?;
            let mut streams = Vec::new();
            for filter in [&b"a/+"[..], b"a/b"] {
                streams.push(subscribe(&owned, filter, StoredOptions::default()).await?);
            }
            Ok(streams)
        });
        let both: Vec<_> =
            subscribed.iter().map(|one| StreamRef { stream: one.stream, partition: 0 }).collect();
        let sources: Vec<_> =
            subscribed.iter().map(|one| StreamSource { stream: one.stream, since: one.since }).collect();
        for (number, bytes) in [1usize, 10, CHUNK_BYTES + 1].into_iter().enumerate() {
            let publish =
                NewEntry { number: 0, now_ms: 100 + number as u64, body: &Bytes::from(vec![7; bytes]) };
            run(&database, async |tx| append(tx, BROKER, &both, publish));
        }
        let count = |cursor, acknowledged: &[Position], limit| {
            run(&database, async |tx| {
                waiting(tx, BROKER, &sources, cursor, &acknowledged.iter().copied().collect(), limit).await
            })
        };
        let all = count(Position::MIN, &[], 10);
        let totals = Totals { entries: 3, bytes: 11 + CHUNK_BYTES as u64 + 1 };
        assert_eq!(all, WaitingMessages { totals, oldest_at_ms: Some(100), ..WaitingMessages::default() });
        assert!(count(Position::MIN, &[], 2).more && !count(Position::MIN, &[], 3).more);

        let limit = ReadLimit { entries: 9, bytes: 1 << 20 };
        let entries =
            run(&database, async |tx| read(tx, BROKER, &sources, Position::MIN, limit).await).entries;
        let rest = count(entries[0].position, &[entries[2].position], 10);
        assert_eq!((rest.totals, rest.oldest_at_ms), (Totals { entries: 1, bytes: 10 }, Some(101)));

        for one in &subscribed {
            run(&database, async |tx| {
                let cause = LossCause { reason: LossReason::Size, at_ms: 1 };
                trim_by_size(tx, BROKER, one.stream, Totals::default(), 100, cause).await
            });
        }
        let trimmed = count(Position::MIN, &[], 10);
        assert_eq!((trimmed.totals.entries, trimmed.missed.at_most), (0, 6));
    }

    /// One message stays unacknowledged while the ones after it are acknowledged.
    #[test]
    fn a_long_range_of_acknowledged_messages_is_not_read() {
        let database = database();
        let epoch = attached(&database, "c", &request("pod", 1)).epoch;
        let one = run(&database, async |tx| {
            subscribe(&fence(tx, id("c"), epoch).await?, b"a", StoredOptions::default()).await
        });
        let stream = [StreamRef { stream: one.stream, partition: 0 }];
        for number in 0..5 {
            run(&database, async |tx| {
                for number in number * 1_000..(number + 1) * 1_000 {
                    let body = Bytes::from_static(b"x");
                    append(tx, BROKER, &stream, NewEntry { number, now_ms: number.into(), body: &body })?;
                }
                Ok(())
            });
        }
        let sources = [StreamSource { stream: one.stream, since: one.since }];
        let limit = ReadLimit { entries: 5_000, bytes: 1 << 20 };
        let entries =
            run(&database, async |tx| read(tx, BROKER, &sources, Position::MIN, limit).await).entries;
        let mut acknowledged = Positions::default();
        acknowledged.add_range(entries[0].position, entries[4_996].position);
        let (trips, counted) = RoundTrips::of(&database);
        let found =
            run(&counted, async |tx| waiting(tx, BROKER, &sources, Position::MIN, &acknowledged, 10).await);
        assert_eq!((found.totals.entries, found.more, found.oldest_at_ms), (4, false, Some(0)));
        assert!(trips.take() < 15, "a page has ten entries");
    }
}
