//! Packet ids that a crash must not forget: those received and not yet released, and those sent and not yet completed.

use bytes::Bytes;
use millrace_storage::{Read, Transaction};

use crate::{
    error::{Error, Result},
    rows,
    sessions::{Owned, SessionId},
    tags,
    tuple::{Elements, Key},
};

/// Whose ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client's, of messages that it publishes.
    Inbound,
    /// The broker's, of messages that it sends.
    Outbound,
}

/// Remembers an id, with what the owner wants to know of it. Returns whether it was there already: then nothing is changed. A
/// publish does this in the transaction that appends, so a retry after a crash is known.
///
/// # Errors
/// The store's.
pub async fn insert(owned: &Owned<'_>, direction: Direction, id: u16, details: Bytes) -> Result<bool> {
    let key = key(owned.id(), direction, id);
    if owned.tx.get(&key, Read::Serializable).await?.is_some() {
        return Ok(true);
    }
    owned.tx.set(key, details)?;
    Ok(false)
}

/// Sets what is known of an id, whether it was there or not.
///
/// # Errors
/// The store's.
pub fn set(owned: &Owned<'_>, direction: Direction, id: u16, details: Bytes) -> Result<()> {
    Ok(owned.tx.set(key(owned.id(), direction, id), details)?)
}

/// Forgets an id.
///
/// # Errors
/// The store's.
pub fn remove(owned: &Owned<'_>, direction: Direction, id: u16) -> Result<()> {
    Ok(owned.tx.clear(key(owned.id(), direction, id))?)
}

/// Forgets all ids of one direction.
///
/// # Errors
/// The store's.
pub fn clear(owned: &Owned<'_>, direction: Direction) -> Result<()> {
    Ok(owned.tx.clear_range(prefix(owned.id(), direction).children())?)
}

/// The ids of a session in order, with what is known of each. A snapshot read.
///
/// # Errors
/// The store's.
pub async fn list(
    tx: &Transaction,
    session: SessionId<'_>,
    direction: Direction,
) -> Result<Vec<(u16, Bytes)>> {
    let prefix = prefix(session, direction);
    let mut ids = Vec::new();
    for row in rows::all(tx, prefix.children(), Read::Snapshot).await? {
        let id = Elements::after(&prefix, &row.key)?.uint()?;
        ids.push((u16::try_from(id).map_err(|_| Error::Corrupt("key"))?, row.value));
    }
    Ok(ids)
}

pub(crate) fn clear_all(tx: &Transaction, session: SessionId<'_>) -> Result<()> {
    for direction in [Direction::Inbound, Direction::Outbound] {
        tx.clear_range(prefix(session, direction).children())?;
    }
    Ok(())
}

fn prefix(session: SessionId<'_>, direction: Direction) -> Key {
    let tag = if direction == Direction::Inbound { tags::INBOUND } else { tags::OUTBOUND };
    Key::new(session.broker, tag).bytes(session.client)
}

fn key(session: SessionId<'_>, direction: Direction, id: u16) -> Key {
    prefix(session, direction).uint(id.into())
}
