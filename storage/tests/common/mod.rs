//! Helpers of the embedded engine's tests.
// Each test program uses a part of it.
#![allow(dead_code)]

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use millrace_storage::{Database, Host, Read, StoreError, System, Transaction, block_on};

/// A transaction that nobody retries, to see what becomes of it.
#[allow(clippy::disallowed_methods)]
pub(crate) fn begin(database: &Database) -> Transaction {
    database.begin_unretried()
}

pub(crate) fn put(database: &Database, key: &str, value: &str) -> Result<u64, StoreError> {
    let transaction = begin(database);
    transaction.set(key, value.to_owned())?;
    block_on(transaction.commit()).map(|committed| committed.versionstamp.unwrap().version())
}

pub(crate) fn get(database: &Database, key: &str) -> Result<Option<String>, StoreError> {
    let value = block_on(begin(database).get(key, Read::Serializable))?;
    Ok(value.map(|value| String::from_utf8(value.to_vec()).unwrap()))
}

/// Waits until `done`, a minute at most.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let clock = System::new();
    while !done() {
        assert!(clock.now().as_secs() < 60, "it takes too long");
        block_on(clock.pause(Duration::from_millis(20)));
    }
}

/// Files of a folder and those below it whose path contains `part`.
pub(crate) fn files(folder: &Path, part: &str) -> Vec<PathBuf> {
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

/// Flips bits of one byte. A second call repairs it.
pub(crate) fn damage(path: &Path, offset: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x55], offset).unwrap();
}

/// A file system of a few megabytes of its own; `None` where this may not be mounted.
pub(crate) struct Mount(pub(crate) tempfile::TempDir);

impl Mount {
    pub(crate) fn new(megabytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(folder.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    pub(crate) fn remount(&self, option: &str) {
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
