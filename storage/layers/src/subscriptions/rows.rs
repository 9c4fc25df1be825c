//! The rows of a session's subscriptions.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{Read, StoreVersion, Transaction};

use super::StoredOptions;
use crate::{
    SessionId,
    error::LayerResult,
    rows,
    streams::StreamId,
    tags,
    tuple::{Elements, Key},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSubscription {
    /// The filter, with its `$share/group/`.
    pub filter: Bytes,
    pub options: StoredOptions,
    /// The stream counts from this version on.
    pub since: StoreVersion,
    pub stream: StreamId,
}

#[derive(Clone, Copy)]
pub(super) struct StoredSubscriptionRow {
    pub(super) options: StoredOptions,
    pub(super) since: StoreVersion,
    pub(super) stream: StreamId,
}

pub async fn list(tx: &Transaction, id: SessionId<'_>) -> LayerResult<Vec<StoredSubscription>> {
    read(tx, id, Read::Snapshot).await
}

/// The subscription of a session to one filter, with its `$share/group/`, as a snapshot read.
pub async fn find(
    tx: &Transaction,
    id: SessionId<'_>,
    filter: &Bytes,
) -> LayerResult<Option<StoredSubscription>> {
    let Some(value) = tx.get(prefix(id).bytes(filter), Read::Snapshot).await? else { return Ok(None) };
    let StoredSubscriptionRow { options, since, stream } = decode(value)?;
    Ok(Some(StoredSubscription { filter: filter.clone(), options, since, stream }))
}

pub(super) async fn read(
    tx: &Transaction,
    id: SessionId<'_>,
    read: Read,
) -> LayerResult<Vec<StoredSubscription>> {
    let prefix = prefix(id);
    let mut subscriptions = Vec::new();
    for row in rows::all(tx, prefix.children(), read).await? {
        let filter = Elements::after(&prefix, &row.key)?.bytes()?.into();
        let StoredSubscriptionRow { options, since, stream } = decode(row.value)?;
        subscriptions.push(StoredSubscription { filter, options, since, stream });
    }
    Ok(subscriptions)
}

pub(super) async fn get(
    tx: &Transaction,
    id: SessionId<'_>,
    filter: &[u8],
) -> LayerResult<Option<StoredSubscriptionRow>> {
    tx.get(prefix(id).bytes(filter), Read::Serializable).await?.map(decode).transpose()
}

pub(super) fn set(
    tx: &Transaction,
    id: SessionId<'_>,
    filter: &[u8],
    row: &StoredSubscriptionRow,
) -> LayerResult<()> {
    let mut value = Vec::with_capacity(21);
    value.put_u8(row.options.bits);
    value.put_u32(row.options.identifier);
    value.put_u64(row.since);
    value.put_u64(row.stream);
    Ok(tx.set(prefix(id).bytes(filter), value)?)
}

pub(super) fn clear(tx: &Transaction, id: SessionId<'_>, filter: &[u8]) -> LayerResult<()> {
    Ok(tx.clear(prefix(id).bytes(filter))?)
}

pub(super) fn prefix(id: SessionId<'_>) -> Key {
    Key::new(id.broker, tags::SUBSCRIPTION).bytes(id.client)
}

fn decode(mut value: Bytes) -> LayerResult<StoredSubscriptionRow> {
    let options = StoredOptions { bits: value.try_get_u8()?, identifier: value.try_get_u32()? };
    Ok(StoredSubscriptionRow { options, since: value.try_get_u64()?, stream: value.try_get_u64()? })
}
