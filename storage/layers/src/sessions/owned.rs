//! Writes that only the owner of a session may do.

use bytes::Bytes;

use super::{
    end::{self, Settled, schedule_expiry},
    owner, will,
};
use crate::{
    due::{self, Due, DueKind},
    error::LayerResult,
    metering::{self, Level},
    position::Position,
    positions::Positions,
    session_record::{self as record, Owned},
};

pub fn checkpoint(owned: &Owned<'_>, cursor: Position, acknowledged: &Positions) -> LayerResult<()> {
    record::set_cursor(owned.tx, owned.id(), cursor, acknowledged)
}

pub fn save(owned: &mut Owned<'_>, details: Bytes) -> LayerResult<()> {
    owned.record_mut().details = details;
    record::set(owned.tx, owned.id(), owned.record())
}

#[derive(Clone, Copy, Debug)]
pub struct Detach {
    pub now_ms: u64,
    /// New lifetime from the client's DISCONNECT, seconds.
    pub expiry_s: Option<u32>,
    pub keep_will: KeepWill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepWill {
    /// It fires after its delay.
    Yes,
    /// After a connection that was not accepted: its client may return within the delay.
    IfDelayed,
    No,
}

impl From<bool> for KeepWill {
    fn from(keeps: bool) -> Self {
        if keeps { Self::Yes } else { Self::No }
    }
}

/// Ends a connection, so that the session waits for the next one until it expires.
pub async fn detach(owned: Owned<'_>, how: Detach) -> LayerResult<Option<Bytes>> {
    Ok(leave(owned, how).await?.will)
}

/// The same, and returns the subscriptions that ended with the session.
pub async fn leave(mut owned: Owned<'_>, how: Detach) -> LayerResult<Settled> {
    let (tx, id) = (owned.tx, owned.id());
    let record = owned.record_mut();
    let will = will::get(tx, id, record).await?;
    let keeps = match how.keep_will {
        KeepWill::Yes => true,
        KeepWill::IfDelayed => will.as_ref().is_some_and(|will| will.delay_s > 0),
        KeepWill::No => false,
    };
    if let Some(will) = will.as_ref().filter(|_| !keeps) {
        will::clear(tx, id, record, will).await?;
        record.has_will = false;
    }
    record.expiry_s = how.expiry_s.unwrap_or(record.expiry_s);
    if record.expiry_s == 0 {
        return end::remove(tx, id, record, how.now_ms).await;
    }
    owner::remove(tx, &record.owner, id)?;
    // 0 means that there is a connection.
    record.detached_at_ms = how.now_ms.max(1);
    metering::change(tx, id.broker, Level::Sessions, 1, record.detached_at_ms)?;
    let mut fired = None;
    if let Some(will) = will.filter(|_| keeps) {
        if will.delay_s == 0 {
            will::clear(tx, id, record, &will).await?;
            record.has_will = false;
            fired = Some(will.body);
        } else {
            due::schedule(tx, &Due::new(id, DueKind::Will, will.fires_at_ms(record)))?;
        }
    }
    schedule_expiry(tx, id, record)?;
    record::set(tx, id, record)?;
    Ok(Settled { will: fired, details: record.details.clone(), ..Settled::default() })
}

/// Ends a session now, and returns its will: to be published in the same transaction.
pub async fn end(owned: Owned<'_>) -> LayerResult<Option<Bytes>> {
    Ok(end::remove(owned.tx, owned.id(), owned.record(), owned.tx.unix_ms()).await?.will)
}

pub(super) fn by_death(now_ms: u64) -> Detach {
    Detach { now_ms, expiry_s: None, keep_will: KeepWill::Yes }
}
