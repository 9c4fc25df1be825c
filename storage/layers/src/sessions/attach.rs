//! A connection takes a session.

use bytes::Bytes;
use millrace_storage::{Read, Transaction};

use super::{
    Record, SessionId,
    end::{self, unschedule_expiry},
    owner, record,
    will::{self, Will},
};
use crate::{
    error::Result,
    name,
    position::Position,
    subscriptions::{self, Subscription},
};

/// What a connection wants.
#[derive(Clone, Debug)]
pub struct Attach {
    /// The pod that has the connection.
    pub owner: Bytes,
    /// Whether the session begins anew.
    pub clean: bool,
    /// Seconds that it stays without a connection; 0 ends it with the connection.
    pub expiry_s: u32,
    /// The time, in unix milliseconds.
    pub now_ms: u64,
    /// The will of this connection.
    pub will: Option<Will>,
    /// What the owner wants to find again; `None` keeps what is there.
    pub details: Option<Bytes>,
}

/// A session that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The epoch that all further writes must show.
    pub epoch: u64,
    /// Whether there was a session to go on with.
    pub present: bool,
    /// Whether there was a session at all: one that is not present was ended.
    pub existed: bool,
    /// The session as it is now.
    pub record: Record,
    /// Its subscriptions.
    pub subscriptions: Vec<Subscription>,
    /// The pod that had its connection until now, and its epoch: its connection must be closed.
    pub replaced: Option<(Bytes, u64)>,
    /// The will of the earlier connection, if it must fire: to be published in this same transaction.
    pub will: Option<Bytes>,
}

/// Takes a session for a connection, or makes one. Whoever had it is fenced off from here on.
///
/// # Errors
/// [`crate::Error::NameTooLong`], or the store's.
pub async fn attach(tx: &Transaction, id: SessionId<'_>, request: Attach) -> Result<Attached> {
    name::check(id.client)?;
    let old = record::get(tx, id, Read::Serializable).await?;
    let existed = old.is_some();
    let goes_on = |old: &Record| !request.clean && !old.is_expired(request.now_ms);
    let present = old.as_ref().is_some_and(goes_on);
    let fired = match &old {
        Some(old) => leave(tx, id, old, present, request.now_ms).await?,
        None => None,
    };
    let epoch = next_epoch(tx, old.as_ref()).await?;
    let replaced = old.as_ref().filter(|old| !old.is_detached()).map(|old| (old.owner.clone(), old.epoch));
    let kept = old.filter(|_| present);
    let record = Record {
        epoch,
        owner: request.owner,
        expiry_s: request.expiry_s,
        detached_at_ms: 0,
        cursor: kept.as_ref().map_or(Position::MIN, |kept| kept.cursor),
        acknowledged: kept.as_ref().map_or_else(Vec::new, |kept| kept.acknowledged.clone()),
        has_will: request.will.is_some(),
        details: request.details.or(kept.map(|kept| kept.details)).unwrap_or_default(),
    };
    record::set(tx, id, &record)?;
    owner::add(tx, &record.owner, id)?;
    if let Some(will) = &request.will {
        will::set(tx, id, will).await?;
    }
    // The earlier owner may be changing them, and would not conflict otherwise: its writes do not change the session's record.
    let subscriptions = if present { subscriptions::read(tx, id).await? } else { Vec::new() };
    Ok(Attached { epoch, present, existed, record, subscriptions, replaced, will: fired })
}

/// Ends what the session was before: the connection, or the wait for one, or all of it.
async fn leave(
    tx: &Transaction,
    id: SessionId<'_>,
    old: &Record,
    goes_on: bool,
    now_ms: u64,
) -> Result<Option<Bytes>> {
    if !goes_on {
        return end::remove(tx, id, old, now_ms).await;
    }
    let fired = match will::get(tx, id, old).await? {
        Some(will) => {
            will::clear(tx, id, old, &will).await?;
            // Somebody is back before the delay was over: then it does not fire.
            let fires = if old.is_detached() { will.fires_at_ms(old) <= now_ms } else { will.delay_s == 0 };
            fires.then_some(will.body)
        }
        None => None,
    };
    end::count_return(tx, id, old, now_ms)?;
    unschedule_expiry(tx, id, old)?;
    if !old.is_detached() {
        owner::remove(tx, &old.owner, id)?;
    }
    Ok(fired)
}

/// Larger than all epochs before, also those of a session of this name that has ended and left nothing: the version that is read
/// here is later than that of every transaction that gave one.
async fn next_epoch(tx: &Transaction, old: Option<&Record>) -> Result<u64> {
    let version = tx.read_version().await?;
    Ok(old.map_or(0, |old| old.epoch + 1).max(version).max(1))
}
