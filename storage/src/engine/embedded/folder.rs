//! The data folder: its lock, its format, and what its errors mean.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::error::OpenError;

/// Format 1 has tables of fjall 3 in `tables`, one keyspace `keys`, and the version at
/// `\xff/version`. In format 2 retained messages and wills may name their publisher, which builds of
/// format 1 would take for a part of the message.
const FORMAT: u32 = 2;

const FORMAT_PREFIX: &str = "millrace-store ";
const LOCK: &str = "lock";
const FORMAT_FILE: &str = "format";
const FORMAT_NEW: &str = "format.new";

pub(super) struct Folder {
    path: PathBuf,
    /// The system releases the lock when the process ends, however it ends.
    lock: File,
    format: AtomicU32,
}

impl Drop for Folder {
    /// Unlocks the file before it is closed: a child process that is just starting may have a copy
    /// of it, and closing alone would leave it locked.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            debug_assert!(false, "unlocking the data folder: {error}");
        }
    }
}

impl Folder {
    /// A folder of an older format keeps it until [`Folder::raise_format`], so a build of that format
    /// can still open a folder to which nothing was written.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_as(path, FORMAT)
    }

    /// Removes what a copy that was killed has left there.
    pub(super) fn open_for_copy(path: &Path, format: u32) -> Result<Self, OpenError> {
        let folder = Self::open_as(path, format)?;
        let emptied = folder.empty().and_then(|()| write_format(path, format));
        emptied.map_err(|error| refused(path, error))?;
        folder.format.store(format, Ordering::Relaxed);
        Ok(folder)
    }

    fn open_as(path: &Path, format_of_new: u32) -> Result<Self, OpenError> {
        // The format file is written after all parents are synced; without it, an earlier start may
        // not have ended.
        if !path.join(FORMAT_FILE).exists() {
            create(path, &mut sync_folder).map_err(|error| refused(path, error))?;
        }
        // Read before the lock file is made, so that a folder of another program stays as it is.
        read_format(path)?;
        let lock = lock(path)?;
        // Read again under the lock, because another process may have written it meanwhile.
        let format = match read_format(path)? {
            Some(format) => format,
            None => {
                write_format(path, format_of_new).map_err(|error| refused(path, error))?;
                format_of_new
            }
        };
        Ok(Self { path: path.into(), lock, format: format.into() })
    }

    pub(super) fn format(&self) -> u32 {
        self.format.load(Ordering::Relaxed)
    }

    /// Before a write of this build, so that no build that would misread it opens the folder.
    pub(super) fn raise_format(&self) -> io::Result<()> {
        if self.format() < FORMAT {
            write_format(&self.path, FORMAT)?;
            self.format.store(FORMAT, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Removes all but the lock, which is held, and the format, without which the rest would be of
    /// another program.
    fn empty(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name() == LOCK || entry.file_name() == FORMAT_FILE {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn tables(&self) -> PathBuf {
        self.path.join("tables")
    }

    /// Syncs all folders, because fjall does not sync each folder that it makes.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.sync_all_with(&mut sync_folder)
    }

    fn sync_all_with(&self, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
        sync_below(&self.tables(), sync)?;
        sync(&self.tables())?;
        sync(&self.path)
    }

    /// Writes and syncs a file, to find out whether the disk accepts writes again.
    pub(super) fn probe(&self) -> io::Result<()> {
        let path = self.path.join("probe");
        let written = write_synced(&path, &[0; 1 << 16]);
        fs::remove_file(&path)?;
        written
    }
}

/// A folder survives a loss of power once its parent is synced, so `create` calls `sync` for the
/// parent of each new folder. An earlier start that was killed may have made the deepest existing
/// folder without that sync, so its parent is synced, too.
fn create(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let above = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if path.is_dir() {
        return match sync(above) {
            Err(error) if is_of_others(&error) => Ok(()),
            synced => synced,
        };
    }
    create(above, sync)?;
    match fs::create_dir(path) {
        Err(error) if !path.is_dir() => Err(error),
        _ => sync(above),
    }
}

/// True when no earlier start can have made the folder: the server may not open its parent, or the
/// parent's file system is read-only or cannot sync folders.
fn is_of_others(error: &io::Error) -> bool {
    use ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), InvalidInput | PermissionDenied | ReadOnlyFilesystem | Unsupported)
}

/// Syncs the deepest folders first. A folder may be gone when its turn comes, because fjall removes
/// folders in the background. A folder that denies access is skipped: fjall could not have opened
/// its tables there.
fn sync_below(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let synced = entry.and_then(|entry| {
            if !entry.file_type()?.is_dir() {
                return Ok(());
            }
            sync_below(&entry.path(), sync)?;
            sync(&entry.path())
        });
        match synced {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// `None` while the folder has no format.
fn read_format(path: &Path) -> Result<Option<u32>, OpenError> {
    let text = match fs::read_to_string(path.join(FORMAT_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let empty = is_new(path).map_err(|error| refused(path, error))?;
            return if empty { Ok(None) } else { Err(OpenError::NotAStore(path.into())) };
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return Err(corrupt(path, "its format file is not one"));
        }
        Err(error) => return Err(refused(path, error)),
    };
    let number = text.strip_prefix(FORMAT_PREFIX).and_then(|rest| rest.trim_end().parse().ok());
    match number {
        Some(found) if found > FORMAT => {
            Err(OpenError::NewerFormat { path: path.into(), found, known: FORMAT })
        }
        Some(found) if found > 0 => Ok(Some(found)),
        _ => Err(corrupt(path, "its format file is not one")),
    }
}

/// True when the folder has nothing but files of an unfinished start.
fn is_new(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if name != LOCK && name != FORMAT_NEW && name != "lost+found" {
            return Ok(false);
        }
    }
    Ok(true)
}

fn write_format(path: &Path, format: u32) -> io::Result<()> {
    let new = path.join(FORMAT_NEW);
    write_synced(&new, format!("{FORMAT_PREFIX}{format}\n").as_bytes())?;
    fs::rename(&new, path.join(FORMAT_FILE))?;
    sync_folder(path)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    let file = options.open(path.join(LOCK)).map_err(|error| refused(path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked(path.into())),
        Err(TryLockError::Error(error)) => Err(refused(path, error)),
    }
}

pub(super) fn refused(path: &Path, error: io::Error) -> OpenError {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly(path.into()),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => OpenError::NoSpace(path.into()),
        _ => OpenError::Io { path: path.into(), source: error },
    }
}

pub(super) fn corrupt(path: &Path, reason: impl Into<String>) -> OpenError {
    OpenError::Corrupt { path: path.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_each_folder_that_is_made_is_synced_after_it_was_made() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("a/b/data");
        let mut synced = Vec::new();
        let mut sync = |path: &Path| {
            let names = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name()));
            synced.push((path.to_path_buf(), names.collect::<io::Result<Vec<_>>>()?));
            Ok(())
        };
        create(&data, &mut sync).unwrap();
        // The first one is the parent of the root, which existed.
        synced.remove(0);
        let expected = [("", "a"), ("a", "b"), ("a/b", "data")]
            .map(|(parent, name)| (root.path().join(parent), vec![name.into()]));
        let synced: Vec<_> = synced.into_iter().map(|(path, names)| (path.join(""), names)).collect();
        assert_eq!(synced, expected.map(|(path, names): (PathBuf, Vec<_>)| (path.join(""), names)));
        fs::write(root.path().join("file"), "").unwrap();
        assert!(create(&root.path().join("file"), &mut sync_folder).is_err(), "a file is no folder");
    }

    #[test]
    fn a_start_that_was_killed_before_it_synced_a_parent_is_repaired_by_the_next_one() {
        let root = tempfile::tempdir().unwrap();
        let made = root.path().join("made");
        let data = made.join("data");
        let synced = || {
            let mut synced = Vec::new();
            create(&data, &mut |path| {
                synced.push(path.to_path_buf());
                Ok(())
            })
            .unwrap();
            synced
        };
        let killed_at = |killed: &Path| {
            let mut sync =
                |path: &Path| if path == killed { Err(ErrorKind::Interrupted.into()) } else { Ok(()) };
            create(&data, &mut sync).unwrap_err();
        };
        killed_at(root.path());
        assert!(made.is_dir() && !data.is_dir());
        assert_eq!(synced(), [root.path(), &made]);
        fs::remove_dir(&data).unwrap();
        killed_at(&made);
        assert!(data.is_dir());
        assert_eq!(synced(), [&*made]);
        for foreign in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem, ErrorKind::InvalidInput] {
            create(&data, &mut |_| Err(foreign.into())).unwrap();
        }
        create(&data, &mut |_| Err(ErrorKind::StorageFull.into())).unwrap_err();
    }

    #[test]
    fn folders_that_are_not_of_the_tables_or_go_meanwhile_are_no_errors() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("lost+found")).unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let tables = folder.tables();
        for name in ["0/a", "1/a", "2/a"] {
            fs::create_dir_all(tables.join(name)).unwrap();
        }
        let mut synced = Vec::new();
        // fjall removes the other tables while the first one is being synced.
        let mut sync = |path: &Path| {
            if synced.is_empty() {
                let first = path.parent().unwrap();
                for name in ["0", "1", "2"].map(|name| tables.join(name)).iter().filter(|name| *name != first)
                {
                    fs::remove_dir_all(name)?;
                }
            }
            synced.push(path.strip_prefix(root.path()).unwrap().to_path_buf());
            sync_folder(path)
        };
        folder.sync_all_with(&mut sync).unwrap();
        assert_eq!(synced.len(), 4, "{synced:?}");
        assert_eq!(synced[2..], [PathBuf::from("tables"), PathBuf::new()]);
        let denied = |path: &Path| path.starts_with(tables.join("0")) || path.starts_with(tables.join("1"));
        fs::create_dir_all(tables.join("0")).unwrap();
        let mut sync =
            |path: &Path| if denied(path) { Err(ErrorKind::PermissionDenied.into()) } else { Ok(()) };
        folder.sync_all_with(&mut sync).unwrap();
        let mut sync =
            |path: &Path| if path == tables { Err(ErrorKind::PermissionDenied.into()) } else { Ok(()) };
        folder.sync_all_with(&mut sync).unwrap_err();
    }
}
