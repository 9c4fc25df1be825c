//! Reads streams of a broker from the store, for the API: what waits for which sessions.

use std::cmp::Reverse;

use bytes::Bytes;
use millrace_control::{
    GroupBacklog, LiveError, Page, PageRequest, StreamBacklog, StreamBacklogDetails, StreamSession,
};
use millrace_layers::limits::NAME_BYTES_MAX;
use millrace_layers::sessions::{self, SessionId};
use millrace_layers::streams::{self, StreamId, StreamSource, WaitingMessages};
use millrace_layers::{BrokerId, GroupedFilter, LayerResult, Position, Positions, index, subscriptions};
use millrace_storage::{Read, Transaction};

use super::live::LiveEdge;
use super::sessions::{COUNTED_IN_LIST_MAX, counted, state};
use crate::text::name;

/// Queued messages that are counted for the group of a stream shown alone.
const WAITING_MAX: usize = 10_000;
/// Sessions that one request examines, [`SESSIONS_AT_ONCE`] in a transaction.
const SESSIONS_MAX: usize = 1_000;
const SESSIONS_AT_ONCE: usize = 50;
/// Sessions that the answer names.
const NAMED_MAX: usize = 100;

pub(super) async fn list(
    edge: &LiveEdge,
    broker: BrokerId,
    page: &PageRequest,
) -> Result<Page<StreamBacklog>, LiveError> {
    let after = page.after.as_deref().map(cursor).transpose()?;
    // One row more than requested shows whether there are more.
    let wanted = page.limit + 1;
    let mut found: Vec<StreamId> = Vec::new();
    let mut last = after;
    while found.len() < wanted {
        let left = wanted - found.len();
        let rows = edge.run(|tx| async move { streams::list(&tx, broker, last, left).await }).await?;
        let Some((id, _)) = rows.last() else { break };
        last = Some(*id);
        found.extend(rows.into_iter().map(|(id, _)| id));
    }
    let more = found.len() > page.limit;
    found.truncate(page.limit);
    let next = found.last().filter(|_| more).map(|id| id.to_be_bytes().to_vec());
    let (mut items, mut left) = (Vec::with_capacity(found.len()), COUNTED_IN_LIST_MAX);
    for id in found {
        let max = counted(left);
        // A stream whose last session left meanwhile is left out.
        if let Some(stream) = edge.run(|tx| async move { find(&tx, broker, id, max).await }).await? {
            let waiting = stream.group.as_ref().map_or(0, |group| group.waiting_messages);
            left = left.saturating_sub(usize::try_from(waiting).unwrap_or(max));
            items.push(stream);
        }
    }
    Ok(Page { items, next })
}

fn cursor(bytes: &[u8]) -> Result<StreamId, LiveError> {
    let what = "is not a cursor of this list: leave it out for the first page";
    let wrong = |_| LiveError::Invalid { field: "cursor", what: what.into() };
    bytes.try_into().map(StreamId::from_be_bytes).map_err(wrong)
}

pub(super) async fn show(
    edge: &LiveEdge,
    broker: BrokerId,
    filter: &str,
) -> Result<StreamBacklogDetails, LiveError> {
    let missing = LiveError::NotFound("stream");
    if filter.len() > NAME_BYTES_MAX {
        return Err(missing);
    }
    let parsed = GroupedFilter::parse(filter.as_bytes());
    let indexed = edge.run(|tx| async move { index::streams(&tx, broker, parsed.filter).await }).await?;
    let id = indexed.into_iter().find(|one| one.group == parsed.group).map(|one| one.stream);
    let Some(id) = id else { return Err(missing) };
    let found = edge.run(|tx| async move { find(&tx, broker, id, WAITING_MAX).await }).await?;
    let Some(stream) = found else { return Err(missing) };
    let of = ShownStream {
        id,
        filter: Bytes::copy_from_slice(filter.as_bytes()),
        is_shared: stream.group.is_some(),
    };
    let (mut sessions, is_cut) = sessions_of(edge, broker, &of).await?;
    sessions.sort_by(|a, b| {
        (Reverse(a.waiting_messages), &a.client_id).cmp(&(Reverse(b.waiting_messages), &b.client_id))
    });
    let incomplete = is_cut || sessions.len() > NAMED_MAX;
    sessions.truncate(NAMED_MAX);
    Ok(StreamBacklogDetails { stream, sessions, incomplete })
}

