//! A pod says what it has counted. Adding twice would be wrong, and an answer may get lost: so its words are numbered, the number of the
//! last one stands in the store, and each looks at it before it adds. What a pod counted and did not say in time is lost with it.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, Read, Transaction};

use super::{Unit, WINDOW_MS, add, presence, window, window_of, windows};
use crate::{
    BrokerId,
    error::Result,
    limits::USAGE_WINDOWS_KEPT,
    tags,
    tuple::Key,
    usage::{self, Counter},
};

/// Which word of which pod.
#[derive(Clone, Copy, Debug)]
pub struct Flush<'p> {
    /// The pod.
    pub pod: &'p [u8],
    /// The process that is this pod, by a number that no other has.
    pub incarnation: u64,
    /// Counts up from 1.
    pub number: u64,
    /// The time, in unix milliseconds.
    pub now_ms: u64,
}

/// What a pod has counted of a broker since its last word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Of which.
    pub broker: BrokerId,
    /// A time in the window that it belongs to, in unix milliseconds.
    pub at_ms: u64,
    /// By [`Unit`], from the first on. A connection that ended sooner than was thought takes time back.
    pub units: [i64; 5],
    /// [`Counter::PublishedMessages`] and all after it.
    pub counters: [u64; 5],
    /// Clients that are connected to the pod now.
    pub connections: u64,
    /// Whether the pod says something of this broker for the first time in this window.
    pub is_new: bool,
}

/// What became of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// It is added, by this transaction or by an earlier one whose answer was lost.
    Added,
    /// The pod was taken for dead: nothing is added unless it begins anew.
    Forgotten,
    /// The pod is another process by now: nothing is added.
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

/// This process is the pod from here on; an earlier one adds nothing any more.
///
/// # Errors
/// The store's.
pub fn begin(tx: &Transaction, pod: &[u8], incarnation: u64) -> Result<()> {
    Ok(tx.set(key(pod), last(incarnation, 0))?)
}

/// Adds what a pod has counted, once.
///
/// # Errors
/// The store's.
pub async fn flush(tx: &Transaction, flush: Flush<'_>, said: &[Said]) -> Result<Flushed> {
    let key = key(flush.pod);
    let Some(mut row) = tx.get(&key, Read::Serializable).await? else { return Ok(Flushed::Forgotten) };
    if row.try_get_u64()? != flush.incarnation {
        return Ok(Flushed::Replaced);
    }
    if row.try_get_u64()? >= flush.number {
        return Ok(Flushed::Added);
    }
    tx.set(key, last(flush.incarnation, flush.number))?;
    for said in said {
        write(tx, &flush, said).await?;
    }
    Ok(Flushed::Added)
}

/// Forgets a pod that is gone: what it may still say is not added.
///
/// # Errors
/// The store's.
pub fn forget(tx: &Transaction, pod: &[u8]) -> Result<()> {
    Ok(tx.clear(key(pod))?)
}

async fn write(tx: &Transaction, flush: &Flush<'_>, said: &Said) -> Result<()> {
    let broker = said.broker;
    for (unit, added) in UNITS.into_iter().zip(said.units) {
        add(tx, broker, unit, said.at_ms, added)?;
    }
    for (counter, added) in COUNTERS.into_iter().zip(said.counters) {
        usage::add(tx, broker, counter, added)?;
    }
    presence::say(tx, broker, flush.pod, said.connections, flush.now_ms)?;
    if said.is_new {
        presence::clear_old(tx, broker, flush.now_ms).await?;
        let oldest = window_of(said.at_ms).saturating_sub(USAGE_WINDOWS_KEPT * WINDOW_MS);
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
