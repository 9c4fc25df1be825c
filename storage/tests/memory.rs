//! Memory of the embedded engine: what is in tables leaves it.
#![allow(clippy::unwrap_used)]

mod common;

use std::{sync::Arc, time::Duration};

use common::{begin, get, put, until};
use millrace_storage::{Database, Embedded, Host, Options, Pause, Read, RetryPolicy, System, block_on};

const MEMTABLE_BYTES: u64 = 1 << 20;
const VALUE_BYTES: usize = 20_000;

fn open(folder: &tempfile::TempDir) -> Embedded {
    Embedded::open(folder, Options { memtable_bytes: MEMTABLE_BYTES, ..Options::default() }).unwrap()
}

/// A clock that stands still, so that a transaction is never too old.
struct Still(System);

impl Host for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn random(&self) -> u64 {
        self.0.random()
    }

    fn pause(&self, duration: Duration) -> Pause {
        self.0.pause(duration)
    }
}

/// Bytes of memtables, also of those that only older versions of the store have.
fn memory_bytes(database: &Database) -> u64 {
    let stats = database.stats();
    stats.iter().find(|stat| stat.name == "millrace_store_memory_bytes").unwrap().value as u64
}

fn tables(database: &Database) -> u64 {
    let stats = database.stats();
    stats.iter().find(|stat| stat.name == "millrace_store_tables").unwrap().value as u64
}

/// Writes enough for several tables.
fn flood(database: &Database, value: &str) {
    for number in 0..200 {
        put(database, &format!("k{number:03}"), value).unwrap();
    }
}

#[test]
fn memtables_leave_memory_once_they_are_tables() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let database = store.database();
    let value = "v".repeat(VALUE_BYTES);
    for round in 1..=3 {
        flood(&database, &value);
        // Nothing is written any more, and nobody reads.
        until(|| memory_bytes(&database) <= MEMTABLE_BYTES / 4);
        assert!(tables(&database) > 0, "round {round}");
    }
    assert_eq!(get(&database, "k199").unwrap().as_deref(), Some(&*value));
}

#[test]
fn a_transaction_keeps_the_memtables_that_it_reads_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let database = store.database();
    let [old, new] = ["o", "n"].map(|value| value.repeat(VALUE_BYTES));
    put(&database, "k000", &old).unwrap();
    let reader = begin(&store.database_on(Arc::new(Still(System::new())), RetryPolicy::default()));
    let read = |key: &str| block_on(reader.get(key, Read::Snapshot)).unwrap();
    assert_eq!(read("k000").as_deref(), Some(old.as_bytes()));
    for _ in 0..3 {
        flood(&database, &new);
    }
    until(|| tables(&database) > 0 && memory_bytes(&database) <= 3 * MEMTABLE_BYTES);
    assert_eq!(read("k000").as_deref(), Some(old.as_bytes()));
    assert_eq!(read("k001"), None);
    drop(reader);
    until(|| memory_bytes(&database) <= MEMTABLE_BYTES / 4);
    assert_eq!(get(&database, "k000").unwrap(), Some(new));
}
