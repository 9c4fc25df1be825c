//! The will of a session's connection. It is stored with the connection, so that it fires when the pod is gone, and whoever fires it
//! takes it out of the store in the transaction that publishes it, so that it fires once.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{Read, Transaction};

use super::{Record, SessionId};
use crate::{
    due::{self, Due, Kind},
    error::Result,
    rows::Blob,
    tags,
    tuple::Key,
};

/// A will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// Seconds after the connection's end before it fires.
    pub delay_s: u32,
    /// What is published.
    pub body: Bytes,
}

impl Will {
    /// When it fires, with the session's end at the latest.
    pub(super) fn fires_at_ms(&self, record: &Record) -> u64 {
        let delay_ms = u64::from(self.delay_s) * 1_000;
        let at_ms = record.detached_at_ms.saturating_add(delay_ms);
        record.expires_at_ms().map_or(at_ms, |expires| expires.min(at_ms))
    }
}

pub(super) async fn set(tx: &Transaction, id: SessionId<'_>, will: &Will) -> Result<()> {
    let mut value = Vec::with_capacity(4 + will.body.len());
    value.put_u32(will.delay_s);
    value.put_slice(&will.body);
    blob(id).set(tx, &value.into()).await
}

/// The will of a session that may have one.
pub(super) async fn get(tx: &Transaction, id: SessionId<'_>, record: &Record) -> Result<Option<Will>> {
    if !record.has_will {
        return Ok(None);
    }
    let Some(mut body) = blob(id).get(tx, Read::Serializable).await? else { return Ok(None) };
    Ok(Some(Will { delay_s: body.try_get_u32()?, body }))
}

/// Removes the will, and what waits for it.
pub(super) async fn clear(tx: &Transaction, id: SessionId<'_>, record: &Record, will: &Will) -> Result<()> {
    if record.is_detached() {
        due::cancel(tx, &Due::new(id, Kind::Will, will.fires_at_ms(record)))?;
    }
    blob(id).clear(tx).await
}

/// Takes the will out of a session that ends: it fires now.
pub(super) async fn take(tx: &Transaction, id: SessionId<'_>, record: &Record) -> Result<Option<Bytes>> {
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
