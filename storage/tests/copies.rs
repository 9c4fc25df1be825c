//! Backups of a data folder: their unfinished parts, their room, and their format.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs::{self, File},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use common::{get, put};
use millrace_storage::{Embedded, OpenError, Options, RestoreError, StoreError, restore};

fn open(path: impl AsRef<Path>) -> Embedded {
    Embedded::open(path, Options::default()).unwrap()
}

fn format(folder: &Path) -> String {
    fs::read_to_string(folder.join("format")).unwrap()
}

/// A folder as a copy leaves it that is killed.
fn unfinished(path: &Path) {
    fs::create_dir_all(path.join("tables/keyspaces")).unwrap();
    fs::write(path.join("tables/part"), "half of a table").unwrap();
    fs::write(path.join("watermark"), "").unwrap();
    fs::write(path.join("format"), "millrace-store 1\n").unwrap();
}

#[test]
fn a_copy_leaves_another_one_of_its_name_alone_while_that_is_being_made() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path().join("data"));
    put(&store.database(), "k", "v").unwrap();
    let (copy, partial) = (root.path().join("copy"), root.path().join("copy.partial"));
    unfinished(&partial);
    let lock = File::create(partial.join("lock")).unwrap();
    lock.try_lock().unwrap();
    let refused = store.backup(&copy).unwrap_err();
    assert!(matches!(refused, RestoreError::Open(OpenError::Locked(_))), "{refused}");
    assert!(partial.join("tables/part").exists() && !copy.exists());
    // The other one was killed.
    lock.unlock().unwrap();
    store.backup(&copy).unwrap();
    assert!(!partial.exists() && !copy.join("tables/part").exists());
    assert_eq!(get(&open(&copy).database(), "k").unwrap().unwrap(), "v");
}

#[test]
fn a_folder_of_something_else_with_the_name_of_a_part_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path().join("data"));
    let partial = root.path().join("copy.partial");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("thesis.txt"), "years of work").unwrap();
    let refused = store.backup(root.path().join("copy")).unwrap_err();
    assert!(matches!(refused, RestoreError::Open(OpenError::NotAStore(_))), "{refused}");
    assert_eq!(fs::read_to_string(partial.join("thesis.txt")).unwrap(), "years of work");
}

#[test]
fn no_store_has_the_name_of_a_part() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path().join("data"));
    let partial = root.path().join("copy.partial");
    let refused = store.backup(&partial).unwrap_err();
    assert!(matches!(refused, RestoreError::Open(OpenError::Partial(_))), "{refused}");
    let refused = Embedded::open(&partial, Options::default()).err().unwrap();
    assert!(matches!(refused, OpenError::Partial(_)), "{refused}");
    assert!(!partial.exists());
}

#[test]
fn a_copy_that_would_fill_the_disk_ends_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(1_000));
    let asked = free.clone();
    let options = Options {
        disk_reserve_bytes: 1_000,
        free_bytes: Arc::new(move |_| Ok(asked.load(Ordering::Relaxed))),
        ..Options::default()
    };
    let store = Embedded::open(root.path().join("data"), options).unwrap();
    put(&store.database(), "k", "v").unwrap();
    free.store(999, Ordering::Relaxed);
    let refused = store.backup(root.path().join("copy")).unwrap_err();
    assert!(matches!(refused, RestoreError::Copy(StoreError::DiskFull { .. })), "{refused}");
    let left: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["data"]);
    free.store(1_000, Ordering::Relaxed);
    store.backup(root.path().join("copy")).unwrap();
}

#[test]
fn a_folder_of_format_1_has_format_2_from_its_first_commit_on() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    put(&open(path("data")).database(), "k", "old").unwrap();
    assert_eq!(format(&path("data")), "millrace-store 2\n");
    fs::write(path("data").join("format"), "millrace-store 1\n").unwrap();
    let store = open(path("data"));
    assert_eq!(get(&store.database(), "k").unwrap().unwrap(), "old");
    // A build of format 1 reads these.
    store.backup(path("before")).unwrap();
    restore(path("before"), path("restored")).unwrap();
    for name in ["data", "before", "restored"] {
        assert_eq!(format(&path(name)), "millrace-store 1\n", "{name}");
    }
    put(&store.database(), "k", "new").unwrap();
    store.backup(path("after")).unwrap();
    for name in ["data", "after"] {
        assert_eq!(format(&path(name)), "millrace-store 2\n", "{name}");
    }
    drop(store);
    for (name, value) in [("data", "new"), ("after", "new"), ("restored", "old")] {
        assert_eq!(get(&open(path(name)).database(), "k").unwrap().unwrap(), value, "{name}");
    }
}
