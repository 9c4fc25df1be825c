//! Why a call has failed.

use std::io;
use std::sync::Arc;

type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Why a call has failed. Says nothing of the addresses behind a name, which are not for who gave the URL.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The URL cannot be called.
    #[error("the URL {0}")]
    Url(&'static str),
    /// The host has no address that may be called.
    #[error("the URL's host is not on the public internet")]
    Forbidden,
    /// `http`, where it must be `https`.
    #[error("the URL must start with https://")]
    Insecure,
    /// The host's name has no address, or cannot be resolved now.
    #[error("the host's name cannot be resolved")]
    Resolve(#[source] Arc<io::Error>),
    /// No connection.
    #[error("cannot connect")]
    Connect(#[source] Arc<io::Error>),
    /// The server is not who it should be, or does not speak TLS.
    #[error("TLS has failed: {0}")]
    Tls(#[source] Cause),
    /// The time of the call was over.
    #[error("no answer in time")]
    Timeout,
    /// The answer was larger than the call takes.
    #[error("the answer is too long")]
    TooLong,
    /// What came is no answer of HTTP, or half of one.
    #[error("the answer is not HTTP, or broke off")]
    Http(#[source] Cause),
    /// Too many calls are under way, to this host or in all.
    #[error("too many calls are under way")]
    Busy,
}

impl Error {
    /// One word for it, for metrics.
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
