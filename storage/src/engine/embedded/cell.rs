//! The store in its place: it can be closed and opened again under those who read it.
//!
//! fjall takes no write after one write or sync failed, for good reason: the kernel may have dropped what it could not write.
//! So after a failure the store is opened again, which reads the journal back, and all that was in memory is written into
//! new tables before the first commit is taken.

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::Bytes;
use fjall::Snapshot;

use super::{
    folder::{Folder, corrupt, refused},
    options::{DiskUse, Options},
    store::Store,
    watermark::Watermark,
};
use crate::{
    engine::local::{Backend, Readiness, View, Write},
    error::{Error, OpenError},
    key::KeyRange,
    version::Version,
};

pub(super) struct Cell {
    shared: Arc<Shared>,
    version: AtomicU64,
    watermark: Watermark,
    /// The store was opened again and what it read back is not in tables yet.
    settling: AtomicBool,
    options: Options,
}

struct Shared {
    /// Dropped after the store.
    slot: RwLock<Slot>,
    folder: Folder,
}

struct Slot {
    /// `None` while it could not be opened again.
    store: Option<Store>,
    /// Which opening this is.
    opened: u64,
}

impl Cell {
    pub(super) fn open(folder: Folder, options: Options) -> Result<Self, OpenError> {
        let store = Store::open(&folder.tables(), &options)?;
        let watermark = Watermark::open(folder.path()).map_err(|error| refused(folder.path(), error))?;
        let version = store.version().map_err(|error| corrupt(folder.path(), error.to_string()))?;
        check_watermark(&folder, version, watermark.read())?;
        let version = AtomicU64::new(version);
        let slot = RwLock::new(Slot { store: Some(store), opened: 0 });
        let shared = Arc::new(Shared { slot, folder });
        Ok(Self { shared, version, watermark, settling: AtomicBool::new(false), options })
    }

    fn check_space(&self) -> Result<(), Error> {
        let free_bytes = (self.options.free_bytes)(self.shared.folder.path())
            .map_err(|error| Error::Io(error.to_string()))?;
        let reserve_bytes = self.options.disk_reserve_bytes;
        if free_bytes < reserve_bytes { Err(Error::DiskFull { free_bytes, reserve_bytes }) } else { Ok(()) }
    }

    fn state(&self, store: &Store) -> Readiness {
        if let Some(error) = store.failure() {
            return Readiness::Failed(self.check_space().err().unwrap_or(error));
        }
        if let Err(error) = self.check_space() {
            return Readiness::Refuse(error);
        }
        if self.settling.load(Ordering::Relaxed) {
            self.settling.store(store.is_flushing(), Ordering::Relaxed);
        }
        let settling = self.settling.load(Ordering::Relaxed);
        if settling || store.is_behind() { Readiness::Behind } else { Readiness::Ready }
    }

    fn reopen(&self) -> Result<(), Error> {
        let mut slot = self.shared.slot.write().unwrap_or_else(PoisonError::into_inner);
        // Two cannot have the files open, so the old one goes first.
        slot.store = None;
        slot.opened += 1;
        let store = Store::open(&self.shared.folder.tables(), &self.options)
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        self.version.fetch_max(store.version()?, Ordering::Relaxed);
        store.start_flush()?;
        self.settling.store(true, Ordering::Relaxed);
        slot.store = Some(store);
        Ok(())
    }

    pub(super) fn disk_use(&self) -> Result<DiskUse, Error> {
        let free_bytes = (self.options.free_bytes)(self.shared.folder.path())
            .map_err(|error| Error::Io(error.to_string()))?;
        Ok(DiskUse { used_bytes: self.shared.slot().store()?.disk_space()?, free_bytes })
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }
}

fn check_watermark(folder: &Folder, found: Version, noted: Version) -> Result<(), OpenError> {
    if found >= noted {
        return Ok(());
    }
    let reason = format!(
        "commits up to {noted} were acknowledged and only those up to {found} are there; restore a backup, or delete the \
         file watermark to go on without them"
    );
    Err(corrupt(folder.path(), reason))
}

impl Shared {
    fn slot(&self) -> RwLockReadGuard<'_, Slot> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn store(&self) -> Result<&Store, Error> {
        self.store.as_ref().ok_or_else(|| Error::Unavailable("it could not be opened again yet".into()))
    }
}

impl Backend for Cell {
    type View = CellView;

    fn version(&self) -> Version {
        self.version.load(Ordering::Relaxed)
    }

    fn view(&self) -> CellView {
        let slot = self.shared.slot();
        let snapshot = slot.store.as_ref().map(Store::snapshot);
        CellView { shared: self.shared.clone(), opened: slot.opened, snapshot }
    }

    fn readiness(&self) -> Readiness {
        match self.shared.slot().store() {
            Ok(store) => self.state(store),
            Err(error) => Readiness::Failed(error),
        }
    }

    fn apply(&self, version: Version, writes: Vec<Write>) -> Result<(), Error> {
        self.shared.slot().store()?.apply(version, writes)?;
        self.version.store(version, Ordering::Relaxed);
        self.watermark.note(version);
        Ok(())
    }

    fn recover(&self) -> Result<(), Error> {
        // As long as the disk takes nothing, the old store at least can be read.
        self.check_space()?;
        self.shared.folder.probe().map_err(|error| Error::Io(error.to_string()))?;
        self.reopen()
    }
}

/// A snapshot of one opening of the store.
pub(super) struct CellView {
    shared: Arc<Shared>,
    opened: u64,
    snapshot: Option<Snapshot>,
}

impl CellView {
    fn read<T>(&self, read: impl FnOnce(&Store, &Snapshot) -> Result<T, Error>) -> Result<T, Error> {
        let slot = self.shared.slot();
        let store = slot.store()?;
        match &self.snapshot {
            Some(snapshot) if slot.opened == self.opened => read(store, snapshot),
            _ => Err(Error::TooOld),
        }
    }
}

impl View for CellView {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.read(|store, snapshot| store.get(snapshot, key))
    }

    fn scan(
        &self,
        range: &KeyRange,
        reverse: bool,
        each: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), Error> {
        self.read(|store, snapshot| store.scan(snapshot, range, reverse, each))
    }
}
