//! Backup and restore of a data folder.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::TryLockError;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use millrace_storage::{OpenError, Options, RestoreError, StoreError};

use super::open_folder::{AnswerError, OpenFolder, RowSink};
use super::rows::InspectRow;
use super::source;
use crate::permissions::{self, keep_private};
use crate::text;

/// Extension of the folder of a copy that has not ended.
const PARTIAL: &str = "partial";

const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Copies one version into the new folder `target`, while writes continue; only one backup runs at a
/// time.
pub(super) fn backup(opened: &OpenFolder, target: &Path, out: RowSink<'_>) -> Result<(), AnswerError> {
    let _one = match opened.one_backup.try_lock() {
        Err(TryLockError::WouldBlock) => {
            return Err(AnswerError::Failed("another backup is being made: wait until it is done".into()));
        }
        one => one,
    };
    check_target(opened, target)?;
    keep_private();
    copy(&opened.folder, target, out, || opened.embedded.backup(target))
}

/// `target` may be an empty folder.
pub(super) fn restore(backup: &Path, target: &Path, out: RowSink<'_>) -> Result<(), AnswerError> {
    if source::is_missing(backup) {
        return Err(AnswerError::Failed(format!("there is no backup at {}", backup.display())));
    }
    if is_partial(backup) {
        return Err(AnswerError::Failed(format!(
            "{} is a part of a backup that did not end, and lacks data: restore another backup",
            backup.display()
        )));
    }
    if is_inside(target, backup) {
        return Err(AnswerError::Failed(
            "a restore does not write into the backup: name another folder".into(),
        ));
    }
    if !source::is_missing(target) {
        return Err(AnswerError::Failed(format!(
            "the data folder {} is not empty: a restore fills a new one, so move that away first, or name another with --data-dir",
            target.display()
        )));
    }
    permissions::refuse_others_store(backup).map_err(AnswerError::Failed)?;
    let options = Options::of_disk(target);
    if let Ok(free_bytes) = (options.free_bytes)(existing_part(target)) {
        check_room(size(backup), free_bytes, options.disk_reserve_bytes)?;
    }
    // The finished copy is renamed to the target, so nothing may be there. Only an empty folder is
    // removed.
    if target.exists() {
        fs::remove_dir(target).map_err(|error| {
            AnswerError::Failed(format!(
                "{} cannot be replaced by the copy ({error}): name a folder in it",
                target.display()
            ))
        })?;
    }
    keep_private();
    copy(backup, target, out, || millrace_storage::restore(backup, target))
}

fn copy(
    source: &Path,
    target: &Path,
    out: RowSink<'_>,
    work: impl FnOnce() -> Result<(), RestoreError> + Send,
) -> Result<(), AnswerError> {
    let partial = partial(target);
    std::thread::scope(|scope| {
        let (done, is_done) = sync_channel(1);
        let worker = scope.spawn(move || done.send(work()));
        let mut nobody_reads = Ok(());
        let result = loop {
            match is_done.recv_timeout(PROGRESS_EVERY) {
                Ok(result) => break result.map_err(|error| failed(&error, source)),
                // A started backup is finished even if the reader of its progress is gone.
                Err(RecvTimeoutError::Timeout) if nobody_reads.is_ok() => {
                    nobody_reads = out(InspectRow::BackupProgress { bytes: size(&partial) });
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // A panic of the worker must not end this thread.
                    let _ = worker.join();
                    break Err(AnswerError::Failed("the copy ended with a panic: see the log".into()));
                }
            }
        };
        result.and(nobody_reads)
    })?;
    out(InspectRow::BackupDone { target: target.display().to_string(), bytes: size(target), version: None })
}

