//! Limits of the interface: FoundationDB's, which cannot be configured, less the needs of our
//! engine over it. They are the same for every engine, so that nothing works on one and fails on
//! the other.

use std::time::Duration;

/// Longest age at which a transaction may read and commit.
pub const TRANSACTION_AGE_MAX: Duration = Duration::from_secs(5);

/// Bytes of a transaction: keys, values and conflict ranges, counted by [`cost`] and
/// [`range_cost`].
pub const TRANSACTION_BYTES_MAX: usize = 10_000_000;

/// Longest prefix of the keys of a store in a cluster, bytes.
pub const PREFIX_BYTES_MAX: usize = 16;

/// Bytes of a key: FoundationDB's 10,000, less the prefix and the four bytes of a versionstamp's
/// offset.
pub const KEY_BYTES_MAX: usize = 10_000 - PREFIX_BYTES_MAX - 4;

pub const VALUE_BYTES_MAX: usize = 100_000;

/// Bytes of keys and values after which a range read ends its page, whatever its row limit: bounds
/// the memory of one read.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Keys from here on belong to the engine.
pub const KEY_SPACE_END: &[u8] = b"\xff";

/// FoundationDB's overhead of one write and its conflict range: two records of 44 and 24 bytes, a
/// byte after the key, and the prefix in up to four ends.
const OVERHEAD: usize = 44 + 24 + 2 + 4 * PREFIX_BYTES_MAX + 4;

/// The part of [`TRANSACTION_BYTES_MAX`] that one write uses: its key three times (the write and
/// both ends of its conflict range), its value, and FoundationDB's overhead.
#[must_use]
pub fn cost(key: usize, value: usize) -> usize {
    3 * key + value + OVERHEAD
}

/// The part that the write of a range uses: both ends twice, also for the deletion of one key.
#[must_use]
pub fn range_cost(begin: usize, end: usize) -> usize {
    2 * (begin + end) + OVERHEAD
}
