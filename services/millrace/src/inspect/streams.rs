//! Lists, shows and purges streams. A running server may write to the store meanwhile, so each transaction is short and sees
//! another state.

use millrace_edge::stored;
use millrace_layers::{
    BrokerId, GroupedFilter, Position, Positions, index,
    streams::{self, LossCause, LossReason, ReadLimit, StreamId, StreamSource, Totals},
    subscriptions,
};
use millrace_storage::{Read, Transaction, TransactionOption};

use super::open_folder::{AnswerError, OpenFolder, RowSink};
use super::rows::{EntryRow, InspectRow, StreamDetails, StreamRow};
use crate::clock::now_ms;
use crate::text::{self, name};

const PAGE: usize = 100;

const HEAD_BYTES: usize = 48;

const READ_BYTES: usize = 1 << 20;

const TRIM_ENTRIES: usize = 1_000;

/// Sorts each page by filter, because the order of ids means nothing to people.
pub(super) fn list(
    opened: &OpenFolder,
    broker: BrokerId,
    after: Option<StreamId>,
    limit: usize,
    out: RowSink<'_>,
) -> Result<Option<String>, AnswerError> {
    let (mut last, mut left) = (after, limit);
    loop {
        let wanted = PAGE.min(left + 1);
        let mut page = opened.run(|tx| async move { streams::list(&tx, broker, last, wanted).await })?;
        if page.is_empty() {
            return Ok(None);
        }
        let more = page.len() > left;
        page.truncate(left);
        left -= page.len();
        last = page.last().map_or(last, |(id, _)| Some(*id));
        page.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        for (id, _) in page {
            if let Some((row, _)) = opened.run(|tx| async move { find(&tx, broker, id).await })? {
                out(InspectRow::Stream(row))?;
            }
        }
        if more {
            return Ok(last.map(|last| last.to_string()));
        }
    }
}

pub(super) fn show(
    opened: &OpenFolder,
    broker: BrokerId,
    filter: &str,
    messages: usize,
    out: RowSink<'_>,
) -> Result<(), AnswerError> {
    let id = id_of(opened, broker, filter)?;
    let found = opened.run(|tx| async move { find(&tx, broker, id).await })?;
    let (stream, floor) = found.ok_or_else(|| not_found(filter))?;
    let (mut first, mut cursor): (Vec<EntryRow>, _) = (Vec::new(), Position::MIN);
    while first.len() < messages {
        let limit = ReadLimit { entries: messages - first.len(), bytes: READ_BYTES };
        // From 0 on: all entries, not only those since a subscription.
        let source = [StreamSource { stream: id, since: 0 }];
        let batch =
            opened.run(|tx| async move { streams::read(&tx, broker, &source, cursor, limit).await })?;
        cursor = batch.through;
        first.extend(batch.entries.iter().map(entry));
        if !batch.more {
            break;
        }
    }
    out(InspectRow::StreamDetails(Box::new(StreamDetails { stream, floor: format!("{floor:?}"), first })))
}

/// Removes the messages that are there now; messages published meanwhile stay.
pub(super) fn purge(
    opened: &OpenFolder,
    broker: BrokerId,
    filter: &str,
    out: RowSink<'_>,
) -> Result<(), AnswerError> {
    let id = id_of(opened, broker, filter)?;
    let at_ms = now_ms();
    let (before_ms, cause) = (at_ms + 1, LossCause { reason: LossReason::Purged, at_ms });
    let mut removed = Totals::default();
    loop {
        let trimmed = opened.run(|tx| async move {
            // A full disk must still accept a purge, which makes room.
            tx.set_option(TransactionOption::FreesSpace);
            streams::trim_by_age(&tx, broker, id, before_ms, TRIM_ENTRIES, cause).await
        })?;
        removed.entries += trimmed.removed.entries;
        removed.bytes += trimmed.removed.bytes;
        if !trimmed.more {
            break;
        }
    }
    out(InspectRow::StreamPurged { filter: filter.into(), messages: removed.entries, bytes: removed.bytes })
}

fn id_of(opened: &OpenFolder, broker: BrokerId, filter: &str) -> Result<StreamId, AnswerError> {
    let parsed = GroupedFilter::parse(filter.as_bytes());
    let found = opened.run(|tx| async move { index::streams(&tx, broker, parsed.filter).await })?;
    let of_group = found.into_iter().find(|indexed| indexed.group == parsed.group);
    of_group.map(|indexed| indexed.stream).ok_or_else(|| not_found(filter))
}

fn entry(entry: &streams::StreamEntry) -> EntryRow {
    let known = stored::entry(&entry.body);
    EntryRow {
        position: format!("{:?}", entry.position),
        at_ms: entry.at_ms,
        bytes: entry.body.len(),
        head: text::head(known.as_ref().map_or(&entry.body, |(_, message)| &message.payload), HEAD_BYTES),
        topic: known.map(|(topic, _)| topic),
    }
}

async fn find(
    tx: &Transaction,
    broker: BrokerId,
    id: StreamId,
) -> millrace_layers::LayerResult<Option<(StreamRow, Position)>> {
    let Some(row) = streams::stream(tx, broker, id, Read::Snapshot).await? else { return Ok(None) };
    let totals = streams::totals(tx, broker, id).await?;
    let source = [StreamSource { stream: id, since: 0 }];
    let stream = StreamRow {
        filter: name(&row.name),
        id,
        subscribers: subscriptions::subscribers(tx, broker, id).await?,
        messages: totals.entries,
        bytes: totals.bytes,
        partitions: row.partitions,
        oldest_at_ms: streams::waiting(tx, broker, &source, Position::MIN, &Positions::default(), 1)
            .await?
            .oldest_at_ms,
    };
    Ok(Some((stream, row.floor)))
}

fn not_found(filter: &str) -> AnswerError {
    let filter = text::escape(filter.as_bytes());
    AnswerError::Failed(format!(
        "there is no stream of \"{filter}\": no session that stays subscribes to that filter with QoS 1 or 2"
    ))
}
