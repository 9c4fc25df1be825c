//! Holds fjall's store, and can close it and open it again while others read.
//!
//! fjall accepts no write after a failed write or sync, because the kernel may have dropped the
//! data. So after a failure this module writes the journals again, and opens the store again, which
//! reads them back. Before it accepts the first commit, it has all memory written into new tables.

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::Bytes;

use super::{
    check::batch,
    counters::Counters,
    folder::{Folder, corrupt, refused},
    gauges::Gauges,
    options::{DiskUse, Options},
    recovery::FolderRecovery,
    rewrite::rewrite_journals,
    space::{DiskSpace, Room},
    store::EmbeddedStore,
    versions::OpenView,
    watermark::Watermark,
};
use crate::{
    engine::local::{Backend, KeyWrite, Readiness, View},
    error::{OpenError, StoreError},
    key::KeyRange,
    stat::Stat,
    version::StoreVersion,
};

pub(super) struct Cell {
    shared: Arc<CellState>,
    version: AtomicU64,
    watermark: Watermark,
    recovery: FolderRecovery,
    /// The store was opened again, and the contents of its journals are not in tables yet.
    settling: AtomicBool,
    space: DiskSpace,
    counters: Arc<Counters>,
    gauges: Gauges,
    options: Options,
}

struct CellState {
    slot: RwLock<StoreSlot>,
    /// Declared after the store, so that the folder stays locked until the store is closed.
    folder: Folder,
}

struct StoreSlot {
    store: Option<EmbeddedStore>,
    /// How often the store was opened again: views of an earlier store are too old.
    opened: u64,
}

impl Cell {
    pub(super) fn open(folder: Folder, options: Options) -> Result<Self, OpenError> {
        let watermark = Watermark::open(folder.path()).map_err(|error| refused(folder.path(), error))?;
        // An earlier process may have ended after a failed sync, which left the journals in doubt.
        rewrite_journals(&folder.tables()).map_err(|error| refused(folder.path(), error))?;
        let acknowledged = watermark.read();
        let (store, journals) = EmbeddedStore::open(&folder.tables(), &options, acknowledged)?;
        folder.sync_all().map_err(|error| refused(folder.path(), error))?;
        let version = store.version().map_err(|error| corrupt(folder.path(), error.to_string()))?;
        let (journal_commits, cut_bytes) = (journals.commits(), journals.cut_bytes);
        let recovery = FolderRecovery { acknowledged, recovered: version, journal_commits, cut_bytes };
        let version = AtomicU64::new(version);
        let slot = RwLock::new(StoreSlot { store: Some(store), opened: 0 });
        let shared = Arc::new(CellState { slot, folder });
        let (settling, space, counters, gauges) = Default::default();
        Ok(Self { shared, version, watermark, recovery, settling, space, counters, gauges, options })
    }

    fn room(&self) -> Result<Room, StoreError> {
        self.space.room(self.shared.folder.path(), &self.options)
    }

    fn state(&self, store: &EmbeddedStore) -> Readiness {
        if let Some(error) = store.failure() {
            return Readiness::Failed(match self.room() {
                Ok(Room::All) => error,
                Ok(Room::FreesSpace(full) | Room::None(full)) | Err(full) => full,
            });
        }
        let room = match self.room() {
            Ok(Room::None(error)) | Err(error) => return Readiness::Refuse(error),
            Ok(room) => room,
        };
        if self.settling.load(Ordering::Relaxed) {
            self.settling.store(store.is_flushing(), Ordering::Relaxed);
        }
        let settling = self.settling.load(Ordering::Relaxed);
        if store.is_open_full()
            && !store.is_behind()
            && let Err(error) = store.start_flush()
        {
            return Readiness::Failed(error);
        }
        match room {
            _ if settling || store.is_behind() || store.is_open_full() => Readiness::Behind,
            Room::FreesSpace(error) | Room::None(error) => {
                match self.space.make_room(store, self.version()) {
                    Ok(()) => Readiness::Low(error),
                    Err(error) => Readiness::Failed(error),
                }
            }
            Room::All => Readiness::Ready,
        }
    }

    /// Closes the failed store, repairs its files and opens it again. Readers wait meanwhile.
    fn reopen(&self) -> Result<(), StoreError> {
        let mut slot = self.shared.slot.write().unwrap_or_else(PoisonError::into_inner);
        // Only one store can have the files open, so the old one is closed first.
        slot.store = None;
        slot.opened += 1;
        let tables = self.shared.folder.tables();
        let io = |error: std::io::Error| StoreError::Unavailable(error.to_string());
        rewrite_journals(&tables).map_err(io)?;
        let (store, _) = EmbeddedStore::open(&tables, &self.options, self.version())
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        self.shared.folder.sync_all().map_err(io)?;
        self.version.fetch_max(store.version()?, Ordering::Relaxed);
        store.start_flush()?;
        self.settling.store(true, Ordering::Relaxed);
        self.counters.reopened.add(1);
        slot.store = Some(store);
        Ok(())
    }

