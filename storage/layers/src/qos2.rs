//! Packet ids of QoS 2 that must survive a crash: received and not yet released, or sent and not yet completed.

use std::collections::BTreeSet;

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, KeyValue, Read, Transaction};

use crate::{
    SessionId,
    error::{LayerError, LayerResult},
    rows,
    session_record::Owned,
    tags,
    tuple::{Elements, Key},
};

/// The side that chose the packet id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ids of the client, for messages that it publishes.
    Inbound,
    /// Ids of the broker, for messages that it sends.
    Outbound,
}

/// Sets the data of an id, new or not; the data may be a whole message.
///
/// # Errors
/// The store's; [`LayerError::BodyTooLarge`].
pub fn set(owned: &Owned<'_>, direction: Direction, id: u16, details: &Bytes) -> LayerResult<()> {
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

pub fn remove(owned: &Owned<'_>, direction: Direction, id: u16) -> LayerResult<()> {
    let key = key(owned.id(), direction, id);
    if direction == Direction::Inbound {
        // Inbound ids have no chunks.
        return Ok(owned.tx.clear(key)?);
    }
    Ok(owned.tx.clear_range(KeyRange::new(key.as_ref(), key.end()))?)
}

/// Removes all ids of a direction except `kept`.
pub fn clear_but(owned: &Owned<'_>, direction: Direction, kept: &[u16]) -> LayerResult<()> {
    let all = prefix(owned.id(), direction).children();
    let mut begin = all.begin;
    for id in kept.iter().collect::<BTreeSet<_>>() {
        let key = key(owned.id(), direction, *id);
        owned.tx.clear_range(KeyRange::new(begin, key.as_ref()))?;
        begin = key.end().into();
    }
    Ok(owned.tx.clear_range(KeyRange::new(begin, all.end))?)
}

/// The ids of a session with their data, sorted; a new owner reads them serializably, because the old owner may be
/// writing one.
pub async fn list(
    tx: &Transaction,
    session: SessionId<'_>,
    direction: Direction,
    read: Read,
) -> LayerResult<Vec<(u16, Bytes)>> {
    let prefix = prefix(session, direction);
    let mut ids: Vec<(u16, Bytes)> = Vec::new();
    let mut rows = rows::all(tx, prefix.children(), read).await?.into_iter();
    while let Some(mut row) = rows.next() {
        let mut elements = Elements::after(&prefix, &row.key)?;
        let id = u16::try_from(elements.uint()?).map_err(|_| LayerError::Corrupt("key"))?;
        if !elements.is_empty() {
            // A leftover chunk of an earlier, longer message with this id.
            continue;
        }
        let more = row.value.try_get_u8()?;
        let parts: Vec<KeyValue> = rows.by_ref().take(more.into()).collect();
        ids.push((id, if parts.is_empty() { row.value } else { rows::join([row].into_iter().chain(parts)) }));
    }
    Ok(ids)
}

fn prefix(session: SessionId<'_>, direction: Direction) -> Key {
    let tag = if direction == Direction::Inbound { tags::INBOUND } else { tags::OUTBOUND };
    Key::new(session.broker, tag).bytes(session.client)
}

fn key(session: SessionId<'_>, direction: Direction, id: u16) -> Key {
    prefix(session, direction).uint(id.into())
}
