//! Packet ids that a crash must not forget: those received and not yet released, and those sent and not yet completed.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, KeyValue, Read, Transaction};

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

/// Sets what is known of an id, whether it was there or not: a whole message, if need be.
///
/// # Errors
/// The store's; [`Error::BodyTooLarge`].
pub fn set(owned: &Owned<'_>, direction: Direction, id: u16, details: &Bytes) -> Result<()> {
    rows::check_body(details)?;
    let key = key(owned.id(), direction, id);
    let mut parts = rows::chunks(details);
    let first = parts.next().unwrap_or_default();
    let mut count: u8 = 0;
    for part in parts {
        count += 1;
        owned.tx.set(key.clone().uint(count.into()), part)?;
    }
    let mut value = Vec::with_capacity(1 + first.len());
    value.put_u8(count);
    value.put_slice(&first);
    Ok(owned.tx.set(key, value)?)
}

/// Forgets an id.
///
/// # Errors
/// The store's.
pub fn remove(owned: &Owned<'_>, direction: Direction, id: u16) -> Result<()> {
    let key = key(owned.id(), direction, id);
    if direction == Direction::Inbound {
        // Nothing stands behind these.
        return Ok(owned.tx.clear(key)?);
    }
    Ok(owned.tx.clear_range(KeyRange::new(key.as_ref(), key.end()))?)
}

/// Forgets all ids of one direction but these, which are in order.
///
/// # Errors
/// The store's.
pub fn clear_but(owned: &Owned<'_>, direction: Direction, kept: &[u16]) -> Result<()> {
    let all = prefix(owned.id(), direction).children();
    let mut begin = all.begin;
    for id in kept {
        let key = key(owned.id(), direction, *id);
        owned.tx.clear_range(KeyRange::new(begin, key.as_ref()))?;
        begin = key.end().into();
    }
    Ok(owned.tx.clear_range(KeyRange::new(begin, all.end))?)
}

/// The ids of a session in order, with what is known of each. Who takes the session reads them serializably: the earlier owner may be
/// writing one.
///
/// # Errors
/// The store's.
pub async fn list(
    tx: &Transaction,
    session: SessionId<'_>,
    direction: Direction,
    read: Read,
) -> Result<Vec<(u16, Bytes)>> {
    let prefix = prefix(session, direction);
    let mut ids: Vec<(u16, Bytes)> = Vec::new();
    let mut rows = rows::all(tx, prefix.children(), read).await?.into_iter();
    while let Some(mut row) = rows.next() {
        let mut elements = Elements::after(&prefix, &row.key)?;
        let id = u16::try_from(elements.uint()?).map_err(|_| Error::Corrupt("key"))?;
        if !elements.is_empty() {
            // Of an earlier, longer message under this id.
            continue;
        }
        let more = row.value.try_get_u8()?;
        let parts: Vec<KeyValue> = rows.by_ref().take(more.into()).collect();
        ids.push((id, if parts.is_empty() { row.value } else { rows::join([row].into_iter().chain(parts)) }));
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