async fn find(
    tx: &Transaction,
    broker: BrokerId,
    id: StreamId,
    waiting_max: usize,
) -> LayerResult<Option<StreamBacklog>> {
    let Some(row) = streams::stream(tx, broker, id, Read::Snapshot).await? else { return Ok(None) };
    let totals = streams::totals(tx, broker, id).await?;
    let source = [StreamSource { stream: id, since: 0 }];
    let oldest = streams::waiting(tx, broker, &source, Position::MIN, &Positions::default(), 1).await?;
    let group = match GroupedFilter::parse(&row.name).group.is_empty() {
        true => None,
        false => {
            let progress = streams::progress(tx, broker, id).await?;
            let (cursor, acknowledged) = (progress.cursor, &progress.acknowledged);
            let waiting = streams::waiting(tx, broker, &source, cursor, acknowledged, waiting_max).await?;
            Some(group_backlog(&waiting))
        }
    };
    Ok(Some(StreamBacklog {
        filter: name(&row.name),
        subscriptions: subscriptions::subscribers(tx, broker, id).await?,
        stored_messages: totals.entries,
        stored_bytes: totals.bytes,
        oldest_stored_at_ms: oldest.oldest_at_ms,
        group,
        trimmed_messages: row.missed_since(Position::MIN).at_most,
    }))
}

fn group_backlog(waiting: &WaitingMessages) -> GroupBacklog {
    GroupBacklog {
        waiting_messages: waiting.totals.entries,
        waiting_bytes: waiting.totals.bytes,
        waiting_is_more: waiting.more,
        oldest_waiting_at_ms: waiting.oldest_at_ms,
    }
}

struct ShownStream {
    id: StreamId,
    filter: Bytes,
    is_shared: bool,
}

/// The flag is true when there may be more sessions than one request examines.
async fn sessions_of(
    edge: &LiveEdge,
    broker: BrokerId,
    of: &ShownStream,
) -> Result<(Vec<StreamSession>, bool), LiveError> {
    let (mut found, mut looked_at, mut left) = (Vec::new(), 0, COUNTED_IN_LIST_MAX);
    let mut after: Option<Vec<u8>> = None;
    loop {
        let from = after.as_deref();
        let page = edge.run(|tx| async move {
            let page = sessions::list(&tx, broker, from, SESSIONS_AT_ONCE).await?;
            let last = page.last().map(|(client, _)| client.to_vec());
            let (mut subscribed, mut left, count) = (Vec::new(), left, page.len());
            for (client, _) in page {
                let id = SessionId { broker, client: &client };
                let session = subscriber(&tx, id, of, counted(left)).await?;
                let waiting = session.as_ref().map_or(0, |session| session.waiting_messages);
                left = left.saturating_sub(usize::try_from(waiting).unwrap_or(usize::MAX));
                subscribed.extend(session);
            }
            Ok((subscribed, last, count, left))
        });
        let (subscribed, last, count, remains) = page.await?;
        if last.is_none() {
            return Ok((found, false));
        }
        (after, looked_at, left) = (last, looked_at + count, remains);
        found.extend(subscribed);
        if looked_at >= SESSIONS_MAX {
            return Ok((found, true));
        }
    }
}

/// `None`: the session does not subscribe to the filter, or has ended meanwhile.
async fn subscriber(
    tx: &Transaction,
    id: SessionId<'_>,
    of: &ShownStream,
    waiting_max: usize,
) -> LayerResult<Option<StreamSession>> {
    // One row, because a session may have a thousand other subscriptions.
    let subscription = subscriptions::find(tx, id, &of.filter).await?;
    let Some(since) = subscription.filter(|one| one.stream == of.id).map(|one| one.since) else {
        return Ok(None);
    };
    // The list of sessions has no cursors.
    let Some(record) = sessions::get(tx, id, Read::Snapshot).await? else { return Ok(None) };
    let waiting = match of.is_shared {
        true => WaitingMessages::default(),
        false => {
            let source = [StreamSource { stream: of.id, since }];
            streams::waiting(tx, id.broker, &source, record.cursor, &record.acknowledged, waiting_max).await?
        }
    };
    Ok(Some(StreamSession {
        client_id: name(id.client),
        state: state(&record),
        waiting_messages: waiting.totals.entries,
        waiting_is_more: waiting.more,
        oldest_waiting_at_ms: waiting.oldest_at_ms,
    }))
}
