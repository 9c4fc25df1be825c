//! Backs up a data folder while it is in use, and restores it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    Embedded,
    folder::{Folder, sync_folder},
    options::Options,
    store::EmbeddedStore,
};
use crate::{
    copy::unfinished,
    engine::local::View,
    error::{OpenError, StoreError},
    key::KeyRange,
    version::StoreVersion,
};

const PARTIAL: &str = "partial";
const ROOM_CHECKED_EVERY_BYTES: usize = 8 << 20;

/// A copy that failed is removed. A killed process leaves its copy in a folder whose name ends with
/// `.partial`, until the next copy of the same name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    #[error("{0} is there already: a backup or a restore makes a new folder")]
    Exists(PathBuf),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the keys could not be copied")]
    Copy(#[from] StoreError),
    #[error("{path} could not be renamed to its final name")]
    Move {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A copy without all of its keys opens like a store that has no others.
pub(super) fn refuse_partial(path: &Path) -> Result<(), OpenError> {
    let is_partial = path.extension().is_some_and(|extension| extension == PARTIAL);
    if is_partial { Err(OpenError::Partial(path.into())) } else { Ok(()) }
}

impl Embedded {
    /// Copies all keys of one version into a new, compact data folder while this one stays in use.
    /// Checks every block that it reads.
    ///
    /// # Errors
    /// The folder `to` exists, cannot be written, or is being made by another copy; its disk would
    /// have less than its reserve left; or a key cannot be read.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<(), RestoreError> {
        let to = to.as_ref();
        refuse_partial(to)?;
        if to.exists() {
            return Err(RestoreError::Exists(to.into()));
        }
        let mut partial = to.as_os_str().to_owned();
        partial.push(format!(".{PARTIAL}"));
        let partial = PathBuf::from(partial);
        let (version, keys) = self.engine.snapshot();
        // Read after the snapshot, because the first commit of a build may raise it.
        let format = self.cell.format();
        // Locked until the copy has its name, so that two copies do not write into one folder.
        let folder = Folder::open_for_copy(&partial, format)?;
        let moved = |source| RestoreError::Move { path: to.into(), source };
        let copied = self.fill(&folder, version, &keys);
        let copied = copied.and_then(|()| fs::rename(&partial, to).map_err(moved));
        if copied.is_err() {
            let _ = fs::remove_dir_all(&partial);
        }
        copied?;
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new("."))).map_err(moved)
    }

    /// Makes a data folder whose commits come after `version`, as the target for copying a store
    /// of that version. It is marked as unfinished at once, so that no server starts on it if the
    /// copy is killed before its first key. A folder that already has commits stays as it is.
    ///
    /// # Errors
    /// The folder is in use, not a data folder, or cannot be written.
    pub fn create_after(path: impl AsRef<Path>, version: StoreVersion) -> Result<(), RestoreError> {
        let folder = Folder::open(path.as_ref())?;
        let (store, _) = EmbeddedStore::open(&folder.tables(), &Options::default(), 0)?;
        if store.version()? == 0 {
            let (key, value) = unfinished();
            store.fill(version, &mut |sink| sink(key.clone(), value.clone()))?;
        }
        folder.sync_all().map_err(|source| OpenError::Io { path: path.as_ref().into(), source })?;
        Ok(())
    }

    fn fill(&self, folder: &Folder, version: StoreVersion, keys: &impl View) -> Result<(), RestoreError> {
        let options = self.cell.options();
        let mut room = CopyRoom::new(folder.path(), options);
        let (store, _) = EmbeddedStore::open(&folder.tables(), options, 0)?;
        store.fill(version, &mut |sink| {
            let mut result = Ok(());
            keys.scan(&KeyRange::prefix([]), false, &mut |key, value| {
                result = room.take(key.len() + value.len()).and_then(|()| sink(key, value));
                result.is_ok()
            })?;
            result.clone()
        })?;
        folder.sync_all().map_err(|source| OpenError::Io { path: folder.path().into(), source })?;
        Ok(())
    }
}

/// Keeps a copy out of the reserve of its disk, which a server there needs.
struct CopyRoom<'a> {
    folder: &'a Path,
    options: &'a Options,
    reserve_bytes: u64,
    unchecked_bytes: usize,
}

impl<'a> CopyRoom<'a> {
    fn new(folder: &'a Path, options: &'a Options) -> Self {
        // The disk may be another one than that of the source, and smaller.
        let reserve_bytes = options.disk_reserve_bytes.min(Options::of_disk(folder).disk_reserve_bytes);
        Self { folder, options, reserve_bytes, unchecked_bytes: ROOM_CHECKED_EVERY_BYTES }
    }

    fn take(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.unchecked_bytes += bytes;
        if self.unchecked_bytes < ROOM_CHECKED_EVERY_BYTES {
            return Ok(());
        }
        self.unchecked_bytes = 0;
        let free_bytes = (self.options.free_bytes)(self.folder);
        let free_bytes = free_bytes.map_err(|error| StoreError::Io(error.to_string()))?;
        let reserve_bytes = self.reserve_bytes;
        if free_bytes < reserve_bytes {
            Err(StoreError::DiskFull { free_bytes, reserve_bytes })
        } else {
            Ok(())
        }
    }
}

pub fn restore(backup: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), RestoreError> {
    Embedded::open(backup, Options::of_disk(to.as_ref()))?.backup(to)
}
