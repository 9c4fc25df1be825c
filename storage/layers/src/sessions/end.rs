//! Ends sessions without their owner: after their expiry, after their pod's death, or for an operator.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, after};

use super::{leave, owned, owner, will};
use crate::{
    BrokerId, SessionId,
    due::{self, Due, DueKind},
    error::LayerResult,
    metering::{self, Level},
    position::Position,
    session_record::{self as record, Owned, SessionRecord, get},
    subscriptions::{self, StoredSubscription},
    tags,
    tuple::{Elements, Key},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// A will that fires: to be published in the same transaction.
    pub will: Option<Bytes>,
    pub ended: bool,
    /// [`SessionRecord::details`], if there is a will.
    pub details: Bytes,
    /// Subscriptions of an ended session.
    pub subscriptions: Vec<StoredSubscription>,
}

/// Fires a will or ends a session if it is still due: its client may have returned, or its expiry may have changed.
pub async fn settle(tx: &Transaction, due: &Due, now_ms: u64) -> LayerResult<Settled> {
    let id = SessionId { broker: due.broker, client: &due.client };
    let nothing = Settled::default();
    let Some(record) = record::get_without_cursor(tx, id, Read::Serializable).await? else {
        return Ok(nothing);
    };
    if !record.is_detached() {
        return Ok(nothing);
    }
    if record.is_expired(now_ms) {
        return remove(tx, id, &record, now_ms).await;
    }
    match will::get(tx, id, &record).await? {
        Some(will) if due.kind == DueKind::Will && will.fires_at_ms(&record) <= now_ms => {
            will::clear(tx, id, &record, &will).await?;
            Ok(Settled { will: Some(will.body), details: record.details, ..nothing })
        }
        _ => Ok(nothing),
    }
}

/// Ends the connection of a session of a dead pod, if the session is still the pod's.
pub async fn abandon(tx: &Transaction, id: SessionId<'_>, dead: &[u8], now_ms: u64) -> LayerResult<Settled> {
    let old = record::get_without_cursor(tx, id, Read::Serializable).await?;
    abandon_record(tx, id, old, dead, now_ms).await
}

/// [`abandon`] for a caller that has read the record, serializably and in this transaction.
pub async fn abandon_record(
    tx: &Transaction,
    id: SessionId<'_>,
    old: Option<SessionRecord>,
    dead: &[u8],
    now_ms: u64,
) -> LayerResult<Settled> {
    match old {
        Some(mut record) if record.owner == dead && !record.is_detached() => {
            // The dead pod may have sent every message that is committed by now.
            record.maybe_sent = Position::end_of(tx.read_version().await?);
            leave(Owned { tx, id, record }, owned::by_death(now_ms)).await
        }
        // The row is outdated: the pod no longer has the session.
        _ => owner::remove(tx, dead, id).map(|()| Settled::default()),
    }
}

/// Ends a session whoever owns it, for an operator, and returns its record and the will: to be published in the same
/// transaction.
pub async fn purge(
    tx: &Transaction,
    id: SessionId<'_>,
) -> LayerResult<Option<(SessionRecord, Option<Bytes>)>> {
    match get(tx, id, Read::Serializable).await? {
        Some(record) => {
            let removed = remove(tx, id, &record, tx.unix_ms()).await?;
            Ok(Some((record, removed.will)))
        }
        None => Ok(None),
    }
}

/// Lists up to `limit` sessions of a broker after `from`, in order of client ids and without their cursors, as a
/// snapshot read.
pub async fn list(
    tx: &Transaction,
    broker: BrokerId,
    from: Option<&[u8]>,
    limit: usize,
) -> LayerResult<Vec<(Bytes, SessionRecord)>> {
    list_beginning_with(tx, broker, b"", from, limit).await
}

/// The same for sessions whose client id begins with `start`, reading no others.
pub async fn list_beginning_with(
    tx: &Transaction,
    broker: BrokerId,
    start: &[u8],
    from: Option<&[u8]>,
    limit: usize,
) -> LayerResult<Vec<(Bytes, SessionRecord)>> {
    let prefix = record::sessions(broker);
    let KeyRange { begin, end } = prefix.beginning_with(start);
    let begin = from.map_or(begin.clone(), |from| after(prefix.clone().bytes(from).as_ref()).max(begin));
    if begin >= end {
        return Ok(Vec::new());
    }
    let range = KeyRange::new(begin, end);
    let mut sessions = Vec::new();
    for row in tx.range(range, RangeOptions::first(limit).snapshot()).await?.items {
        let client = Elements::after(&prefix, &row.key)?.bytes()?.into();
        sessions.push((client, record::decode(row.value)?));
    }
    Ok(sessions)
}

pub(super) async fn remove(
    tx: &Transaction,
    id: SessionId<'_>,
    record: &SessionRecord,
    now_ms: u64,
) -> LayerResult<Settled> {
    end_offline_count(tx, id, record, now_ms)?;
    let will = will::take(tx, id, record).await?;
    unschedule_expiry(tx, id, record)?;
    if !record.is_detached() {
        owner::remove(tx, &record.owner, id)?;
    }
    let subscriptions = subscriptions::clear(tx, id).await?;
    for packet_ids in [tags::INBOUND, tags::OUTBOUND] {
        tx.clear_range(Key::new(id.broker, packet_ids).bytes(id.client).children())?;
    }
    record::clear(tx, id)?;
    Ok(Settled { will, ended: true, details: record.details.clone(), subscriptions })
}

/// Ends the count of an offline session: at its expiry, even if that is noticed later.
pub(super) fn end_offline_count(
    tx: &Transaction,
    id: SessionId<'_>,
    record: &SessionRecord,
    now_ms: u64,
) -> LayerResult<()> {
    if !record.is_detached() {
        return Ok(());
    }
    let until_ms = record.expires_at_ms().map_or(now_ms, |at_ms| at_ms.min(now_ms));
    metering::change(tx, id.broker, Level::Sessions, -1, until_ms)
}

pub(super) fn schedule_expiry(
    tx: &Transaction,
    id: SessionId<'_>,
    record: &SessionRecord,
) -> LayerResult<()> {
    match record.expires_at_ms() {
        Some(at_ms) => due::schedule(tx, &Due::new(id, DueKind::Expiry, at_ms)),
        None => Ok(()),
    }
}

pub(super) fn unschedule_expiry(
    tx: &Transaction,
    id: SessionId<'_>,
    record: &SessionRecord,
) -> LayerResult<()> {
    match record.expires_at_ms() {
        Some(at_ms) => due::cancel(tx, &Due::new(id, DueKind::Expiry, at_ms)),
        None => Ok(()),
    }
}
