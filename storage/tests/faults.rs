//! Faults of a data folder: each gives one clear message and loses nothing.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
};

use common::{Mount, begin, damage, files, get, put};
use millrace_storage::{
    Embedded, KeyRange, OpenError, Options, RangeOptions, RestoreError, StoreError, block_on, restore,
};

fn open(path: impl AsRef<Path>) -> Result<Embedded, OpenError> {
    Embedded::open(path, Options::default())
}

fn message(path: impl AsRef<Path>) -> String {
    open(path).err().expect("it must be refused").to_string()
}

#[test]
fn a_folder_is_opened_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).unwrap();
    put(&store.database(), "k", "v").unwrap();
    let expected = format!("the data folder {} is in use by another process", folder.path().display());
    assert_eq!(message(&folder), expected);
    drop(store);
    assert_eq!(get(&open(&folder).unwrap().database(), "k").unwrap().unwrap(), "v");
}

#[test]
fn versions_go_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut newest = 0;
    for round in 0..5 {
        let store = open(&folder).unwrap();
        let version = put(&store.database(), "k", &round.to_string()).unwrap();
        assert!(version > newest);
        newest = version;
    }
}

#[test]
fn a_newer_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    put(&open(&folder).unwrap().database(), "k", "v").unwrap();
    let format = folder.path().join("format");
    assert_eq!(fs::read_to_string(&format).unwrap(), "millrace-store 2\n");
    fs::write(&format, "millrace-store 3\n").unwrap();
    let path = folder.path().display();
    let expected = format!("the data folder {path} has format 3, and this version reads formats up to 2");
    assert_eq!(message(&folder), expected);
    fs::write(&format, "something").unwrap();
    assert_eq!(message(&folder), format!("the data folder {path} is corrupted: its format file is not one"));
    fs::write(&format, "millrace-store 1\n").unwrap();
    assert_eq!(get(&open(&folder).unwrap().database(), "k").unwrap().unwrap(), "v");
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.txt"), "years of work").unwrap();
    let path = folder.path().display();
    assert_eq!(
        message(&folder),
        format!("the folder {path} is not empty and is not a data folder of this program")
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

/// The journal of a closed store of a hundred keys, about 1 kB each.
fn journal_of_a_hundred(folder: &tempfile::TempDir) -> PathBuf {
    let store = open(folder).unwrap();
    for number in 0..100 {
        put(&store.database(), &format!("k{number}"), &"v".repeat(1_000)).unwrap();
    }
    drop(store);
    files(folder.path(), ".jnl").pop().unwrap()
}

#[test]
fn a_damaged_journal_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of_a_hundred(&folder);
    damage(&journal, 20_500);
    let message = message(&folder);
    assert!(message.contains("is corrupted"), "{message}");
    // The same damage again repairs the byte.
    damage(&journal, 20_500);
    assert!(get(&open(&folder).unwrap().database(), "k99").unwrap().is_some());
}

#[test]
fn a_journal_without_its_end_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of_a_hundred(&folder);
    fs::File::options().write(true).open(journal).unwrap().set_len(50_000).unwrap();
    // Forty-odd commits are left; the file `watermark` shows that more were acknowledged.
    let refused = message(&folder);
    assert!(refused.contains(": commits up to 100 were acknowledged and only those up to 4"), "{refused}");
    assert_eq!(message(&folder), refused);
    fs::remove_file(folder.path().join("watermark")).unwrap();
    assert!(get(&open(&folder).unwrap().database(), "k30").unwrap().is_some());
}

#[test]
fn damaged_tables_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let store = open(folder.path().join("data")).unwrap();
    for number in 0..1_000 {
        put(&store.database(), &format!("k{number:04}"), &"v".repeat(1_000)).unwrap();
    }
    // A copy is all tables.
    store.backup(&copy).unwrap();
    let tables = files(&copy, "/keyspaces/").into_iter().filter(|path| path.extension().is_none());
    let table = &tables.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let length = fs::metadata(table).unwrap().len();
    for offset in [length / 3, length / 2] {
        damage(table, offset);
    }
    match open(&copy) {
        Err(error) => assert!(error.to_string().contains("is corrupted"), "{error}"),
        Ok(store) => {
            let transaction = begin(&store.database());
            let all = KeyRange::prefix("k");
            let read = block_on(transaction.range(all, RangeOptions::first(10_000)));
            assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
        }
    }
}

#[test]
fn a_read_only_folder_is_reported() {
    let Some(mount) = Mount::new(80) else {
        println!("SKIPPED: a read-only file system: only root may mount one");
        return;
    };
    let data = mount.0.path().join("data");
    put(&open(&data).unwrap().database(), "k", "v").err();
    mount.remount("ro");
    assert_eq!(message(&data), format!("the data folder {} cannot be written to", data.display()));
    let new = mount.0.path().join("new");
    assert_eq!(message(&new), format!("the data folder {} cannot be written to", new.display()));
    mount.remount("rw");
}

#[test]
fn a_backup_is_one_version_of_a_store_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let store = open(path("data")).unwrap();
    let database = store.database();
    let both = |number: u64| {
        let transaction = begin(&database);
        for key in ["a", "z"] {
            transaction.set(key, number.to_string()).unwrap();
        }
        block_on(transaction.commit()).unwrap()
    };
    both(1);
    let writing = std::thread::scope(|scope| {
        let writer = scope.spawn(|| (2..1_000).map(both).next_back());
        store.backup(path("backup")).unwrap();
        writer.join().unwrap()
    });
    let exists = store.backup(path("backup"));
    assert!(matches!(exists, Err(RestoreError::Exists(_))));
    restore(path("backup"), path("restored")).unwrap();
    let restored = open(path("restored")).unwrap().database();
    let (a, z) = (get(&restored, "a").unwrap(), get(&restored, "z").unwrap());
    assert!(a.is_some() && a == z, "{a:?} {z:?}");
    assert_eq!(get(&database, "a").unwrap().unwrap(), "999");
    assert!(put(&restored, "a", "restored").unwrap() <= writing.unwrap().versionstamp.unwrap().version() + 1);
}
