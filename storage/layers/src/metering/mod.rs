//! What brokers use, in windows of an hour, and how much they hold. Everything is added, nothing is read first: nobody conflicts.
//!
//! What happens at a moment, or lasts a while that its writer knows, is added to the window ([`add`]). What lasts until somebody else
//! ends it, such as a message in a stream, is a [`Level`]: each change of it says how much there is more or less from then on, and
//! [`used`] makes the integral of that (`levels.rs`).

mod flush;
mod fold;
mod levels;
mod presence;
mod read;

#[cfg(test)]
mod tests;

pub use flush::{Flush, Flushed, Said, begin, flush, forget};
pub use fold::{Fold, fold};
pub use levels::{Level, change};
pub use presence::{Live, live};
pub use read::{Window, used};

use millrace_storage::Transaction;

use crate::{BrokerId, error::Result, tags, tuple::Key};

/// Length of a window.
pub const WINDOW_MS: u64 = 3_600_000;

/// Bytes of a message that are one unit; one that has more counts as several.
pub const MESSAGE_BYTES: usize = 4_096;

/// What is added up in windows. The numbers are in keys: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unit {
    /// Milliseconds that clients were connected.
    ConnectedMs = 1,
    /// Units of messages that clients published.
    MessagesIn = 2,
    /// Units of copies of messages that went out to clients.
    MessagesDelivered = 3,
    /// Bytes of messages that clients published: topic, properties and payload.
    BytesIn = 4,
    /// Bytes of copies that went out.
    BytesOut = 5,
    /// Milliseconds that sessions waited for their clients. Only of ledgers; a broker has [`Level::Sessions`].
    StoredSessionMs = 6,
    /// Seconds that bytes were held. Only of ledgers; a broker has [`Level::Bytes`].
    StoredByteS = 7,
}

/// The units of a message of this size.
#[must_use]
pub fn message_units(bytes: usize) -> u64 {
    bytes.div_ceil(MESSAGE_BYTES).max(1) as u64
}

/// The beginning of the window of a time.
#[must_use]
pub fn window_of(at_ms: u64) -> u64 {
    at_ms - at_ms % WINDOW_MS
}

/// Adds to the window of a time.
///
/// # Errors
/// The store's.
pub fn add(tx: &Transaction, broker: BrokerId, unit: Unit, at_ms: u64, added: i64) -> Result<()> {
    add_to(tx, broker, window_of(at_ms), unit as u64, added)
}

fn add_to(tx: &Transaction, broker: BrokerId, window_ms: u64, code: u64, added: i64) -> Result<()> {
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
