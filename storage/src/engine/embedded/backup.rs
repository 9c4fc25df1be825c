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

/// The reason why a backup or restore failed. Its partial copy is in a folder whose name ends with
/// `.partial`, and may be deleted.
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

impl Embedded {
    /// Copies all keys of one version into a new, compact data folder while this one stays in use.
    /// Checks every block that it reads.
    ///
    /// # Errors
    /// The folder `to` exists or cannot be written, or a key cannot be read.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<(), RestoreError> {
        let to = to.as_ref();
        if to.exists() {
            return Err(RestoreError::Exists(to.into()));
        }
        let moved = |source| RestoreError::Move { path: to.into(), source };
        let mut partial = to.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(moved)?;
        }
        self.copy(&partial)?;
        fs::rename(&partial, to).map_err(moved)?;
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

    fn copy(&self, to: &Path) -> Result<(), RestoreError> {
        let folder = Folder::open(to)?;
        let (store, _) = EmbeddedStore::open(&folder.tables(), self.cell.options(), 0)?;
        let (version, keys) = self.engine.snapshot();
        store.fill(version, &mut |sink| {
            let mut result = Ok(());
            keys.scan(&KeyRange::prefix([]), false, &mut |key, value| {
                result = sink(key, value);
                result.is_ok()
            })?;
            result.clone()
        })?;
        Ok(())
    }
}

pub fn restore(backup: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), RestoreError> {
    Embedded::open(backup, Options::default())?.backup(to)
}
