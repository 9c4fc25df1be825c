//! Ordered logs, one for each distinct persistent filter: a publish is appended once to each that matches, however many
//! sessions read it, and a session reads all of its own with one cursor.
//!
//! A versionstamp is a place in the commit order of the whole store. So a message that stands in several streams has the same
//! position in each, and all that is read at one version up to some position is all there ever will be up to it.
//!
//! Long bodies that match several streams, and bodies longer than a value, are stored apart, under the versionstamp of their
//! entries. They live as long as the last entry; see [`sweep_bodies`].

mod append;
mod claims;
mod group;
pub(crate) mod keys;
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

pub use append::{Added, Publish, append, append_of_many};
pub use claims::{Claimed, claim, free_all, has_any, keep, settle};
pub use group::{Progress, progress, set_progress};
pub use newest::{Newest, newest};
pub use read::{Batch, Entry, ReadLimit, Source, read};
pub use row::{Missed, Stream, list, set_partitions, stream};
pub(crate) use sweep::drop_stream;
pub use sweep::{Swept, sweep_bodies, sweep_dropped};
pub use totals::{Totals, all_totals, totals};
pub use trim::{Span, Trimmed, trim, trim_by_age, trim_by_size};
pub use waiting::{Waiting, waiting};

/// The id of a stream within its broker. A filter that loses its last subscriber and gains one again has another stream.
pub type StreamId = u64;

/// A partition of a stream, where a publisher appends: the same publisher always to the same while their number stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamRef {
    /// The stream.
    pub stream: StreamId,
    /// The partition, below the number that the stream has.
    pub partition: u8,
}
