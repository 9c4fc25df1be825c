//! The will of a session's connection, stored when the client connects, so that it fires even if the pod dies. The
//! transaction that deletes a will to fire it must also publish its body, so that the will fires exactly once.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{Read, Transaction};

use crate::{
    SessionId,
    due::{self, Due, DueKind},
    error::LayerResult,
    metering,
    rows::Blob,
    session_record::SessionRecord,
    tags,
    tuple::Key,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWill {
    /// Seconds from the connection's end until the will fires.
    pub delay_s: u32,
    pub body: Bytes,
}

impl PendingWill {
    fn body_bytes(&self) -> i64 {
        i64::try_from(self.body.len()).unwrap_or(i64::MAX)
    }

    /// Unix milliseconds at which the will of a detached session fires: after its delay, or when the session expires,
    /// if that is earlier.
    pub(super) fn fires_at_ms(&self, record: &SessionRecord) -> u64 {
        let delay_ms = u64::from(self.delay_s) * 1_000;
        let at_ms = record.detached_at_ms.saturating_add(delay_ms);
        record.expires_at_ms().map_or(at_ms, |expires| expires.min(at_ms))
    }
}

/// The session must have no will; the caller sets `has_will` in its record.
pub(super) async fn add(tx: &Transaction, id: SessionId<'_>, will: &PendingWill) -> LayerResult<()> {
    let mut value = Vec::with_capacity(4 + will.body.len());
    value.put_u32(will.delay_s);
    value.put_slice(&will.body);
    metering::change_will_bytes(tx, id.broker, will.body_bytes())?;
    blob(id).set(tx, &value.into()).await
}

/// Returns the bytes that a session's will adds to [`metering::HeldLevels::will_bytes`]; 0 without a will.
pub async fn will_bytes(tx: &Transaction, id: SessionId<'_>, record: &SessionRecord) -> LayerResult<u64> {
    Ok(get(tx, id, record).await?.map_or(0, |will| will.body_bytes().cast_unsigned()))
}

pub(super) async fn get(
    tx: &Transaction,
    id: SessionId<'_>,
    record: &SessionRecord,
) -> LayerResult<Option<PendingWill>> {
    if !record.has_will {
        return Ok(None);
    }
    let Some(mut body) = blob(id).get(tx, Read::Serializable).await? else { return Ok(None) };
    Ok(Some(PendingWill { delay_s: body.try_get_u32()?, body }))
}

/// Deletes the will, and also its row in [`due`] if the session is detached; the caller clears `has_will`.
pub(super) async fn clear(
    tx: &Transaction,
    id: SessionId<'_>,
    record: &SessionRecord,
    will: &PendingWill,
) -> LayerResult<()> {
    if record.is_detached() {
        due::cancel(tx, &Due::new(id, DueKind::Will, will.fires_at_ms(record)))?;
    }
    metering::change_will_bytes(tx, id.broker, -will.body_bytes())?;
    blob(id).clear(tx).await
}

/// Deletes the will of a session that ends, and returns its body, because the will then fires whatever its delay is.
pub(super) async fn take(
    tx: &Transaction,
    id: SessionId<'_>,
    record: &SessionRecord,
) -> LayerResult<Option<Bytes>> {
    let Some(will) = get(tx, id, record).await? else { return Ok(None) };
    clear(tx, id, record, &will).await?;
    Ok(Some(will.body))
}

fn blob(id: SessionId<'_>) -> Blob {
    Blob {
        row: Key::new(id.broker, tags::WILL).bytes(id.client),
        chunks: Key::new(id.broker, tags::WILL_CHUNK).bytes(id.client),
    }
}
