//! Attaches a connection to its session, and fences off the session's former owner.

use bytes::Bytes;
use millrace_storage::{Read, Transaction};

use super::{
    end::{self, unschedule_expiry},
    owner,
    will::{self, PendingWill},
};
use crate::{
    SessionId,
    error::LayerResult,
    name,
    position::Position,
    session_record::{self as record, SessionRecord},
    subscriptions::{self, StoredSubscription},
};

#[derive(Clone, Debug)]
pub struct Attach {
    pub owner: Bytes,
    pub clean: bool,
    /// 0 ends the session with the connection.
    pub expiry_s: u32,
    pub now_ms: u64,
    pub will: Option<PendingWill>,
    /// Data for the next owner; `None` leaves the data as it is.
    pub details: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Later writes of the owner must show this epoch.
    pub epoch: u64,
    /// The session continues, so CONNACK says session present.
    pub present: bool,
    /// There was a session; without `present` it has ended.
    pub existed: bool,
    pub record: SessionRecord,
    pub subscriptions: Vec<StoredSubscription>,
    /// Pod and epoch of a connection that must be closed, because this one replaces it.
    pub replaced: Option<(Bytes, u64)>,
    /// The will of the earlier connection, if it fires: to be published in the same transaction.
    pub will: Option<Bytes>,
}

/// Takes over a session for a connection, or makes one, and fences off the former owner.
///
/// # Errors
/// [`crate::LayerError::NameTooLong`], or the store's.
pub async fn attach(tx: &Transaction, id: SessionId<'_>, request: Attach) -> LayerResult<Attached> {
    let old = record::get(tx, id, Read::Serializable).await?;
    take_over(tx, id, old, request).await
}

/// [`attach`] for a caller that has read the session's record, serializably and in this transaction.
///
/// # Errors
/// As [`attach`].
pub async fn take_over(
    tx: &Transaction,
    id: SessionId<'_>,
    old: Option<SessionRecord>,
    request: Attach,
) -> LayerResult<Attached> {
    name::check(id.client)?;
    let existed = old.is_some();
    let goes_on = |old: &SessionRecord| !request.clean && !old.is_expired(request.now_ms);
    let present = old.as_ref().is_some_and(goes_on);
    // Before all writes, because a client library that answers reads from its own writes is slower. Serializably, because the
    // former owner may be changing subscriptions, and those writes do not change the record.
    let subscriptions = if present { subscriptions::read(tx, id).await? } else { Vec::new() };
    let epoch = next_epoch(tx, old.as_ref()).await?;
    let fired = match &old {
        Some(old) => leave(tx, id, old, present, request.now_ms).await?,
        None => None,
    };
    let replaced = old.as_ref().filter(|old| !old.is_detached()).map(|old| (old.owner.clone(), old.epoch));
    let kept = old.filter(|_| present);
    // A former owner that did not detach may have sent every message that is committed by now.
    let maybe_sent = match &kept {
        Some(kept) if !kept.is_detached() => Position::end_of(tx.read_version().await?),
        Some(kept) if kept.cursor < kept.maybe_sent => kept.maybe_sent,
        _ => Position::MIN,
    };
    let record = SessionRecord {
        epoch,
        owner: request.owner,
        expiry_s: request.expiry_s,
        detached_at_ms: 0,
        cursor: kept.as_ref().map_or(Position::MIN, |kept| kept.cursor),
        acknowledged: kept.as_ref().map(|kept| kept.acknowledged.clone()).unwrap_or_default(),
        maybe_sent,
        has_will: request.will.is_some(),
        details: request.details.or(kept.map(|kept| kept.details)).unwrap_or_default(),
    };
    record::set(tx, id, &record)?;
    owner::add(tx, &record.owner, id)?;
    if let Some(will) = &request.will {
        will::add(tx, id, will).await?;
    }
    Ok(Attached { epoch, present, existed, record, subscriptions, replaced, will: fired })
}

/// Ends the former connection, or the wait for one, or the whole session.
async fn leave(
    tx: &Transaction,
    id: SessionId<'_>,
    old: &SessionRecord,
    goes_on: bool,
    now_ms: u64,
) -> LayerResult<Option<Bytes>> {
    if !goes_on {
        return Ok(end::remove(tx, id, old, now_ms).await?.will);
    }
    let fired = match will::get(tx, id, old).await? {
        Some(will) => {
            will::clear(tx, id, old, &will).await?;
            // A client that returns within the delay prevents its will.
            let fires = if old.is_detached() { will.fires_at_ms(old) <= now_ms } else { will.delay_s == 0 };
            fires.then_some(will.body)
        }
        None => None,
    };
    end::end_offline_count(tx, id, old, now_ms)?;
    unschedule_expiry(tx, id, old)?;
    if !old.is_detached() {
        owner::remove(tx, &old.owner, id)?;
    }
    Ok(fired)
}

/// Larger than all earlier epochs, also of an ended session with this name: the read version is later than that of
/// every transaction that chose an epoch.
async fn next_epoch(tx: &Transaction, old: Option<&SessionRecord>) -> LayerResult<u64> {
    let version = tx.read_version().await?;
    Ok(old.map_or(0, |old| old.epoch + 1).max(version).max(1))
}
