//! Present activity of a broker: each pod reports the number of its clients, and a report counts for a limited time.

use bytes::{Buf, BufMut};
use millrace_storage::{KeyValue, Read, Transaction};

use super::{DROP_REASONS, flush::DROP_COUNTERS, history};
use crate::{
    BrokerId,
    error::LayerResult,
    rows, tags,
    tuple::Key,
    usage::{self, Counter},
};

/// Time for which a pod's report counts, milliseconds: many times the interval of reports.
const COUNTS_MS: u64 = 15_000;
const GONE_POD_KEPT_MS: u64 = 3_600_000;

/// Activity of a broker on all pods. The connections and what is stored are present levels, all else counts since the
/// broker was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerActivity {
    pub connections: u64,
    pub messages_in: u64,
    pub messages_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Without the messages that a limit of the store removed.
    pub dropped: u64,
    /// By [`super::DropCause`].
    pub drops: [u64; DROP_REASONS],
    pub stored_messages: u64,
    pub stored_bytes: u64,
}

pub async fn live(tx: &Transaction, broker: BrokerId, now_ms: u64) -> LayerResult<BrokerActivity> {
    let mut connections = 0;
    for row in rows::all(tx, all(broker).children(), Read::Snapshot).await? {
        let (count, at_ms) = decode(&row)?;
        if at_ms + COUNTS_MS > now_ms {
            connections += count;
        }
    }
    let count = async |counter| usage::get(tx, broker, counter).await;
    let mut drops = [0; DROP_REASONS];
    for (drops, counter) in drops.iter_mut().zip(DROP_COUNTERS) {
        *drops = count(counter).await?;
    }
    let (stored_messages, stored_bytes) = history::stored(tx, broker).await?;
    Ok(BrokerActivity {
        connections,
        messages_in: count(Counter::PublishedMessages).await?,
        messages_out: count(Counter::DeliveredMessages).await?,
        bytes_in: count(Counter::PublishedBytes).await?,
        bytes_out: count(Counter::DeliveredBytes).await?,
        dropped: count(Counter::DroppedMessages).await?,
        drops,
        stored_messages,
        stored_bytes,
    })
}

pub(super) fn report_connections(
    tx: &Transaction,
    broker: BrokerId,
    pod: &[u8],
    connections: u64,
    now_ms: u64,
) -> LayerResult<()> {
    let key = all(broker).bytes(pod);
    if connections == 0 {
        return Ok(tx.clear(key)?);
    }
    let mut value = Vec::with_capacity(16);
    value.put_u64(connections);
    value.put_u64(now_ms);
    Ok(tx.set(key, value)?)
}

pub(super) async fn clear_old(tx: &Transaction, broker: BrokerId, now_ms: u64) -> LayerResult<()> {
    for row in rows::all(tx, all(broker).children(), Read::Snapshot).await? {
        let (_, at_ms) = decode(&row)?;
        if at_ms + GONE_POD_KEPT_MS < now_ms {
            tx.clear(&row.key)?;
        }
    }
    Ok(())
}

fn decode(row: &KeyValue) -> LayerResult<(u64, u64)> {
    let mut value = row.value.clone();
    Ok((value.try_get_u64()?, value.try_get_u64()?))
}

fn all(broker: BrokerId) -> Key {
    Key::new(broker, tags::USAGE_PRESENCE)
}
