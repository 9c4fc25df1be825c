//! Counters of a broker. Adding reads nothing, so nobody conflicts.

use millrace_storage::{Read, Transaction};

use crate::{BrokerId, error::Result, rows, tags, tuple::Key};

/// What is counted. The numbers are in keys: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Counter {
    /// Entries of streams that a limit removed.
    TrimmedEntries = 1,
    /// Bytes of their bodies.
    TrimmedBytes = 2,
    /// Entries that sessions missed because they were trimmed before they were read.
    MissedEntries = 3,
    /// Messages that clients published.
    PublishedMessages = 4,
    /// Their bytes.
    PublishedBytes = 5,
    /// Copies of messages that went out to clients.
    DeliveredMessages = 6,
    /// Their bytes.
    DeliveredBytes = 7,
    /// Copies that did not reach a subscriber.
    DroppedMessages = 8,
}

impl Counter {
    /// All counters.
    pub const ALL: [Self; 8] = [
        Self::TrimmedEntries,
        Self::TrimmedBytes,
        Self::MissedEntries,
        Self::PublishedMessages,
        Self::PublishedBytes,
        Self::DeliveredMessages,
        Self::DeliveredBytes,
        Self::DroppedMessages,
    ];
}

/// Adds to a counter.
///
/// # Errors
/// The store's.
pub fn add(tx: &Transaction, broker: BrokerId, counter: Counter, added: u64) -> Result<()> {
    if added == 0 {
        return Ok(());
    }
    Ok(tx.atomic_add(key(broker, counter), added.cast_signed())?)
}

/// The value of a counter. A snapshot read.
///
/// # Errors
/// The store's.
pub async fn get(tx: &Transaction, broker: BrokerId, counter: Counter) -> Result<u64> {
    rows::counter(tx, &key(broker, counter), Read::Snapshot).await
}

fn key(broker: BrokerId, counter: Counter) -> Key {
    Key::new(broker, tags::USAGE).uint(counter as u64)
}
