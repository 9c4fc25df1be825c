//! What a broker does now: each pod says how many of its clients it has, for as long as it says so.

use bytes::{Buf, BufMut};
use millrace_storage::{KeyValue, Read, Transaction};

use crate::{
    BrokerId,
    error::Result,
    rows, tags,
    tuple::Key,
    usage::{self, Counter},
};

/// How long the word of a pod counts, milliseconds. It is many times as long as pods wait between two.
const COUNTS_MS: u64 = 15_000;
/// After that the row of a pod that is gone is removed, milliseconds.
const FORGOTTEN_MS: u64 = 3_600_000;

/// What a broker does, on all pods together. All but the connections are counters since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Connected clients.
    pub connections: u64,
    /// Messages from clients.
    pub messages_in: u64,
    /// Copies that went out to clients.
    pub messages_out: u64,
    /// Bytes of messages from clients.
    pub bytes_in: u64,
    /// Bytes of copies that went out.
    pub bytes_out: u64,
    /// Copies that were dropped.
    pub dropped: u64,
}

/// What a broker does, as its pods last said. A snapshot read.
///
/// # Errors
/// The store's.
pub async fn live(tx: &Transaction, broker: BrokerId, now_ms: u64) -> Result<Live> {
    let mut connections = 0;
    for row in rows::all(tx, all(broker).children(), Read::Snapshot).await? {
        let (count, at_ms) = decode(&row)?;
        if at_ms + COUNTS_MS > now_ms {
            connections += count;
        }
    }
    let count = async |counter| usage::get(tx, broker, counter).await;
    Ok(Live {
        connections,
        messages_in: count(Counter::PublishedMessages).await?,
        messages_out: count(Counter::DeliveredMessages).await?,
        bytes_in: count(Counter::PublishedBytes).await?,
        bytes_out: count(Counter::DeliveredBytes).await?,
        dropped: count(Counter::DroppedMessages).await?,
    })
}

/// Says how many clients of a broker a pod has.
pub(super) fn say(
    tx: &Transaction,
    broker: BrokerId,
    pod: &[u8],
    connections: u64,
    now_ms: u64,
) -> Result<()> {
    let key = all(broker).bytes(pod);
    if connections == 0 {
        return Ok(tx.clear(key)?);
    }
    let mut value = Vec::with_capacity(16);
    value.put_u64(connections);
    value.put_u64(now_ms);
    Ok(tx.set(key, value)?)
}

/// Removes what pods that are gone have said.
pub(super) async fn clear_old(tx: &Transaction, broker: BrokerId, now_ms: u64) -> Result<()> {
    for row in rows::all(tx, all(broker).children(), Read::Snapshot).await? {
        let (_, at_ms) = decode(&row)?;
        if at_ms + FORGOTTEN_MS < now_ms {
            tx.clear(&row.key)?;
        }
    }
    Ok(())
}

fn decode(row: &KeyValue) -> Result<(u64, u64)> {
    let mut value = row.value.clone();
    Ok((value.try_get_u64()?, value.try_get_u64()?))
}

fn all(broker: BrokerId) -> Key {
    Key::new(broker, tags::USAGE_PRESENCE)
}
