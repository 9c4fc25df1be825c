//! The rows of a session that its owner writes, a record and a cursor, and the proof that a transaction is the owner's.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{Read, Transaction};

use crate::{
    SessionId,
    error::{LayerError, LayerResult},
    limits::ACKNOWLEDGED_MAX,
    position::Position,
    rows,
    streams::row::position,
    tags,
    tuple::Key,
};

pub const EXPIRY_NEVER: u32 = u32::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Grows with every owner, also when the session ended in between.
    pub epoch: u64,
    /// The pod of the present or last connection.
    pub owner: Bytes,
    /// Lifetime without a connection, seconds; [`EXPIRY_NEVER`] is unlimited.
    pub expiry_s: u32,
    /// End of the last connection, unix milliseconds; 0 while there is one.
    pub detached_at_ms: u64,
    /// The client acknowledged everything up to here.
    pub cursor: Position,
    /// Acknowledged messages after the cursor.
    pub acknowledged: Vec<Position>,
    /// A will that fired leaves this unchanged.
    pub(crate) has_will: bool,
    pub details: Bytes,
}

impl Record {
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.detached_at_ms != 0
    }

    /// Time of expiry; `None` with a connection, or without expiry.
    #[must_use]
    pub fn expires_at_ms(&self) -> Option<u64> {
        let expiry_ms = u64::from(self.expiry_s) * 1_000;
        let expires = self.is_detached() && self.expiry_s != EXPIRY_NEVER;
        expires.then(|| self.detached_at_ms.saturating_add(expiry_ms))
    }

    /// Whether the session has expired, although it may not be swept yet.
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms().is_some_and(|at_ms| at_ms <= now_ms)
    }

    fn encode(&self) -> Bytes {
        let mut value = Vec::with_capacity(32 + self.owner.len() + self.details.len());
        value.put_u64(self.epoch);
        value.put_u32(self.expiry_s);
        value.put_u64(self.detached_at_ms);
        value.put_u8(self.has_will.into());
        rows::put_sized(&mut value, &self.owner);
        value.put_slice(&self.details);
        value.into()
    }

    fn decode(mut value: Bytes) -> LayerResult<Self> {
        Ok(Self {
            epoch: value.try_get_u64()?,
            expiry_s: value.try_get_u32()?,
            detached_at_ms: value.try_get_u64()?,
            has_will: value.try_get_u8()? != 0,
            owner: rows::take_sized(&mut value)?,
            details: value,
            cursor: Position::MIN,
            acknowledged: Vec::new(),
        })
    }
}

/// Proof that the caller owned the session in this transaction; only [`fence`] makes one.
pub struct Owned<'t> {
    pub(crate) tx: &'t Transaction,
    id: SessionId<'t>,
    record: Record,
}

impl<'t> Owned<'t> {
    #[must_use]
    pub fn id(&self) -> SessionId<'t> {
        self.id
    }

    /// Without the cursor.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }
}

/// Proves that a session is still of `epoch`, and makes the transaction conflict if that changes before it commits.
///
/// # Errors
/// [`LayerError::Fenced`]: the transaction has then written nothing for this session, and may go on with others.
pub async fn fence<'t>(tx: &'t Transaction, id: SessionId<'t>, epoch: u64) -> LayerResult<Owned<'t>> {
    match get_fenced(tx, id, Read::Serializable).await? {
        Some(record) if record.epoch == epoch && !record.is_detached() => Ok(Owned { tx, id, record }),
        _ => Err(LayerError::Fenced { epoch }),
    }
}

/// Reads a session with its cursor; an expired session is there until it is swept.
pub async fn get(tx: &Transaction, id: SessionId<'_>, read: Read) -> LayerResult<Option<Record>> {
    let cursor = tx.get(cursor_key(id), read);
    let Some(mut record) = get_fenced(tx, id, read).await? else { return Ok(None) };
    if let Some(mut value) = cursor.await? {
        record.cursor = position(&mut value)?;
        while value.has_remaining() {
            record.acknowledged.push(position(&mut value)?);
        }
    }
    Ok(Some(record))
}

/// Without the cursor, so that checkpoints do not conflict.
pub(crate) async fn get_fenced(
    tx: &Transaction,
    id: SessionId<'_>,
    read: Read,
) -> LayerResult<Option<Record>> {
    tx.get(key(id), read).await?.map(Record::decode).transpose()
}

pub(crate) fn decode(value: Bytes) -> LayerResult<Record> {
    Record::decode(value)
}

pub(crate) fn set(tx: &Transaction, id: SessionId<'_>, record: &Record) -> LayerResult<()> {
    Ok(tx.set(key(id), record.encode())?)
}

pub(crate) fn set_cursor(
    tx: &Transaction,
    id: SessionId<'_>,
    cursor: Position,
    acknowledged: &[Position],
) -> LayerResult<()> {
    let kept = acknowledged.len().min(ACKNOWLEDGED_MAX);
    let mut value = Vec::with_capacity((1 + kept) * Position::LEN);
    value.put_slice(&cursor.0);
    for position in &acknowledged[..kept] {
        value.put_slice(&position.0);
    }
    Ok(tx.set(cursor_key(id), value)?)
}

pub(crate) fn clear(tx: &Transaction, id: SessionId<'_>) -> LayerResult<()> {
    tx.clear(key(id))?;
    Ok(tx.clear(cursor_key(id))?)
}

pub(crate) fn sessions(broker: u64) -> Key {
    Key::new(broker, tags::SESSION)
}

pub(crate) fn key(id: SessionId<'_>) -> Key {
    sessions(id.broker).bytes(id.client)
}

fn cursor_key(id: SessionId<'_>) -> Key {
    Key::new(id.broker, tags::CURSOR).bytes(id.client)
}
