//! Errors of transactions and of opening a store.

use std::path::PathBuf;

use crate::limits::KEY_BYTES_MAX;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("the transaction conflicts with one that committed after it had read")]
    Conflict,
    /// The transaction is older than the versions that the store still keeps.
    #[error("the transaction is too old")]
    TooOld,
    /// The store failed during the commit, so the transaction may or may not be durable. Retry it
    /// only if it checks this, or may happen twice.
    #[error("it is not known whether the transaction committed")]
    CommitUnknown,
    #[error("the commit queue is full")]
    Busy,
    /// The store is recovering from a failure of its disk, or the cluster cannot be reached.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Less disk space is free than the reserve: writes are refused until more is free, and reads
    /// continue.
    #[error("the disk is nearly full: {free_bytes} bytes are free, {reserve_bytes} are kept in reserve")]
    DiskFull { free_bytes: u64, reserve_bytes: u64 },
    #[error("the disk failed: {0}")]
    Io(String),
    #[error("the cluster refused: {reason} (FoundationDB error {code})")]
    Cluster { code: i32, reason: &'static str },
    #[error("stored data is corrupted: {0}")]
    Corrupt(String),
    #[error("the transaction was committed before")]
    Used,
    #[error("the store is closed")]
    Closed,
    #[error("a key of {0} bytes is not allowed: keys are 1 to {KEY_BYTES_MAX} bytes and begin below 0xff")]
    KeyNotAllowed(usize),
    #[error("a value of {0} bytes is not allowed: values have at most 100000 bytes")]
    ValueTooLarge(usize),
    #[error("the transaction is larger than 10000000 bytes")]
    TransactionTooLarge,
    #[error("the range ends before it begins")]
    InvertedRange,
    /// The transaction read keys that it sets with a versionstamp, which exists only after the
    /// commit.
    #[error("versionstamped keys cannot be read in the transaction that sets them")]
    Unreadable,
}

impl StoreError {
    /// True when the same transaction may succeed if it is run again from its beginning.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Conflict | Self::TooOld | Self::CommitUnknown | Self::Busy | Self::Unavailable(_)
        )
    }

    #[must_use]
    pub fn is_maybe_committed(&self) -> bool {
        *self == Self::CommitUnknown
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error("the data folder {0} is in use by another process")]
    Locked(PathBuf),
    #[error("the data folder {path} has format {found}, and this version reads formats up to {known}")]
    NewerFormat { path: PathBuf, found: u32, known: u32 },
    #[error("the folder {0} is not empty and is not a data folder of this program")]
    NotAStore(PathBuf),
    #[error("the folder {0} has the name of a copy that did not end")]
    Partial(PathBuf),
    #[error("the data folder {0} cannot be written to")]
    ReadOnly(PathBuf),
    #[error("there is no space left for the data folder {0}")]
    NoSpace(PathBuf),
    #[error("the data folder {path} is corrupted: {reason}")]
    Corrupt { path: PathBuf, reason: String },
    #[error("the data folder {path} cannot be opened")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}
