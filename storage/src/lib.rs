//! The store: an ordered, transactional key-value interface and the engines under it.
//!
//! Keys and values are bytes; keys are ordered as bytes. A [`Transaction`] reads at one version,
//! sees its own writes, and commits only if everything that it read is unchanged: strictly
//! serializable and optimistic, as in FoundationDB.
//!
//! Two engines give the same answers: FoundationDB for a region (the feature `foundationdb`), and
//! [`Embedded`] for one machine. A third one in memory, [`Database::memory`], is for tests.
//! [`Database::run`] runs transactions and is the only place that retries them.
//!
//! This crate must not know MQTT, sockets, pods or a runtime: its futures run under any executor,
//! [`block_on`] included. Time and randomness come from a [`Host`].
//!
//! # FoundationDB
//!
//! The feature `foundationdb` adds `FoundationDb::open`, for a cluster of version 7.4. It is off by
//! default because it links with FoundationDB's client library, `libfdb_c`:
//! `services/millrace/docs/operations.md` says how to get it, and `make test-fdb` runs the tests on
//! a cluster. `engine/foundationdb/mod.rs` explains its rules.
//!
//! # The embedded engine
//!
//! It uses fjall, an LSM tree in safe Rust. `storage/benches/README.md` compares fjall with redb,
//! and has the costs of commits and reads.
#![allow(missing_docs, reason = "a comment says only what name and type do not")]

mod clock;
mod completion;
mod copy;
mod database;
mod engine;
mod error;
mod host;
mod interface;
mod key;
pub mod limits;
mod read;
mod reply;
mod retry;
mod stat;
mod timer;
mod transaction;
mod version;

pub use completion::{Commit, Completion, block_on, block_on_for};
pub use copy::{CopyError, CopyProgress, EqualCopy, copy, copy_is_unfinished};
pub use database::{Attempt, Database, TransactionFailure};
pub use engine::embedded::{
    CAUGHT_THREADS, DiskUse, Embedded, FolderRecovery, FreeBytes, Options, RestoreError, restore,
};
#[cfg(feature = "foundationdb")]
pub use engine::foundationdb::{
    ClusterOptions, ClusterTls, ConnectError, FoundationDb, NetworkOptions, stop_network,
};
pub use error::{OpenError, StoreError};
pub use host::{Host, Pause, System};
pub use interface::{Engine, EngineTransaction, TransactionOption};
pub use key::{KeyRange, after};
pub use read::{KeyValue, RangeOptions, RangePage, Read};
pub use reply::Reply;
pub use retry::RetryPolicy;
pub use stat::{Stat, StatKind};
pub use transaction::Transaction;
pub use version::{Committed, StoreVersion, Versionstamp};
