//! Limits of the interface, the same for every engine, so that nothing works on one and fails on the other. They are
//! FoundationDB's, which cannot be configured, so they are not settings.

use std::time::Duration;

/// How long after its begin a transaction may read and commit.
pub const TRANSACTION_AGE_MAX: Duration = Duration::from_secs(5);

/// Bytes of a transaction: keys, values and conflict ranges, counted by [`cost`].
pub const TRANSACTION_BYTES_MAX: usize = 10_000_000;

/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 10_000;

/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 100_000;

/// Bytes of keys and values after which a range read ends its page, whatever the limit of rows: bounds the memory
/// of one read.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Keys from here on belong to the engine.
pub const KEY_SPACE_END: &[u8] = b"\xff";

/// What FoundationDB keeps for one write or range beside its bytes.
const OVERHEAD: usize = 64;

/// What one write costs of [`TRANSACTION_BYTES_MAX`]: its key three times (the write and both ends of its conflict range),
/// its value, and what FoundationDB keeps beside them.
#[must_use]
pub fn cost(key: usize, value: usize) -> usize {
    3 * key + value + OVERHEAD
}
