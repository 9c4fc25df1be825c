//! Translates FoundationDB's error codes into [`StoreError`] and [`ConnectError`].

use std::{path::PathBuf, time::Duration};

use ::foundationdb::FdbError;

use crate::{error::StoreError, limits::PREFIX_BYTES_MAX};

const CANCELLED: i32 = 1025;
const TIMED_OUT: i32 = 1031;
/// The cluster was upgraded to a version that another loaded client library speaks.
const CLUSTER_VERSION_CHANGED: i32 = 1039;
const OPERATION_CANCELLED: i32 = 1101;
const API_VERSION_NOT_SUPPORTED: i32 = 2203;

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
            API_VERSION_NOT_SUPPORTED => Self::OldLibrary,
            code => Self::Refused { code, reason: error.message() },
        }
    }
}

/// Maps the error of any call except a commit.
pub(super) fn of_call(error: FdbError) -> StoreError {
    match error.code() {
        TIMED_OUT | CLUSTER_VERSION_CHANGED => StoreError::Unavailable(error.message().into()),
        _ => of_any(error),
    }
}

/// Maps the error of a commit or of its versionstamp, and never denies a commit that FoundationDB
/// made.
pub(super) fn of_commit(error: FdbError) -> StoreError {
    match error.code() {
        CANCELLED | TIMED_OUT | OPERATION_CANCELLED => StoreError::CommitUnknown,
        _ if error.is_maybe_committed() => StoreError::CommitUnknown,
        _ => of_any(error),
    }
}

fn of_any(error: FdbError) -> StoreError {
    match error.code() {
        1007 => StoreError::TooOld,
        1020 => StoreError::Conflict,
        CANCELLED | 2017 => StoreError::Used,
        1036 => StoreError::Unreadable,
        // A proxy is out of memory (1042, 1078), or the cluster throttles the transaction.
        1042 | 1051 | 1078 | 1213 | 1223 | 1235 => StoreError::Busy,
        2101 => StoreError::TransactionTooLarge,
        _ if error.is_retryable() => StoreError::Unavailable(error.message().into()),
        code => StoreError::Cluster { code, reason: error.message() },
    }
}
