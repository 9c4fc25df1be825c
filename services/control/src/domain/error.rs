//! Errors of the operations.

use millrace_access::model::Invalid;
use millrace_layers::LayerError;
use millrace_storage::{StoreError, TransactionFailure};

use super::passkeys::PasskeyRequest;
use crate::secret::NoEntropy;

/// The texts are for the caller, so they say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The password is right; an account with passkeys gets a challenge for them.
    #[error(
        "the password is right: send the code of your second factor with it as `code`, or the answer of a passkey as `passkey`"
    )]
    CodeNeeded(Option<Box<PasskeyRequest>>),
    /// The password is right.
    #[error("the code is not right, or was used before: wait for the next one, or send a recovery code")]
    CodeWrong,
    /// The password is right.
    #[error("{0}")]
    PasskeyWrong(&'static str),
    /// Seconds until codes of the device are accepted again.
    #[error("there were too many wrong codes: send a recovery code, or try again in {0} s")]
    TooManyCodes(u64),
    /// Seconds until a change of this size is accepted.
    #[error(
        "your changes fill audit logs and receipts faster than the server stores them: try again in {0} s"
    )]
    TooMuchLogged(u64),
    #[error("{0}")]
    Forbidden(String),
    /// The object does not exist, or belongs to another tenant: the answer does not distinguish the two.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The request contradicts stored state.
    #[error("{0}")]
    Conflict(String),
    /// The stored version differs from the one that the caller has read.
    #[error("it was changed since you read it: read it again, and send its ETag with If-Match")]
    Changed,
    #[error("some fields are not right")]
    Invalid(Vec<Invalid>),
    #[error("this Idempotency-Key was used for another request: use a new one for each")]
    KeyReused,
    /// The system fails, or a stored record cannot be read.
    #[error("{0}")]
    Internal(&'static str),
    #[error(transparent)]
    Layer(#[from] LayerError),
}

pub type Result<T> = std::result::Result<T, Error>;

/// The error of one tenant's part of a round, which continues with the next tenant. An error is returned if the store does not answer
/// at all, so that the parts of other tenants would fail, too.
pub(super) fn of_one_tenant<T>(done: Result<T>) -> Result<Result<T>> {
    match done {
        Err(error)
            if matches!(error.store_error(), Some(StoreError::Unavailable(_) | StoreError::Closed)) =>
        {
            Err(error)
        }
        done => Ok(done),
    }
}

impl Error {
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
