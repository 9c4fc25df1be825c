//! The store: an ordered, transactional key-value interface and the engines under it.
//!
//! Keys and values are bytes; keys are ordered as bytes. A [`Transaction`] reads at one version, sees its own
//! writes, and commits only if nothing that it read was changed meanwhile: strictly serializable, optimistic, as in
//! FoundationDB. Two engines give the same answers: FoundationDB for a region, and [`Embedded`] for one machine. A
//! third, [`Database::memory`], keeps nothing and is for tests.
//!
//! Everything above is written once, over [`Database`]. Transactions are run by [`Database::run`], which retries them;
//! it is the only place that does.
//!
//! A `Database` is one concrete type over `dyn Engine`, not a type parameter: the layers are compiled once, and what
//! dispatch costs a read (a few nanoseconds) is nothing beside the read. Commits, where throughput counts, cross the
//! boundary once a transaction.
//!
//! This crate must never know MQTT, sockets, pods or a runtime: it has no notion of a topic's meaning, and its
//! futures run under any executor, [`block_on`] included. Time and randomness come from a [`Host`].
//!
//! # Why fjall
//!
//! Measured on two shared cores (fdatasync 0.1 ms), 23-byte keys, 200-byte values, one fdatasync per batch, CPU of the
//! whole process with flushes and compactions:
//!
//! | batch, streams | fjall 3.1 | p50 | redb 4.4 | p50 |
//! |---|---|---|---|---|
//! | 1, 1000 streams | 38 µs/record | 0.08 ms | 105 µs/record | 0.20 ms |
//! | 10, 1000 streams | 6.3 µs | 0.15 ms | 24.5 µs | 0.37 ms |
//! | 100, 1 stream | 2.2 µs | 0.25 ms | 2.7 µs | 0.41 ms |
//! | 100, 1000 streams | 3.0 µs | 0.29 ms | 15.7 µs | 2.6 ms |
//! | 500, 1000 streams | 2.8 µs | 0.75 ms | 14.4 µs | 11.5 ms |
//! | 100, 100 streams, read and cleared behind | 5.0 µs | 0.41 ms | 11.5 µs | 1.8 ms |
//!
//! For 1,000,000 records (212 MB of payload) fjall wrote 0.46 GB and held 0.31 GB. redb, a copy-on-write B-tree, rewrote
//! a page for each stream touched: 7.8 GB written, 0.45 GB held. redb clears ranges faster: fjall has no range
//! tombstones yet, so a cleared range costs a read and a tombstone for each key. LMDB (heed) was not tried: opening it is
//! `unsafe`.

mod completion;
mod database;
mod engine;
mod error;
mod host;
mod key;
pub mod limits;
mod reply;
mod retry;
mod timer;
mod transaction;
mod version;

pub use completion::{Commit, Completion, block_on};
pub use database::{Attempt, Database, Failure};
pub use engine::embedded::{DiskUse, Embedded, FreeBytes, Options, RestoreError, restore};
pub use engine::{Engine, EngineTransaction};
pub use error::{Error, OpenError};
pub use host::{Host, Pause, System};
pub use key::{KeyRange, after};
pub use reply::Reply;
pub use retry::RetryPolicy;
pub use transaction::{KeyValue, Page, RangeOptions, Read, Transaction};
pub use version::{Committed, Version, Versionstamp};
