use bytes::TryGetError;
use millrace_storage::{StoreError, TransactionFailure};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session has a newer owner or is gone, so the transaction wrote nothing for it.
    #[error("the session is not of epoch {epoch} any more")]
    Fenced { epoch: u64 },
    #[error("a name of {bytes} bytes is longer than {bytes_max}")]
    NameTooLong { bytes: usize, bytes_max: usize },
    #[error("a message of {0} bytes is longer than 8000000")]
    BodyTooLarge(usize),
    #[error("the topic matches {0} distinct persistent filters, more than 1000")]
    TooManyStreams(usize),
    #[error("the filter is shared by more than 64 groups")]
    TooManyGroups,
    /// The transaction was in conflict or too old this many times; parts of the work may be committed.
    #[error("the transaction was in conflict or too old {0} times")]
    Contended(u32),
    /// The operator's secret is missing, or is not the one that a key was made with.
    #[error("the secret of secret_key_file {0}")]
    SecretKey(&'static str),
    #[error("a stored {0} cannot be read")]
    Corrupt(&'static str),
}

pub type LayerResult<T> = Result<T, LayerError>;

impl TransactionFailure for LayerError {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<TryGetError> for LayerError {
    fn from(_: TryGetError) -> Self {
        Self::Corrupt("value")
    }
}