    pub(super) fn disk_use(&self) -> Result<DiskUse, StoreError> {
        let free_bytes = (self.options.free_bytes)(self.shared.folder.path())
            .map_err(|error| StoreError::Io(error.to_string()))?;
        Ok(DiskUse { used_bytes: self.shared.slot().store()?.disk_space()?, free_bytes })
    }

    pub(super) fn recovery(&self) -> FolderRecovery {
        self.recovery
    }

    pub(super) fn format(&self) -> u32 {
        self.shared.folder.format()
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }
}

impl CellState {
    fn slot(&self) -> RwLockReadGuard<'_, StoreSlot> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_gauges(&self, options: &Options, counters: &Counters) {
        // The disk's figures come first, because they need no lock of fjall.
        if let Ok(disk) = rustix::fs::statvfs(self.folder.path()) {
            counters.size_bytes.set(disk.f_blocks.saturating_mul(disk.f_frsize));
        }
        if let Ok(free_bytes) = (options.free_bytes)(self.folder.path()) {
            counters.free_bytes.set(free_bytes);
        }
        if let Ok(store) = self.slot().store() {
            store.look(counters);
            if let Ok(used_bytes) = store.disk_space() {
                counters.disk_bytes.set(used_bytes);
            }
        }
    }
}

impl StoreSlot {
    fn store(&self) -> Result<&EmbeddedStore, StoreError> {
        self.store.as_ref().ok_or_else(|| StoreError::Unavailable("it could not be opened again yet".into()))
    }
}

impl Backend for Cell {
    type View = CellView;

    fn version(&self) -> StoreVersion {
        self.version.load(Ordering::Relaxed)
    }

    fn view(&self) -> CellView {
        let slot = self.shared.slot();
        let snapshot = slot.store.as_ref().map(EmbeddedStore::snapshot);
        CellView { shared: self.shared.clone(), opened: slot.opened, snapshot }
    }

    fn readiness(&self) -> Readiness {
        match self.shared.slot().store() {
            Ok(store) => self.state(store),
            Err(error) => Readiness::Failed(error),
        }
    }

    fn apply(&self, version: StoreVersion, writes: Vec<KeyWrite>) -> Result<(), StoreError> {
        let journal_bytes = batch::bytes_of(&writes);
        self.shared.folder.raise_format().map_err(|error| StoreError::Io(error.to_string()))?;
        self.shared.slot().store()?.apply(version, writes)?;
        self.counters.syncs.add(1);
        self.counters.journal_bytes.add(journal_bytes);
        self.version.store(version, Ordering::Relaxed);
        self.watermark.note(version);
        self.space.wrote();
        Ok(())
    }

    fn free(&self) -> bool {
        self.shared.slot().store().is_ok_and(EmbeddedStore::free)
    }

    fn idle(&self) {
        if let Ok(store) = self.shared.slot().store()
            && let Err(error) = store.flush_idle()
        {
            tracing::warn!(%error, "the idle store could not write its memory to disk; it tries again later");
        }
    }

    fn stats(&self) -> Vec<Stat> {
        let (shared, options, counters) = (self.shared.clone(), self.options.clone(), self.counters.clone());
        self.gauges.refresh(move || shared.read_gauges(&options, &counters));
        self.counters.list()
    }

    fn recover(&self) -> Result<(), StoreError> {
        // The old store serves reads until the disk accepts writes.
        if let Room::None(error) = self.room()? {
            return Err(error);
        }
        self.shared.folder.probe().map_err(|error| StoreError::Io(error.to_string()))?;
        self.reopen()
    }
}

pub(super) struct CellView {
    shared: Arc<CellState>,
    opened: u64,
    snapshot: Option<OpenView>,
}

impl CellView {
    fn read<T>(
        &self,
        read: impl FnOnce(&EmbeddedStore, &OpenView) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let slot = self.shared.slot();
        let store = slot.store()?;
        match &self.snapshot {
            Some(snapshot) if slot.opened == self.opened => read(store, snapshot),
            _ => Err(StoreError::TooOld),
        }
    }
}

impl View for CellView {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.read(|store, snapshot| store.get(snapshot, key))
    }

    fn scan(
        &self,
        range: &KeyRange,
        reverse: bool,
        each: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StoreError> {
        self.read(|store, snapshot| store.scan(snapshot, range, reverse, each))
    }
}
