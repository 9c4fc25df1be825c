//! The store: an ordered, transactional key-value interface and the engines under it.
//!
//! Keys and values are bytes; keys are ordered as bytes. A [`Transaction`] reads at one version, sees its own writes,
//! and commits only if everything that it read is unchanged: strictly serializable and optimistic, as in FoundationDB.
//! Two engines give the same answers: FoundationDB for a region (the feature `foundationdb`), and [`Embedded`] for one
//! machine. A third one in memory, [`Database::memory`], is for tests.
//!
//! Layers are written once, over [`Database`]. [`Database::run`] runs transactions and is the only place that retries
//! them.
//!
//! A `Database` is one concrete type over `dyn Engine`, not a type parameter, so the layers are compiled once. A
//! dynamic call costs a read a few nanoseconds, which is nothing beside the read. Commits, where throughput counts,
//! cross the boundary once per transaction.
//!
//! This crate must never know MQTT, sockets, pods or a runtime: it does not know the meaning of a topic, and its
//! futures run under any executor, [`block_on`] included. Time and randomness come from a [`Host`].
//!
//! # FoundationDB
//!
//! The feature `foundationdb` adds `FoundationDb::open`, for a cluster of version 7.4. `ClusterOptions` has the
//! cluster, the prefix of this store's keys, the timeout of reads, and the certificates. The feature is off by default
//! because it links with FoundationDB's client library, `libfdb_c`: `services/millrace/docs/operations.md` says how to
//! get it, and `make test-fdb` runs the tests on a cluster. `engine/foundationdb/mod.rs` explains its rules. In short:
//! a commit waits for its answer, however long the cluster is unreachable. A commit whose answer was lost ends with
//! [`Error::CommitUnknown`] once it cannot happen any more, and [`Attempt::maybe_committed`] is set in the next
//! attempt.
//!
//! # Why fjall
//!
//! Measured on two shared cores (fdatasync 0.1 ms), 23-byte keys, 200-byte values, one fdatasync per batch, CPU of the
//! whole process with flushes and compactions:
//!
//! The stores alone:
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
//! For 1,000,000 records in batches of 500 (212 MB of payload) fjall wrote 0.42 GB and held 0.31 GB. redb, a copy-on-write
//! B-tree, rewrote a page for each stream touched: 7.8 GB written, 0.45 GB held. redb clears ranges faster: fjall has no
//! range tombstones yet, so a cleared range costs a tombstone for each key. LMDB (heed) was not tried: opening it is `unsafe`.
//!
//! # What a commit costs
//!
//! The whole engine with the one who submits, measured by `cargo bench -p millrace-storage --bench engine` (1,000,000 records
//! a row) on the same two cores; three runs beside other work, best to worst. One fdatasync per group.
//!
//! | records a transaction, streams, transactions in flight | CPU per record | records per CPU second | p50 |
//! |---|---|---|---|
//! | 1, 1000, 1 | 53 to 73 µs | 14 to 19 k | 0.10 to 0.13 ms |
//! | 1, 1000, 500 | 3.7 to 4.6 µs | 216 to 270 k | 1.2 to 1.5 ms |
//! | 100, 1, 1 | 2.5 to 2.9 µs | 344 to 407 k | 0.34 to 0.37 ms |
//! | 100, 1, 8 | 1.6 to 1.7 µs | 575 to 641 k | 1.1 ms |
//! | 100, 1000, 1 | 4.5 to 5.7 µs | 176 to 221 k | 0.42 to 0.53 ms |
//! | 100, 1000, 8 | 3.4 to 3.9 µs | 259 to 296 k | 1.6 to 1.9 ms |
//! | 500, 1000, 4 | 3.0 to 3.5 µs | 287 to 334 k | 3.1 to 3.8 ms |
//! | 100, 100, 8, cleared behind | 4.1 to 4.4 µs | 226 to 245 k | 2.6 to 2.8 ms |
//! | 100, 1000, 4, counted, with a read each | 8.1 to 8.8 µs | 114 to 124 k | 2.3 to 2.5 ms |
//! | 1000, 1000, 2, counted, with a read each | 6.8 to 7.1 µs | 141 to 146 k | 7.3 to 8.0 ms |
//!
//! In the last two each record also adds to the total of its stream and reads a key, as a publish does. About a quarter of
//! that is fjall's memory table, a tenth the reads, and a tenth was the commit thread's own reading of totals. Two things paid:
//! remembering the totals that were added to (from 9.9 to 8.4 µs), and writing a group in order of its keys (3 to 8 %). Three
//! did not: hash indexes in the blocks of tables (reads cost the same), memory tables of 32 MiB (130 to 230 MB of memory instead
//! of 240 to 330, but 25 to 30 % more CPU once 8 million records are there), and of 16 MiB (20 to 30 % more at once).
//!
//! A backlog that is never cleared costs more the longer it gets, for it is merged again: 6 million records (1.3 GB) in 1000
//! streams cost 5.3 µs each. Memory in such floods is 200 to 330 MB with the default [`Options`],
//! also when values are small.
//!
//! # What reading costs
//!
//! By `cargo bench -p millrace-storage --bench reads`, a million rows of 69 bytes, CPU: a key that is there 3.1 to 3.6 µs, one
//! that is not 1.2 µs (tables have Bloom filters), a page of 10 rows 7 to 8 µs, of 100 rows 24 to 27 µs. To clear 500 rows costs
//! 510 to 800 µs with its commit, a tombstone each; clearing them again 80 µs. fjall can drop whole tables of a range, but not
//! safely: the tombstones in them go too, and what they hid in older tables comes back.
//!
//! A row takes 58 bytes in tables, and a journal as much again until it is in one. With all in tables, a store of one or of four
//! million rows holds 6 MB of memory after it was opened.

mod completion;
mod database;
mod engine;
mod error;
mod host;
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
pub use database::{Attempt, Database, Failure};
pub use engine::embedded::{DiskUse, Embedded, FreeBytes, Options, RestoreError, restore};
#[cfg(feature = "foundationdb")]
pub use engine::foundationdb::{
    ClusterOptions, ConnectError, FoundationDb, NetworkOptions, Tls, stop_network,
};
pub use engine::{Engine, EngineTransaction};
pub use error::{Error, OpenError};
pub use host::{Host, Pause, System};
pub use key::{KeyRange, after};
pub use read::{KeyValue, Page, RangeOptions, Read};
pub use reply::Reply;
pub use retry::RetryPolicy;
pub use stat::{Stat, StatKind};
pub use transaction::{Transaction, TransactionOption};
pub use version::{Committed, Version, Versionstamp};
