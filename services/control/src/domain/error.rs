//! Why an operation was not done.

use millrace_access::model::Invalid;
use millrace_layers::Error as LayerError;
use millrace_storage::{Error as StoreError, TransactionFailure};

use crate::secret::NoEntropy;

/// Why an operation was not done. The sentences are for who asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody is known by what was shown.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The password is right, and the code of the second factor is missing.
    #[error("the password is right: send the code of your second factor with it, as `code`")]
    CodeNeeded,
    /// The password is right, and the code of the second factor is not.
    #[error("the code is not right, or was used before: wait for the next one, or send a recovery code")]
    CodeWrong,
    /// Too many wrong codes: those of the device are not looked at for so many seconds.
    #[error("there were too many wrong codes: send a recovery code, or try again in {0} s")]
    TooManyCodes(u64),
    /// It is known who asks, and they may not.
    #[error("{0}")]
    Forbidden(String),
    /// There is no such thing, or it is another tenant's.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// It goes against what is there.
    #[error("{0}")]
    Conflict(String),
    /// What is there is not what the caller has seen.
    #[error("it was changed since you read it: read it again, and send its ETag with If-Match")]
    Changed,
    /// Fields are wrong.
    #[error("some fields are not right")]
    Invalid(Vec<Invalid>),
    /// The key of a request was used for another one.
    #[error("this Idempotency-Key was used for another request: use a new one for each")]
    KeyReused,
    /// The system, or what is stored, is broken.
    #[error("{0}")]
    Internal(&'static str),
    /// The layers, or the store below.
    #[error(transparent)]
    Layer(#[from] LayerError),
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// One wrong field.
    pub(crate) fn field(field: &str, what: impl Into<String>) -> Self {
        Self::Invalid(vec![Invalid { field: field.into(), what: what.into() }])
    }
}

impl TransactionFailure for Error {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Layer(error) => error.store_error(),
            _ => None,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Layer(error.into())
    }
}

impl From<NoEntropy> for Error {
    fn from(_: NoEntropy) -> Self {
        Self::Internal("the system gives no random bytes")
    }
}

impl From<Vec<Invalid>> for Error {
    fn from(found: Vec<Invalid>) -> Self {
        Self::Invalid(found)
    }
}
