//! Counters of a broker, added to without a read, so that writers never conflict.

use millrace_storage::{Read, Transaction};

use crate::{BrokerId, error::LayerResult, rows, tags, tuple::Key};

/// The numbers are in keys and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Counter {
    TrimmedEntries = 1,
    TrimmedBytes = 2,
    /// Entries that were trimmed before a session read them.
    MissedEntries = 3,
    PublishedMessages = 4,
    PublishedBytes = 5,
    DeliveredMessages = 6,
    DeliveredBytes = 7,
    /// The sum of those for the reasons below.
    DroppedMessages = 8,
    DroppedBusySocket = 9,
    DroppedQueueFull = 10,
    DroppedQueueMemory = 11,
    DroppedExpired = 12,
    DroppedPacketTooLarge = 13,
}

#[cfg(test)]
impl Counter {
    pub(crate) const ALL: [Self; 13] = [
        Self::TrimmedEntries,
        Self::TrimmedBytes,
        Self::MissedEntries,
        Self::PublishedMessages,
        Self::PublishedBytes,
        Self::DeliveredMessages,
        Self::DeliveredBytes,
        Self::DroppedMessages,
        Self::DroppedBusySocket,
        Self::DroppedQueueFull,
        Self::DroppedQueueMemory,
        Self::DroppedExpired,
        Self::DroppedPacketTooLarge,
    ];
}

pub fn add(tx: &Transaction, broker: BrokerId, counter: Counter, added: u64) -> LayerResult<()> {
    if added == 0 {
        return Ok(());
    }
    Ok(tx.atomic_add(key(broker, counter), added.cast_signed())?)
}

pub async fn get(tx: &Transaction, broker: BrokerId, counter: Counter) -> LayerResult<u64> {
    rows::counter(tx, &key(broker, counter), Read::Snapshot).await
}

fn key(broker: BrokerId, counter: Counter) -> Key {
    Key::new(broker, tags::USAGE).uint(counter as u64)
}
