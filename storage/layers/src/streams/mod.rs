//! Ordered logs, one for each distinct persistent filter. A publish is appended once to each matching stream, however
//! many sessions read it, and a session reads all its streams with one cursor.
//!
//! A versionstamp is a position in the commit order of the whole store. So a message has the same position in each of
//! its streams, and a read at one version up to some position is complete up to there.
//!
//! Bodies that are long and match several streams, or exceed a value, are stored apart under the versionstamp of
//! their entries, until [`sweep_bodies`] finds that the last entry is gone.

mod append;
mod claims;
mod group;
pub(crate) mod keys;
mod losses;
mod merge;
mod newest;
mod read;
pub(crate) mod row;
mod sweep;
mod totals;
mod trim;
mod waiting;

#[cfg(test)]
mod tests;

pub use append::{Added, NewEntry, append, append_of_many};
pub use claims::{Claimed, SettledClaims, claim, claimed_by, free_all, has_any, keep, settle};
pub use group::{GroupProgress, progress, set_progress};
pub use losses::{LossCause, LossReason, StreamLoss, losses};
pub use newest::{Newest, newest};
pub use read::{ReadLimit, StreamBatch, StreamEntry, StreamSource, read, read_within};
pub use row::{Missed, Stream, list, set_partitions, stream};
pub(crate) use sweep::drop_stream;
pub use sweep::{DroppedFrom, Swept, SweptDropped, sweep_bodies, sweep_dropped};
pub use totals::{Totals, all_totals, totals};
pub use trim::{CountedSpan, StreamLimits, Trimmed, trim, trim_by_age, trim_by_size, trim_some};
pub use waiting::{WaitingMessages, waiting};

/// Id of a stream within its broker; a filter that has lost its last subscriber gets a new stream with the next one.
pub type StreamId = u64;

/// A partition of a stream; a publisher always appends to the same one while their number stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamRef {
    pub stream: StreamId,
    pub partition: u8,
}
