//! A disk that gets full: nothing is lost, what makes room is still taken, and the store recovers
//! by itself.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use common::{Mount, begin, get, put, until};
use millrace_storage::{
    Database, Embedded, KeyRange, Options, StoreError, Transaction, TransactionOption, block_on,
};

fn commit(
    database: &Database,
    write: impl Fn(&Transaction) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let transaction = begin(database);
    write(&transaction)?;
    block_on(transaction.commit()).map(drop)
}

#[test]
fn with_little_room_only_what_makes_room_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(1 << 30));
    let asked = free.clone();
    let options = Options {
        disk_reserve_bytes: 1_000,
        free_bytes: Arc::new(move |_| Ok(asked.load(Ordering::Relaxed))),
        ..Options::default()
    };
    let store = Embedded::open(&folder, options).unwrap();
    let database = store.database();
    let range = || KeyRange::new("a", "b");
    let cleared = |tx: &Transaction| tx.clear("k").and_then(|()| tx.clear_range(range()));
    let counted = |tx: &Transaction| tx.clear("k").and_then(|()| tx.atomic_add("count", -1));
    let only_counted = |tx: &Transaction| tx.atomic_add("count", 1);
    let replaced = |tx: &Transaction| tx.clear("k").and_then(|()| tx.set("l", "v"));
    let ended = |tx: &Transaction| {
        tx.set_option(TransactionOption::FreesSpace);
        replaced(tx)
    };
    let read = |tx: &Transaction| block_on(tx.get("k", Default::default())).map(drop);
    // Per transaction: the free bytes that it needs.
    type Write<'a> = &'a dyn Fn(&Transaction) -> Result<(), StoreError>;
    let cases: [(&str, Write<'_>, u64); 7] = [
        ("set", &|tx| tx.set("k", "v"), 1_000),
        ("count", &only_counted, 1_000),
        ("replace", &replaced, 1_000),
        ("clear", &cleared, 250),
        ("clear and count", &counted, 250),
        ("said to make room", &ended, 250),
        ("read", &read, 0),
    ];
    for free_bytes in [1_000, 999, 250, 249, 0, 250, 1_000] {
        free.store(free_bytes, Ordering::Relaxed);
        for (name, write, needed) in cases {
            let reserve_bytes = if free_bytes < 250 { 250 } else { 1_000 };
            let full = StoreError::DiskFull { free_bytes, reserve_bytes };
            assert!(!full.is_retryable());
            let expected = if free_bytes >= needed { Ok(()) } else { Err(full) };
            assert_eq!(commit(&database, write), expected, "{name} with {free_bytes} free");
        }
    }
    assert_eq!(get(&database, "l").unwrap().unwrap(), "v");
}

#[test]
fn a_small_disk_has_a_smaller_reserve() {
    let Some(mount) = Mount::new(200) else {
        println!("SKIPPED: a small disk: only root may mount one");
        return;
    };
    let data = mount.0.path().join("data");
    let store = Embedded::open(&data, Options::of_disk(&data)).unwrap();
    put(&store.database(), "k", "v").unwrap();
    assert_eq!(get(&store.database(), "k").unwrap().unwrap(), "v");
}

/// Deletes what a stream has, in pieces as a trim does: a row is written with each, and a counter
/// counts.
fn trim(database: &Database, first: usize, count: usize) -> Result<(), StoreError> {
    commit(database, |tx| {
        tx.set_option(TransactionOption::FreesSpace);
        tx.clear_range(KeyRange::new(key(first), key(first + count)))?;
        tx.set("trimmed", first.to_string())?;
        tx.atomic_add("entries", -(count as i64))
    })
}

fn key(number: usize) -> String {
    format!("k{number:07}")
}

#[test]
fn deleting_makes_room_on_a_full_disk_and_writes_go_on() {
    const MIB: u64 = 1 << 20;
    let Some(mount) = Mount::new(400) else {
        println!("SKIPPED: deleting on a full disk: only root may mount one");
        return;
    };
    let data = mount.0.path().join("data");
    let options = Options { disk_reserve_bytes: 96 * MIB, memtable_bytes: 16 * MIB, ..Options::default() };
    let store = Embedded::open(&data, options.clone()).unwrap();
    let database = store.database();
    let value = "v".repeat(1_000);
    let keys = 100_000;
    for first in (0..keys).step_by(1_000) {
        let written = commit(&database, |tx| {
            (first..first + 1_000).try_for_each(|number| tx.set(key(number), value.clone()))
        });
        written.unwrap();
    }
    // All that is done in the background is done.
    store.backup(mount.0.path().join("settled")).unwrap();
    drop((store, database));
    fs::remove_dir_all(&data).unwrap();
    let store = Embedded::open(mount.0.path().join("settled"), options).unwrap();
    let database = store.database();
    // Somebody else fills the disk.
    let free = || store.disk_use().unwrap().free_bytes / MIB;
    let ballast = vec![1; (free() - 60) as usize * MIB as usize];
    fs::write(mount.0.path().join("ballast"), ballast).unwrap();
    let error = put(&database, "more", "v").unwrap_err();
    println!("{error}: {} MiB are free", free());
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    let trimmed = 75_000;
    for first in (0..trimmed).step_by(1_000) {
        trim(&database, first, 1_000).unwrap();
    }
    println!("{trimmed} deleted: {} MiB are free", free());
    // Nothing is written any more, and nobody asks: the store makes room by itself.
    until(|| free() >= 96);
    println!("then {} MiB are free", free());
    until(|| put(&database, "more", "v").is_ok());
    for number in (0..keys).step_by(999) {
        let expected = (number >= trimmed).then_some(&value);
        assert_eq!(get(&database, &key(number)).unwrap().as_ref(), expected, "{number}");
    }
}

#[test]
fn a_disk_that_fills_up_loses_nothing_and_the_store_recovers_by_itself() {
    let Some(mount) = Mount::new(96) else {
        println!("SKIPPED: a full disk: only root may mount one");
        return;
    };
    let ballast = mount.0.path().join("ballast");
    fs::write(&ballast, vec![1; 72 << 20]).unwrap();
    // Without a reserve the disk itself says that it is full, in the middle of a write.
    let options = Options { disk_reserve_bytes: 1, memtable_bytes: 4 << 20, ..Options::default() };
    let store = Embedded::open(mount.0.path().join("data"), options.clone()).unwrap();
    let database = store.database();
    let value = "v".repeat(50_000);
    let mut acknowledged = 0;
    let error = loop {
        match put(&database, &format!("k{acknowledged:05}"), &value) {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 2_000, "the disk does not fill up");
    };
    println!("{acknowledged} commits, then: {error}");
    let full = put(&database, "more", "v").unwrap_err();
    println!("then: {full}");
    assert!(matches!(full, StoreError::DiskFull { .. } | StoreError::Io(_)), "{full}");
    let check = |database: &Database| {
        for number in 0..acknowledged {
            assert_eq!(get(database, &format!("k{number:05}")).unwrap().as_ref(), Some(&value), "{number}");
        }
    };
    check(&database);
    fs::remove_file(&ballast).unwrap();
    until(|| put(&database, "more", "v").is_ok());
    check(&database);
    drop((store, database));
    let store = Embedded::open(mount.0.path().join("data"), options).unwrap();
    check(&store.database());
    assert_eq!(get(&store.database(), "more").unwrap().unwrap(), "v");
}
