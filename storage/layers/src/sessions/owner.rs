//! Sessions by pod, to recover those of a dead pod, in rows of the region so that they are found without asking every
//! broker.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Transaction, after};

use super::SessionId;
use crate::{
    BrokerId,
    error::LayerResult,
    tags,
    tuple::{Elements, Key},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedSession {
    pub broker: BrokerId,
    pub client: Bytes,
}

impl OwnedSession {
    #[must_use]
    pub fn id(&self) -> SessionId<'_> {
        SessionId { broker: self.broker, client: &self.client }
    }
}

pub(super) fn add(tx: &Transaction, owner: &[u8], id: SessionId<'_>) -> LayerResult<()> {
    Ok(tx.set(key(owner, id), Bytes::new())?)
}

/// Removes the row of a session that is gone with its broker.
pub fn disown(tx: &Transaction, owner: &[u8], id: SessionId<'_>) -> LayerResult<()> {
    remove(tx, owner, id)
}

pub(super) fn remove(tx: &Transaction, owner: &[u8], id: SessionId<'_>) -> LayerResult<()> {
    Ok(tx.clear(key(owner, id))?)
}

pub async fn of_owner(
    tx: &Transaction,
    owner: &[u8],
    from: Option<SessionId<'_>>,
    limit: usize,
) -> LayerResult<Vec<OwnedSession>> {
    let prefix = prefix(owner);
    let begin = from.map_or(prefix.children().begin, |from| after(key(owner, from).as_ref()));
    let range = KeyRange::new(begin, prefix.end());
    let mut sessions = Vec::new();
    for row in tx.range(range, RangeOptions::first(limit).snapshot()).await?.items {
        let mut elements = Elements::after(&prefix, &row.key)?;
        sessions.push(OwnedSession { broker: elements.uint()?, client: elements.bytes()?.into() });
    }
    Ok(sessions)
}

/// Whether `owner` has any session; a "no" still holds at the commit.
pub async fn owns_any(tx: &Transaction, owner: &[u8]) -> LayerResult<bool> {
    let page = tx.range(prefix(owner).children(), RangeOptions::first(1)).await?;
    Ok(!page.items.is_empty())
}

fn prefix(owner: &[u8]) -> Key {
    Key::new(tags::REGION, tags::OWNER).bytes(owner)
}

fn key(owner: &[u8], id: SessionId<'_>) -> Key {
    prefix(owner).uint(id.broker).bytes(id.client)
}
