//! The rows of a session that its owner writes, a record and a cursor, and the proof that a transaction is the owner's.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{Read, Transaction};

use crate::{
    SessionId,
    error::{LayerError, LayerResult},
    position::{Position, position},
    positions::Positions,
    rows, tags,
    tuple::Key,
};

pub const EXPIRY_NEVER: u32 = u32::MAX;

const HAS_WILL: u8 = 1;
/// [`SessionRecord::maybe_sent`] follows.
const MAYBE_SENT: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// Grows with every owner of this client id, and does not begin again after the session has ended.
    pub epoch: u64,
    /// The pod of the present or last connection.
    pub owner: Bytes,
    /// Lifetime without a connection, seconds; [`EXPIRY_NEVER`] is unlimited.
    pub expiry_s: u32,
    /// End of the last connection, unix milliseconds; 0 while there is one.
    pub detached_at_ms: u64,
    /// The client acknowledged everything up to here.
    pub cursor: Position,
    pub acknowledged: Positions,
    /// An owner that did not detach the session may have sent QoS 1 messages up to here.
    pub maybe_sent: Position,
    /// Stays true when a delayed will fires; only the row of the will is gone.
    pub(crate) has_will: bool,
    pub details: Bytes,
}

impl SessionRecord {
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
        let mut value = Vec::with_capacity(48 + self.owner.len() + self.details.len());
        value.put_u64(self.epoch);
        value.put_u32(self.expiry_s);
        value.put_u64(self.detached_at_ms);
        let is_maybe_sent = self.maybe_sent > Position::MIN;
        value.put_u8(if self.has_will { HAS_WILL } else { 0 } | if is_maybe_sent { MAYBE_SENT } else { 0 });
        if is_maybe_sent {
            value.put_slice(&self.maybe_sent.0);
        }
        rows::put_sized(&mut value, &self.owner);
        value.put_slice(&self.details);
        value.into()
    }

    fn decode(mut value: Bytes) -> LayerResult<Self> {
        let (epoch, expiry_s) = (value.try_get_u64()?, value.try_get_u32()?);
        let (detached_at_ms, flags) = (value.try_get_u64()?, value.try_get_u8()?);
        let maybe_sent = if flags & MAYBE_SENT == 0 { Position::MIN } else { position(&mut value)? };
        Ok(Self {
            epoch,
            expiry_s,
            detached_at_ms,
            has_will: flags & HAS_WILL != 0,
            owner: rows::take_sized(&mut value)?,
            details: value,
            cursor: Position::MIN,
            acknowledged: Positions::default(),
            maybe_sent,
        })
    }
}

/// Proof that the caller owned the session in this transaction: [`fence`] and [`fence_until_taken`] make one, and this crate for the
/// sessions of a dead pod.
pub struct Owned<'t> {
    pub(crate) tx: &'t Transaction,
    pub(crate) id: SessionId<'t>,
    pub(crate) record: SessionRecord,
}

impl<'t> Owned<'t> {
    #[must_use]
    pub fn id(&self) -> SessionId<'t> {
        self.id
    }

    #[must_use]
    pub fn record(&self) -> &SessionRecord {
        &self.record
    }

    pub(crate) fn record_mut(&mut self) -> &mut SessionRecord {
        &mut self.record
    }
}

/// Proves that a session is still of `epoch`, and makes the transaction conflict if that changes before it commits.
///
/// # Errors
/// [`LayerError::Fenced`]: the transaction has then written nothing for this session, and may continue with others.
pub async fn fence<'t>(tx: &'t Transaction, id: SessionId<'t>, epoch: u64) -> LayerResult<Owned<'t>> {
    fence_until_taken(tx, id, epoch).await.and_then(|owned| match owned.record.is_detached() {
        true => Err(LayerError::Fenced { epoch }),
        false => Ok(owned),
    })
}

/// As [`fence`], also after the owner of `epoch` has detached the session, until the session has a new owner.
///
/// # Errors
/// As [`fence`].
pub async fn fence_until_taken<'t>(
    tx: &'t Transaction,
    id: SessionId<'t>,
    epoch: u64,
) -> LayerResult<Owned<'t>> {
    match get_without_cursor(tx, id, Read::Serializable).await? {
        Some(record) if record.epoch == epoch => Ok(Owned { tx, id, record }),
        _ => Err(LayerError::Fenced { epoch }),
    }
}

/// Reads a session with its cursor; an expired session is there until it is swept.
pub async fn get(tx: &Transaction, id: SessionId<'_>, read: Read) -> LayerResult<Option<SessionRecord>> {
    let cursor = tx.get(cursor_key(id), read);
    let Some(mut record) = get_without_cursor(tx, id, read).await? else { return Ok(None) };
    if let Some(value) = cursor.await? {
        (record.cursor, record.acknowledged) = Positions::decode(value)?;
    }
    Ok(Some(record))
}

/// Does not conflict with checkpoints, which write the cursor, and reads one row instead of two.
pub async fn get_without_cursor(
    tx: &Transaction,
    id: SessionId<'_>,
    read: Read,
) -> LayerResult<Option<SessionRecord>> {
    tx.get(key(id), read).await?.map(SessionRecord::decode).transpose()
}

pub(crate) fn decode(value: Bytes) -> LayerResult<SessionRecord> {
    SessionRecord::decode(value)
}

pub(crate) fn set(tx: &Transaction, id: SessionId<'_>, record: &SessionRecord) -> LayerResult<()> {
    Ok(tx.set(key(id), record.encode())?)
}

pub(crate) fn set_cursor(
    tx: &Transaction,
    id: SessionId<'_>,
    cursor: Position,
    acknowledged: &Positions,
) -> LayerResult<()> {
    Ok(tx.set(cursor_key(id), acknowledged.encode(cursor))?)
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
