//! Limits of the interface, the same for every engine, so that nothing works on one and fails on the other. They are
//! FoundationDB's, which cannot be configured, less what our engine over it adds, so they are not settings.

use std::time::Duration;

/// How long after its begin a transaction may read and commit.
pub const TRANSACTION_AGE_MAX: Duration = Duration::from_secs(5);

/// Bytes of a transaction: keys, values and conflict ranges, counted by [`cost`] and [`range_cost`].
pub const TRANSACTION_BYTES_MAX: usize = 10_000_000;

/// Bytes of what all keys of a store in a cluster begin with.
pub const PREFIX_BYTES_MAX: usize = 16;

/// Bytes of a key: FoundationDB's 10,000, less the prefix and four bytes that say where a versionstamp goes.
pub const KEY_BYTES_MAX: usize = 10_000 - PREFIX_BYTES_MAX - 4;

/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 100_000;

/// Bytes of keys and values after which a range read ends its page, whatever the limit of rows: bounds the memory
/// of one read.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Keys from here on belong to the engine.
pub const KEY_SPACE_END: &[u8] = b"\xff";

/// What FoundationDB keeps for one write and its conflict range beside their bytes: two records of 44 and 24 bytes, a byte
/// after the key, and the prefix in up to four ends.
const OVERHEAD: usize = 44 + 24 + 2 + 4 * PREFIX_BYTES_MAX + 4;

/// What one write costs of [`TRANSACTION_BYTES_MAX`]: its key three times (the write and both ends of its conflict range),
/// its value, and what FoundationDB keeps beside them.
#[must_use]
pub fn cost(key: usize, value: usize) -> usize {
    3 * key + value + OVERHEAD
}

/// What the write of a range costs of it, also of one key, as a deletion is one: both ends twice.
#[must_use]
pub fn range_cost(begin: usize, end: usize) -> usize {
    2 * (begin + end) + OVERHEAD
}
