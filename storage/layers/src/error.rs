//! Why a layer refused something.

use bytes::TryGetError;
use millrace_storage::{Error as StoreError, Failure};

/// What a layer ends with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed, or the transaction must be run again.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session has another owner by now, or is gone. Nothing was written for it.
    #[error("the session is not of epoch {epoch} any more")]
    Fenced {
        /// The epoch of who asked.
        epoch: u64,
    },
    /// A client id, filter or topic is longer than the store takes.
    #[error("a name of {bytes} bytes is longer than {bytes_max}")]
    NameTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A message is longer than the store takes.
    #[error("a message of {0} bytes is longer than 8000000")]
    BodyTooLarge(usize),
    /// A publish matches more streams than the store writes at once.
    #[error("the topic matches {0} distinct persistent filters, more than 1000")]
    TooManyStreams(usize),
    /// A filter is shared by more groups than the store keeps.
    #[error("the filter is shared by more than 64 groups")]
    TooManyGroups,
    /// A transaction was in conflict, or too old, so many times: a part of it may be written.
    #[error("the transaction was in conflict or too old {0} times")]
    Contended(u32),
    /// The operator's secret is missing, or is not the one that a key was made with.
    #[error("the secret of secret_key_file {0}")]
    SecretKey(&'static str),
    /// A key or value is not what a layer wrote.
    #[error("a stored {0} cannot be read")]
    Corrupt(&'static str),
}

/// The result of a layer's function.
pub type Result<T> = std::result::Result<T, Error>;

impl Failure for Error {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<TryGetError> for Error {
    fn from(_: TryGetError) -> Self {
        Self::Corrupt("value")
    }
}
