use std::io;
use std::sync::Arc;

type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// No text names the addresses behind a host name, because the author of the URL must not learn them.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    #[error("the URL {0}")]
    Url(&'static str),
    #[error("the URL's host is not on the public internet")]
    Forbidden,
    #[error("the URL must start with https://")]
    Insecure,
    #[error("the host's name cannot be resolved")]
    Resolve(#[source] Arc<io::Error>),
    #[error("cannot connect")]
    Connect(#[source] Arc<io::Error>),
    #[error("TLS has failed: {0}")]
    Tls(#[source] Cause),
    #[error("no answer in time")]
    Timeout,
    #[error("the answer is too long")]
    TooLong,
    #[error("the answer is not HTTP, or broke off")]
    Http(#[source] Cause),
    #[error("too many calls are under way")]
    Busy,
}

impl CallError {
    /// A short name, for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Url(_) => "url",
            Self::Forbidden => "forbidden",
            Self::Insecure => "insecure",
            Self::Resolve(_) => "resolve",
            Self::Connect(_) => "connect",
            Self::Tls(_) => "tls",
            Self::Timeout => "timeout",
            Self::TooLong => "too_long",
            Self::Http(_) => "http",
            Self::Busy => "busy",
        }
    }
}
