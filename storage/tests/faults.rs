//! What goes wrong with a data folder: each gives one clear message and loses nothing.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use millrace_storage::{
    Database, Embedded, Error, Host, KeyRange, OpenError, Options, RangeOptions, Read, RestoreError, System,
    block_on, restore,
};

fn put(database: &Database, key: &str, value: &str) -> Result<u64, Error> {
    let transaction = database.begin_unretried();
    transaction.set(key, value.to_owned())?;
    block_on(transaction.commit()).map(|committed| committed.versionstamp.unwrap().version())
}

fn get(database: &Database, key: &str) -> Result<Option<String>, Error> {
    let value = block_on(database.begin_unretried().get(key, Read::Serializable))?;
    Ok(value.map(|value| String::from_utf8(value.to_vec()).unwrap()))
}

fn open(path: impl AsRef<Path>) -> Result<Embedded, OpenError> {
    Embedded::open(path, Options::default())
}

fn message(path: impl AsRef<Path>) -> String {
    open(path).err().expect("it must be refused").to_string()
}

/// Waits until `done`, a minute at most.
fn until(mut done: impl FnMut() -> bool) {
    let clock = System::new();
    while !done() {
        assert!(clock.now().as_secs() < 60, "it takes too long");
        block_on(clock.pause(std::time::Duration::from_millis(20)));
    }
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
    assert_eq!(fs::read_to_string(&format).unwrap(), "millrace-store 1\n");
    fs::write(&format, "millrace-store 2\n").unwrap();
    let path = folder.path().display();
    let expected = format!("the data folder {path} has format 2, and this version reads formats up to 1");
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
        format!("the folder {path} is not empty and is no data folder of this program")
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

/// Files of a folder and those below it whose path contains `part`.
fn files(folder: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, part));
        } else if path.to_str().unwrap().contains(part) {
            found.push(path);
        }
    }
    found
}

fn damage(path: &Path, offset: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x55], offset).unwrap();
}

/// The journal of a store of a hundred keys that was closed.
fn journal_of_a_hundred(folder: &tempfile::TempDir) -> PathBuf {
    let store = open(folder).unwrap();
    for number in 0..100 {
        put(&store.database(), &format!("k{number}"), &"v".repeat(1_000)).unwrap();
    }
    drop(store);
    files(folder.path(), ".jnl").pop().unwrap()
}

#[test]
fn a_damaged_journal_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of_a_hundred(&folder);
    damage(&journal, 20_500);
    let message = message(&folder);
    assert!(message.contains("is corrupted"), "{message}");
    damage(&journal, 20_500);
    assert!(get(&open(&folder).unwrap().database(), "k99").unwrap().is_some());
}

#[test]
fn a_journal_that_lost_its_end_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of_a_hundred(&folder);
    fs::File::options().write(true).open(journal).unwrap().set_len(50_000).unwrap();
    let refused = message(&folder);
    assert!(refused.contains("is corrupted: commits up to 100 were acknowledged and only"), "{refused}");
    assert_eq!(message(&folder), refused);
    fs::remove_file(folder.path().join("watermark")).unwrap();
    assert!(get(&open(&folder).unwrap().database(), "k30").unwrap().is_some());
}

#[test]
fn damaged_tables_are_said() {
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
            let transaction = store.database().begin_unretried();
            let all = KeyRange::prefix("k");
            let read = block_on(transaction.range(all, RangeOptions::first(10_000)));
            assert!(matches!(read, Err(Error::Corrupt(_))), "{read:?}");
        }
    }
}

#[test]
fn writes_are_refused_while_the_disk_is_nearly_full() {
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
    put(&database, "k", "before").unwrap();
    free.store(999, Ordering::Relaxed);
    let refused = Error::DiskFull { free_bytes: 999, reserve_bytes: 1_000 };
    assert_eq!(put(&database, "k", "full"), Err(refused.clone()));
    assert!(!refused.is_retryable());
    assert_eq!(get(&database, "k").unwrap().unwrap(), "before");
    free.store(1_000, Ordering::Relaxed);
    put(&database, "k", "after").unwrap();
    assert_eq!(get(&database, "k").unwrap().unwrap(), "after");
}

/// A file system of a few megabytes of its own; `None` where this may not be mounted.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(megabytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(folder.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    fn remount(&self, option: &str) {
        let mut mount = Command::new("mount");
        assert!(
            mount.args(["-o", &format!("remount,{option}")]).arg(self.0.path()).status().unwrap().success()
        );
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily, for files may be open still when a test failed.
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
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
    assert!(matches!(full, Error::DiskFull { .. } | Error::Io(_)), "{full}");
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

#[test]
fn a_read_only_folder_is_said() {
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
        let transaction = database.begin_unretried();
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
