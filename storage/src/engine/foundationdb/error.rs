//! Maps FoundationDB's errors to the store's.

use std::{path::PathBuf, time::Duration};

use ::foundationdb::FdbError;

use crate::{error::Error, limits::PREFIX_BYTES_MAX};

/// Reasons why a store in a cluster was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The cluster file is missing or cannot be read.
    #[error("the cluster file {path} cannot be read")]
    ClusterFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The prefix is empty, longer than [`PREFIX_BYTES_MAX`], or begins with 0xff.
    #[error("a key prefix has 1 to {PREFIX_BYTES_MAX} bytes and does not begin with 0xff")]
    PrefixNotAllowed,
    /// The cluster did not answer, or refused.
    #[error("the FoundationDB cluster did not answer within {} s", .within.as_secs())]
    Unreachable {
        /// Time spent on attempts.
        within: Duration,
        /// The error of the last attempt.
        source: Error,
    },
    /// A later version of the program wrote the keys below the prefix.
    #[error("the store in the cluster has format {found}, and this version reads formats up to {known}")]
    NewerFormat {
        /// The format found.
        found: u32,
        /// The newest format that this version reads.
        known: u32,
    },
    /// The keys below the prefix belong to something else.
    #[error("the cluster has keys of something else below this prefix")]
    NotAStore,
    /// Another store of this process was opened with other network settings.
    #[error("this process reaches FoundationDB with other TLS or trace settings already")]
    NetworkSettings,
    /// The network was stopped, or did not start at the first attempt.
    #[error("the network of FoundationDB was stopped or could not be started; it starts once in a process")]
    NotStartedAgain,
    /// The client library is too old.
    #[error("the FoundationDB client library is too old: install that of version 7.4 or later")]
    OldLibrary,
    /// Another error of the client library or the cluster.
    #[error("FoundationDB refused: {reason} (error {code})")]
    Refused {
        /// FoundationDB's error code.
        code: i32,
        /// FoundationDB's message.
        reason: &'static str,
    },
}

impl From<FdbError> for ConnectError {
    fn from(error: FdbError) -> Self {
        match error.code() {
            2203 => Self::OldLibrary,
            code => Self::Refused { code, reason: error.message() },
        }
    }
}

/// The error of anything but a commit.
pub(super) fn of_read(error: FdbError) -> Error {
    match error.code() {
        // Timed out, or the cluster changed to a version that another loaded library speaks.
        1031 | 1039 => Error::Unavailable(error.message().into()),
        _ => of_both(error),
    }
}

pub(super) fn of_commit(error: FdbError) -> Error {
    match error.code() {
        // Cancelled or timed out, which should not happen: the result is unknown.
        1025 | 1031 | 1101 => Error::CommitUnknown,
        _ if error.is_maybe_committed() => Error::CommitUnknown,
        _ => of_both(error),
    }
}

fn of_both(error: FdbError) -> Error {
    match error.code() {
        1007 => Error::TooOld,
        1020 => Error::Conflict,
        1025 | 2017 => Error::Used,
        1036 => Error::Unreadable,
        // Proxies out of memory, and throttling.
        1042 | 1051 | 1078 | 1213 | 1223 | 1235 => Error::Busy,
        2101 => Error::TransactionTooLarge,
        _ if error.is_retryable() => Error::Unavailable(error.message().into()),
        code => Error::Cluster { code, reason: error.message() },
    }
}
