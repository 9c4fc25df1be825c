//! Adds a pod's usage to the store, each count exactly once, although the answer to a commit may be lost: a pod numbers
//! its flushes, and each flush compares its number with that of the last one in the store. Usage that a pod has not
//! flushed is lost with the pod.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, Read, Transaction};

use super::{DROP_REASONS, NewPoint, Unit, WINDOW_MS, add, history, presence, window, window_of, windows};
use crate::{
    BrokerId,
    error::LayerResult,
    limits::USAGE_WINDOWS_KEPT,
    tags,
    tuple::Key,
    usage::{self, Counter},
};

#[derive(Clone, Copy, Debug)]
pub struct Flush<'p> {
    pub pod: &'p [u8],
    /// Identifies the process that runs as the pod.
    pub incarnation: u64,
    /// Number of the flush of this process, from 1.
    pub number: u64,
    pub now_ms: u64,
}

/// Usage that a pod has counted for a broker since its last flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    pub broker: BrokerId,
    /// A time in the window of this usage, unix milliseconds.
    pub at_ms: u64,
    /// By [`Unit`], from the first on; negative when a connection ended before the time up to which the last flush counted it.
    pub units: [i64; 5],
    /// [`Counter::PublishedMessages`] and all counters after it.
    pub counters: [u64; 5],
    pub connections: u64,
    /// The pod's first flush for this broker in this window.
    pub is_new: bool,
    /// By [`super::DropCause`], without the last one: the trim counts the messages that it removes.
    pub drops: [u64; DROP_REASONS - 1],
    /// Rows of the history that are complete, or new.
    pub points: Vec<NewPoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// By this transaction, or by an earlier one whose answer was lost.
    Added,
    /// Other pods took the pod for dead, so it must call [`begin`] again.
    Forgotten,
    /// A newer process runs as this pod.
    Replaced,
}

const UNITS: [Unit; 5] =
    [Unit::ConnectedMs, Unit::MessagesIn, Unit::MessagesDelivered, Unit::BytesIn, Unit::BytesOut];
const COUNTERS: [Counter; 5] = [
    Counter::PublishedMessages,
    Counter::PublishedBytes,
    Counter::DeliveredMessages,
    Counter::DeliveredBytes,
    Counter::DroppedMessages,
];

pub(super) const DROP_COUNTERS: [Counter; DROP_REASONS] = [
    Counter::DroppedBusySocket,
    Counter::DroppedQueueFull,
    Counter::DroppedQueueMemory,
    Counter::DroppedExpired,
    Counter::DroppedPacketTooLarge,
    Counter::TrimmedEntries,
];

/// Makes this process run as the pod; flushes of an earlier process are refused from now on.
pub fn begin(tx: &Transaction, pod: &[u8], incarnation: u64) -> LayerResult<()> {
    Ok(tx.set(key(pod), last(incarnation, 0))?)
}

pub async fn flush(tx: &Transaction, flush: Flush<'_>, report: &[UsageReport]) -> LayerResult<Flushed> {
    let key = key(flush.pod);
    let Some(mut row) = tx.get(&key, Read::Serializable).await? else { return Ok(Flushed::Forgotten) };
    if row.try_get_u64()? != flush.incarnation {
        return Ok(Flushed::Replaced);
    }
    if row.try_get_u64()? >= flush.number {
        return Ok(Flushed::Added);
    }
    tx.set(key, last(flush.incarnation, flush.number))?;
    for report in report {
        write(tx, &flush, report).await?;
    }
    Ok(Flushed::Added)
}

pub fn forget(tx: &Transaction, pod: &[u8]) -> LayerResult<()> {
    Ok(tx.clear(key(pod))?)
}

async fn write(tx: &Transaction, flush: &Flush<'_>, report: &UsageReport) -> LayerResult<()> {
    let broker = report.broker;
    for (unit, added) in UNITS.into_iter().zip(report.units) {
        add(tx, broker, unit, report.at_ms, added)?;
    }
    let counters = COUNTERS.into_iter().zip(report.counters);
    for (counter, added) in counters.chain(DROP_COUNTERS.into_iter().zip(report.drops)) {
        usage::add(tx, broker, counter, added)?;
    }
    for point in &report.points {
        history::write(tx, broker, flush.incarnation, point).await?;
    }
    presence::report_connections(tx, broker, flush.pod, report.connections, flush.now_ms)?;
    if report.is_new {
        presence::clear_old(tx, broker, flush.now_ms).await?;
        let oldest = window_of(report.at_ms).saturating_sub(USAGE_WINDOWS_KEPT * WINDOW_MS);
        tx.clear_range(KeyRange::new(
            windows(broker).children().begin,
            window(broker, oldest).children().begin,
        ))?;
    }
    Ok(())
}

fn last(incarnation: u64, number: u64) -> Bytes {
    let mut value = Vec::with_capacity(16);
    value.put_u64(incarnation);
    value.put_u64(number);
    value.into()
}

fn key(pod: &[u8]) -> Key {
    Key::new(tags::REGION, tags::USAGE_FLUSH).bytes(pod)
}
