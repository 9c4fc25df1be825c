//! Maps FoundationDB's errors to the store's.

use std::{path::PathBuf, time::Duration};

use ::foundationdb::FdbError;

use crate::{error::StoreError, limits::PREFIX_BYTES_MAX};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    #[error("the cluster file {path} cannot be read")]
    ClusterFile {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("a key prefix has 1 to {PREFIX_BYTES_MAX} bytes and does not begin with 0xff")]
    PrefixNotAllowed,
    #[error("the FoundationDB cluster did not answer within {} s", .within.as_secs())]
    Unreachable { within: Duration, source: StoreError },
    #[error("the store in the cluster has format {found}, and this version reads formats up to {known}")]
    NewerFormat { found: u32, known: u32 },
    #[error("the cluster has keys of something else below this prefix")]
    NotAStore,
    #[error("this process reaches FoundationDB with other TLS or trace settings already")]
    NetworkSettings,
    #[error("the network of FoundationDB was stopped or could not be started; it starts once in a process")]
    NotStartedAgain,
    #[error("the FoundationDB client library is too old: install that of version 7.4 or later")]
    OldLibrary,
    #[error("FoundationDB refused: {reason} (error {code})")]
    Refused { code: i32, reason: &'static str },
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
pub(super) fn of_read(error: FdbError) -> StoreError {
    match error.code() {
        // Timed out, or the cluster changed to a version that another loaded library speaks.
        1031 | 1039 => StoreError::Unavailable(error.message().into()),
        _ => of_both(error),
    }
}

pub(super) fn of_commit(error: FdbError) -> StoreError {
    match error.code() {
        // Cancelled or timed out, which should not happen: the result is unknown.
        1025 | 1031 | 1101 => StoreError::CommitUnknown,
        _ if error.is_maybe_committed() => StoreError::CommitUnknown,
        _ => of_both(error),
    }
}

fn of_both(error: FdbError) -> StoreError {
    match error.code() {
        1007 => StoreError::TooOld,
        1020 => StoreError::Conflict,
        1025 | 2017 => StoreError::Used,
        1036 => StoreError::Unreadable,
        // Proxies out of memory, and throttling.
        1042 | 1051 | 1078 | 1213 | 1223 | 1235 => StoreError::Busy,
        2101 => StoreError::TransactionTooLarge,
        _ if error.is_retryable() => StoreError::Unavailable(error.message().into()),
        code => StoreError::Cluster { code, reason: error.message() },
    }
}
