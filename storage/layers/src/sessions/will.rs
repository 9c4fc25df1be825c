//! The will of a session's connection, stored with the connection so that it fires after a pod's death. The transaction
//! that publishes the will also removes it, so that it fires once.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{Read, Transaction};

use crate::{
    SessionId,
    due::{self, Due, DueKind},
    error::LayerResult,
    metering,
    rows::Blob,
    session_record::Record,
    tags,
    tuple::Key,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWill {
    /// From the connection's end.
    pub delay_s: u32,
    pub body: Bytes,
}

impl PendingWill {
    fn bytes(&self) -> i64 {
        i64::try_from(self.body.len()).unwrap_or(i64::MAX)
    }

    /// Fires at the latest with the session's end.
    pub(super) fn fires_at_ms(&self, record: &Record) -> u64 {
        let delay_ms = u64::from(self.delay_s) * 1_000;
        let at_ms = record.detached_at_ms.saturating_add(delay_ms);
        record.expires_at_ms().map_or(at_ms, |expires| expires.min(at_ms))
    }
}

pub(super) async fn set(tx: &Transaction, id: SessionId<'_>, will: &PendingWill) -> LayerResult<()> {
    let mut value = Vec::with_capacity(4 + will.body.len());
    value.put_u32(will.delay_s);
    value.put_slice(&will.body);
    metering::change_will_bytes(tx, id.broker, will.bytes())?;
    blob(id).set(tx, &value.into()).await
}

/// The bytes of a session's will in [`metering::Held::will_bytes`]; 0 without a will.
///
/// # Errors
/// The store's.
pub async fn will_bytes(tx: &Transaction, id: SessionId<'_>, record: &Record) -> LayerResult<u64> {
    Ok(get(tx, id, record).await?.map_or(0, |will| will.bytes().cast_unsigned()))
}

pub(super) async fn get(
    tx: &Transaction,
    id: SessionId<'_>,
    record: &Record,
) -> LayerResult<Option<PendingWill>> {
    if !record.has_will {
        return Ok(None);
    }
    let Some(mut body) = blob(id).get(tx, Read::Serializable).await? else { return Ok(None) };
    Ok(Some(PendingWill { delay_s: body.try_get_u32()?, body }))
}

/// Also removes its due time.
pub(super) async fn clear(
    tx: &Transaction,
    id: SessionId<'_>,
    record: &Record,
    will: &PendingWill,
) -> LayerResult<()> {
    if record.is_detached() {
        due::cancel(tx, &Due::new(id, DueKind::Will, will.fires_at_ms(record)))?;
    }
    metering::change_will_bytes(tx, id.broker, -will.bytes())?;
    blob(id).clear(tx).await
}

/// The session ends, so the will fires now.
pub(super) async fn take(tx: &Transaction, id: SessionId<'_>, record: &Record) -> LayerResult<Option<Bytes>> {
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
