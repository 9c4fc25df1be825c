//! Usage of brokers in windows of an hour, written by additions without a read, so that writers never conflict.
//!
//! [`add`] adds events, and durations that their writer knows, to a window. A duration that somebody else ends, such
//! as the storage of a message, is a [`Level`]: each change says how much more or less there is from then on, and
//! [`used`] computes the integral (`levels.rs`).

mod flush;
mod fold;
mod history;
mod levels;
mod presence;
mod read;

#[cfg(test)]
mod tests;

pub use flush::{Flush, Flushed, UsageReport, begin, flush, forget};
pub use fold::{Fold, fold};
pub use history::{
    DROP_REASONS, DropCause, LATENCY_BOUNDS_US, LatencyClasses, NewPoint, Point, Resolution, forget_history,
    history, latency_us, stored,
};
pub use levels::{HeldLevels, Level, change, held};
pub(crate) use levels::{change_messages, change_will_bytes, key as level_key, messages as messages_key};
pub use presence::{BrokerActivity, live};
pub use read::{Window, used};

use millrace_storage::Transaction;

use crate::{BrokerId, error::LayerResult, tags, tuple::Key};

pub const WINDOW_MS: u64 = 3_600_000;

/// A larger message counts as several units of this many bytes.
pub const MESSAGE_BYTES: usize = 4_096;

/// A quantity that is added up in windows; its numbers are in keys and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unit {
    ConnectedMs = 1,
    MessagesIn = 2,
    MessagesDelivered = 3,
    /// Bytes of published messages: topic, properties and payload.
    BytesIn = 4,
    BytesOut = 5,
    /// Milliseconds of offline sessions; only in ledgers, because a broker has [`Level::Sessions`].
    StoredSessionMs = 6,
    /// Seconds of stored bytes; only in ledgers, because a broker has [`Level::Bytes`].
    StoredByteS = 7,
    /// Seconds of retained bytes; only in ledgers, because a broker has [`Level::Retained`].
    RetainedByteS = 8,
}

#[must_use]
pub fn message_units(bytes: usize) -> u64 {
    bytes.div_ceil(MESSAGE_BYTES).max(1) as u64
}

#[must_use]
pub fn window_of(at_ms: u64) -> u64 {
    at_ms - at_ms % WINDOW_MS
}

pub fn add(tx: &Transaction, broker: BrokerId, unit: Unit, at_ms: u64, added: i64) -> LayerResult<()> {
    add_to(tx, broker, window_of(at_ms), unit as u64, added)
}

fn add_to(tx: &Transaction, broker: BrokerId, window_ms: u64, code: u64, added: i64) -> LayerResult<()> {
    if added == 0 {
        return Ok(());
    }
    Ok(tx.atomic_add(window(broker, window_ms).uint(code), added)?)
}

fn windows(broker: BrokerId) -> Key {
    Key::new(broker, tags::USAGE_WINDOW)
}

fn window(broker: BrokerId, window_ms: u64) -> Key {
    windows(broker).uint(window_ms)
}