fn check_target(opened: &OpenFolder, target: &Path) -> Result<(), AnswerError> {
    let refused = |sentence: String| Err(AnswerError::Failed(sentence));
    if target.exists() {
        let target = target.display();
        return refused(format!(
            "{target} is there already: a backup makes a new folder, so name one that is not there yet"
        ));
    }
    let existing = existing_part(target);
    if is_inside(target, &opened.folder) {
        return refused(format!("{} is in the data folder itself: name another", target.display()));
    }
    let disk = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    // Keeps the server's reserve free, because a full disk would stop the server.
    let reserve_bytes = Options::of_disk(&opened.folder).disk_reserve_bytes;
    if let Ok(space) = opened.embedded.disk_use()
        && disk(existing) == disk(&opened.folder)
    {
        check_room(space.used_bytes, space.free_bytes, reserve_bytes)?;
    }
    Ok(())
}

fn check_room(copy_bytes: u64, free_bytes: u64, reserve_bytes: u64) -> Result<(), AnswerError> {
    if free_bytes >= copy_bytes.saturating_add(reserve_bytes) {
        return Ok(());
    }
    Err(AnswerError::Failed(format!(
        "the copy may take {} and the disk has {} left, of which a server needs {}: make room, or name a folder on another disk",
        text::bytes(copy_bytes),
        text::bytes(free_bytes),
        text::bytes(reserve_bytes),
    )))
}

/// Whether a path, of which the last parts may not exist, is this folder or in it.
fn is_inside(path: &Path, folder: &Path) -> bool {
    match (fs::canonicalize(existing_part(path)), fs::canonicalize(folder)) {
        (Ok(existing), Ok(folder)) => existing.starts_with(folder),
        _ => false,
    }
}

fn existing_part(path: &Path) -> &Path {
    path.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"))
}

fn failed(error: &RestoreError, source: &Path) -> AnswerError {
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(" ({cause})"));
    let advice = match error {
        RestoreError::Exists(_) => "name one that is not there yet",
        RestoreError::Open(OpenError::Locked(path)) if is_partial(path) => {
            "another backup or restore is making it: wait until that has ended, or name another folder"
        }
        RestoreError::Open(OpenError::Locked(_)) => {
            "it is the data folder of a running server; `millrace backup` copies that"
        }
        RestoreError::Open(OpenError::ReadOnly(path)) if path == source => {
            "a restore locks the backup, which needs a folder that can be written to: copy it to such a disk, and restore the copy"
        }
        RestoreError::Open(OpenError::ReadOnly(_)) => {
            "run this as a user who may write there; a running server makes a backup itself, so its service must be allowed to write \
             there (ReadWritePaths= of systemd)"
        }
        RestoreError::Open(OpenError::NoSpace(_)) => "make room, or name a folder on another disk",
        RestoreError::Open(OpenError::NewerFormat { .. }) => "use the version that wrote it",
        RestoreError::Open(OpenError::NotAStore(path)) if is_partial(path) => {
            "move it away, or name another folder"
        }
        RestoreError::Open(OpenError::NotAStore(_)) => "name the folder that `millrace backup` made",
        RestoreError::Open(OpenError::Partial(_)) => "name one that does not end with .partial",
        RestoreError::Open(OpenError::Corrupt { .. }) | RestoreError::Copy(StoreError::Corrupt(_)) => {
            "restore another backup"
        }
        RestoreError::Open(_) => "see that it can be read and written",
        RestoreError::Copy(StoreError::Io(_) | StoreError::DiskFull { .. }) => {
            "make room if the disk is full, or name a folder on another disk; nothing of the copy is left"
        }
        _ => "nothing of the copy is left",
    };
    AnswerError::Failed(format!("{error}{cause}: {advice}"))
}

fn is_partial(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == PARTIAL)
}

fn partial(target: &Path) -> PathBuf {
    let mut partial = target.as_os_str().to_owned();
    partial.push(".");
    partial.push(PARTIAL);
    partial.into()
}

/// Bytes of all files; unreadable files do not count.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size_of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        // Journals have holes, so blocks on the disk count, not the length.
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size_of).sum()
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
