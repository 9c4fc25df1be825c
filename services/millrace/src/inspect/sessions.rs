//! Lists, shows and purges sessions.

use bytes::Bytes;
use millrace_edge::stored;
use millrace_layers::{
    BrokerId,
    inspection::{self, StoredSession},
    qos2::{self, Direction},
    sessions::{self, EXPIRY_NEVER, SessionId, SessionRecord},
    subscriptions::{self, NO_STREAM},
};
use millrace_storage::{Read, Transaction, TransactionOption};

use super::open_folder::{AnswerError, OpenFolder, RowSink};
use super::rows::{
    InspectRow, RowState, SessionDetailsRow, SessionPurged, SessionRow, SubscriptionRow, WillRow,
};
use crate::clock::now_ms;
use crate::text::{self, name};

/// Queued messages that are counted in a session.
const WAITING_MAX: usize = 10_000;

const PAGE: usize = 100;

pub(super) fn list(
    opened: &OpenFolder,
    broker: BrokerId,
    after: Option<&str>,
    limit: usize,
    out: RowSink<'_>,
) -> Result<Option<String>, AnswerError> {
    let mut last = after.map(|after| after.as_bytes().to_vec());
    let mut left = limit;
    loop {
        let page = page(opened, broker, last.as_deref(), PAGE.min(left + 1))?;
        if page.is_empty() {
            return Ok(None);
        }
        for (client, _) in page {
            if left == 0 {
                return Ok(last.map(|last| name(&last)));
            }
            let id = SessionId { broker, client: &client };
            // A session that ended meanwhile is skipped.
            if let Some(found) =
                opened.run(|tx| async move { inspection::session(&tx, id, WAITING_MAX).await })?
            {
                out(InspectRow::Session(summary(opened, &client, &found)))?;
                left -= 1;
            }
            last = Some(client.to_vec());
        }
    }
}

pub(super) fn show(
    opened: &OpenFolder,
    broker: BrokerId,
    client: &str,
    out: RowSink<'_>,
) -> Result<(), AnswerError> {
    let id = SessionId { broker, client: client.as_bytes() };
    let details = opened.run(|tx| async move {
        let Some(found) = inspection::session(&tx, id, WAITING_MAX).await? else { return Ok(None) };
        let ids = async |direction| {
            let ids = qos2::list(&tx, id, direction, Read::Snapshot).await?;
            Ok::<_, millrace_layers::LayerError>(ids.into_iter().map(|(id, _)| id).collect())
        };
        Ok(Some(SessionDetailsRow {
            epoch: found.record.epoch,
            cursor: format!("{:?}", found.record.cursor),
            acknowledged_after_cursor: found.record.acknowledged.len(),
            missed_at_least: found.waiting.missed.at_least,
            missed_at_most: found.waiting.missed.at_most,
            will: inspection::will(&tx, id)
                .await?
                .map(|will| WillRow { delay_s: will.delay_s, bytes: will.bytes }),
            filters: found.subscriptions.iter().map(subscription).collect(),
            inbound_packet_ids: ids(Direction::Inbound).await?,
            outbound_packet_ids: ids(Direction::Outbound).await?,
            session: summary(opened, id.client, &found),
        }))
    })?;
    out(InspectRow::SessionDetails(Box::new(details.ok_or_else(|| not_found(client))?)))
}

pub(super) fn purge(
    opened: &OpenFolder,
    broker_name: &str,
    broker: BrokerId,
    client: &str,
    out: RowSink<'_>,
) -> Result<(), AnswerError> {
    let id = SessionId { broker, client: client.as_bytes() };
    // A running server publishes the will, so only a purge in a stopped server's store loses it.
    let purged = match &opened.live {
        Some(live) => live.purge_session(broker_name, client).map_err(AnswerError::Failed)?.then_some(false),
        None => opened.run(|tx| async move { end(&tx, id).await })?.map(|(_, will)| will.is_some()),
    };
    let will_lost = purged.ok_or_else(|| not_found(client))?;
    out(InspectRow::SessionPurged(SessionPurged { client_id: client.into(), will_lost }))
}

pub(super) fn purge_expired(
    opened: &OpenFolder,
    broker_name: &str,
    broker: BrokerId,
    out: RowSink<'_>,
) -> Result<(), AnswerError> {
    let (mut last, now_ms) = (None, now_ms());
    loop {
        let page = page(opened, broker, last.as_deref(), PAGE)?;
        let Some((client, _)) = page.last() else { return Ok(()) };
        last = Some(client.to_vec());
        for (client, _) in page.iter().filter(|(_, record)| record.is_expired(now_ms)) {
            match &opened.live {
                Some(_) => purge(opened, broker_name, broker, &name(client), out)?,
                None => {
                    let id = SessionId { broker, client };
                    let purged = opened.run(|tx| async move { end(&tx, id).await })?;
                    let will_lost = purged.is_some_and(|(_, will)| will.is_some());
                    out(InspectRow::SessionPurged(SessionPurged { client_id: name(client), will_lost }))?;
                }
            }
        }
    }
}

async fn end(
    tx: &Transaction,
    id: SessionId<'_>,
) -> millrace_layers::LayerResult<Option<(SessionRecord, Option<Bytes>)>> {
    tx.set_option(TransactionOption::FreesSpace);
    sessions::purge(tx, id).await
}

fn page(
    opened: &OpenFolder,
    broker: BrokerId,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<(Bytes, SessionRecord)>, AnswerError> {
    opened.run(|tx| async move { sessions::list(&tx, broker, after, limit).await })
}

fn summary(opened: &OpenFolder, client: &[u8], found: &StoredSession) -> SessionRow {
    let StoredSession { record, subscriptions, waiting } = found;
    let state = match record {
        record if record.is_expired(now_ms()) => RowState::Expired,
        record if record.is_detached() => RowState::Offline,
        _ if opened.live.is_none() => RowState::CutOff,
        _ => RowState::Connected,
    };
    SessionRow {
        client_id: name(client),
        state,
        offline_since_ms: record.is_detached().then_some(record.detached_at_ms),
        expiry_s: (record.expiry_s != EXPIRY_NEVER).then_some(record.expiry_s),
        expires_at_ms: record.expires_at_ms(),
        subscriptions: subscriptions.len(),
        waiting: waiting.totals.entries,
        waiting_is_more: waiting.more,
        waiting_bytes: waiting.totals.bytes,
        oldest_waiting_at_ms: waiting.oldest_at_ms,
    }
}

fn subscription(of: &subscriptions::StoredSubscription) -> SubscriptionRow {
    let options = stored::subscription_options(of.options.bits);
    SubscriptionRow {
        filter: name(&of.filter),
        qos: options.qos,
        no_local: options.no_local,
        retain_as_published: options.retain_as_published,
        retain_handling: options.retain_handling,
        identifier: of.options.identifier,
        stream: (of.stream != NO_STREAM).then_some(of.stream),
    }
}

fn not_found(client: &str) -> AnswerError {
    let client = text::escape(client.as_bytes());
    AnswerError::Failed(format!(
        "there is no session of the client \"{client}\": `millrace sessions list` shows them"
    ))
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
