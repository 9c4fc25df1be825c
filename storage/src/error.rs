//! Errors of transactions and of opening a store.

use std::path::PathBuf;

use crate::limits::KEY_BYTES_MAX;

/// Reasons why a read or a commit failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that the transaction read was changed before it committed. Retryable.
    #[error("the transaction conflicts with one that committed after it had read")]
    Conflict,
    /// The transaction is older than the store keeps versions for. Retryable.
    #[error("the transaction is too old")]
    TooOld,
    /// The store failed during the commit: the transaction may or may not be durable. Retryable by a transaction that
    /// checks this, or may happen twice.
    #[error("it is not known whether the transaction committed")]
    CommitUnknown,
    /// The commit queue is full. Retryable.
    #[error("too much waits to be committed")]
    Busy,
    /// The store recovers from a failure of its disk, or the cluster cannot be reached. Retryable.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Less disk space is free than the reserve: writes are refused until more is free, reads go on.
    #[error("the disk is nearly full: {free_bytes} bytes are free, {reserve_bytes} are kept in reserve")]
    DiskFull {
        /// Free bytes.
        free_bytes: u64,
        /// Bytes below which no write is accepted.
        reserve_bytes: u64,
    },
    /// The disk failed: writes are refused until the store could be opened again.
    #[error("the disk failed: {0}")]
    Io(String),
    /// The cluster refused for a permanent reason.
    #[error("the cluster refused: {reason} (FoundationDB error {code})")]
    Cluster {
        /// FoundationDB's error code.
        code: i32,
        /// FoundationDB's message.
        reason: &'static str,
    },
    /// Stored data is damaged.
    #[error("stored data is corrupted: {0}")]
    Corrupt(String),
    /// The transaction was committed before.
    #[error("the transaction was committed before")]
    Used,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// A key is empty, longer than [`KEY_BYTES_MAX`] or not below [`crate::limits::KEY_SPACE_END`].
    #[error("a key of {0} bytes is not allowed: keys are 1 to {KEY_BYTES_MAX} bytes and begin below 0xff")]
    KeyNotAllowed(usize),
    /// A value is longer than [`crate::limits::VALUE_BYTES_MAX`].
    #[error("a value of {0} bytes is not allowed: values have at most 100000 bytes")]
    ValueTooLarge(usize),
    /// The transaction is larger than [`crate::limits::TRANSACTION_BYTES_MAX`].
    #[error("the transaction is larger than 10000000 bytes")]
    TransactionTooLarge,
    /// A range ends before it begins.
    #[error("the range ends before it begins")]
    InvertedRange,
    /// A read of keys that this transaction sets with a versionstamp, which exists only after the commit.
    #[error("versionstamped keys cannot be read in the transaction that sets them")]
    Unreadable,
}

impl Error {
    /// Returns whether the same transaction may succeed when it is run again from its beginning.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Conflict | Self::TooOld | Self::CommitUnknown | Self::Busy | Self::Unavailable(_)
        )
    }

    /// Returns whether the transaction may have committed in spite of the error.
    #[must_use]
    pub fn is_maybe_committed(&self) -> bool {
        *self == Self::CommitUnknown
    }
}

/// Reasons why a data folder was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the folder open.
    #[error("the data folder {0} is in use by another process")]
    Locked(PathBuf),
    /// A later version of the program wrote the folder.
    #[error("the data folder {path} has format {found}, and this version reads formats up to {known}")]
    NewerFormat {
        /// The folder.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format that this version reads.
        known: u32,
    },
    /// The folder is not a data folder.
    #[error("the folder {0} is not empty and is no data folder of this program")]
    NotAStore(PathBuf),
    /// The folder cannot be written to.
    #[error("the data folder {0} cannot be written to")]
    ReadOnly(PathBuf),
    /// The disk is full.
    #[error("there is no space left for the data folder {0}")]
    NoSpace(PathBuf),
    /// A file is damaged.
    #[error("the data folder {path} is corrupted: {reason}")]
    Corrupt {
        /// The folder.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
    /// Another error of the disk.
    #[error("the data folder {path} cannot be opened")]
    Io {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}
