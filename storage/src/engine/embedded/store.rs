//! Wraps the part of fjall that this engine uses.

use std::{
    io::ErrorKind,
    path::Path,
    sync::Arc,
    thread::{self, ScopedJoinHandle},
};

use bytes::Bytes;
use fjall::{
    AbstractTree, Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode, Readable, Snapshot,
    compaction::Leveled,
};

use super::{
    check::{JournalContents, check, missing},
    counters::Counters,
    folder::{corrupt, refused},
    options::Options,
    versions::{OpenView, Versions},
};
use crate::{
    engine::local::KeyWrite,
    error::{OpenError, StoreError},
    key::KeyRange,
    version::StoreVersion,
};

pub(super) const OPEN_THREAD: &str = "store-open";

/// The key of the last version; it sorts after all keys of users.
pub(super) const VERSION_KEY: &[u8] = b"\xff/version";

/// Sealed memtables at which commits wait: at four, fjall would make writers sleep, and the commit
/// thread could not notice a failure.
const SEALED_MAX: usize = 2;

/// New tables that are merged together: three times fjall's default, because entries that are soon
/// trimmed from a stream then need no merge. With more, reads would search more tables: 16 tables
/// of 32 MiB cost 5 % of the messages per CPU second that a drain delivers, 12 of 48 MiB 1 %.
pub(super) const UNMERGED: u8 = 12;

/// Unmerged new tables at which commits wait, before fjall makes writers sleep at 30.
const UNMERGED_MAX: usize = 24;

/// Part of `memtable_bytes` from which an idle store seals the open memtable, which would otherwise
/// stay in memory until the next writes fill it.
const IDLE_PART: u64 = 4;

pub(super) struct EmbeddedStore {
    database: Database,
    keys: Keyspace,
    memtable_bytes: u64,
    versions: Arc<Versions>,
}

impl EmbeddedStore {
    /// `noted` is the last version known to be acknowledged; the store must have every version up
    /// to it.
    pub(super) fn open(
        tables: &Path,
        options: &Options,
        noted: StoreVersion,
    ) -> Result<(Self, JournalContents), OpenError> {
        let folder = tables.parent().unwrap_or(tables);
        let journals = check(tables, noted)?;
        // fjall may panic on damaged tables. A panic of another thread would end the process.
        let opened = thread::scope(|scope| {
            let open = || Self::open_tables(tables, options);
            let thread = thread::Builder::new().name(OPEN_THREAD.into()).spawn_scoped(scope, open);
            thread.map(ScopedJoinHandle::join)
        });
        let store = match opened.map_err(|error| refused(folder, error))? {
            Ok(opened) => opened.map_err(|error| open_error(folder, error))?,
            Err(_) => return Err(corrupt(folder, "its tables cannot be read")),
        };
        store.check_versions(&journals, noted).map_err(|reason| corrupt(folder, reason))?;
        Ok((store, journals))
    }

    fn open_tables(tables: &Path, options: &Options) -> fjall::Result<Self> {
        Self::open_with(tables, options, options.background_threads.max(1))
    }

    fn open_with(tables: &Path, options: &Options, threads: usize) -> fjall::Result<Self> {
        let database = Database::builder(tables)
            .cache_size(options.cache_bytes)
            .max_cached_files(Some(options.open_tables_max))
            .worker_threads_unchecked(threads)
            .manual_journal_persist(true)
            .open()?;
        let keys = database.keyspace("keys", || {
            KeyspaceCreateOptions::default()
                .manual_journal_persist(true)
                .max_memtable_size(options.memtable_bytes)
                .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(UNMERGED)))
        })?;
        Ok(Self { database, keys, memtable_bytes: options.memtable_bytes, versions: Arc::default() })
    }

    fn check_versions(&self, journals: &JournalContents, noted: StoreVersion) -> Result<(), String> {
        if let Some((sequence, version)) = journals.first
            && self.keys.tree.get_highest_persisted_seqno().is_none_or(|persisted| persisted < sequence)
        {
            // The journals are not in the tables yet.
            let before = self.keys.tree.get(VERSION_KEY, sequence);
            let before = before.map_err(|error| reason_of(&error.into()))?;
            let before = version_of(before.as_deref()).map_err(|error| error.to_string())?;
            if version > before + 1 {
                return Err(format!("commits {} to {} are missing: a journal is", before + 1, version - 1));
            }
        }
        let found = self.version().map_err(|error| error.to_string())?;
        let expected = noted.max(journals.version);
        if found >= expected { Ok(()) } else { Err(missing(expected, found)) }
    }

    pub(super) fn snapshot(&self) -> OpenView {
        self.versions.open_view(&self.database)
    }

    /// Frees memory and tables that no view reads; true when more can be freed later, without
    /// another write.
    pub(super) fn free(&self) -> bool {
        self.versions.free(&self.keys) || self.is_working()
    }

    pub(super) fn version(&self) -> Result<StoreVersion, StoreError> {
        version_of(self.get(&self.snapshot(), VERSION_KEY)?.as_deref())
    }

    pub(super) fn get(&self, snapshot: &Snapshot, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let value = snapshot.get(&self.keys, key).map_err(|error| error_of(&error))?;
        Ok(value.map(Bytes::from))
    }

    pub(super) fn scan(
        &self,
        snapshot: &Snapshot,
        range: &KeyRange,
        reverse: bool,
        each: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StoreError> {
        let mut keys = snapshot.range::<&[u8], _>(&self.keys, &*range.begin..&*range.end);
        while let Some(item) = if reverse { keys.next_back() } else { keys.next() } {
            let (key, value) = item.into_inner().map_err(|error| error_of(&error))?;
            if !each(key.into(), value.into()) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn apply(&self, version: StoreVersion, writes: Vec<KeyWrite>) -> Result<(), StoreError> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for KeyWrite { key, value } in writes {
            match value {
                Some(value) => batch.insert(&self.keys, key, value),
                None => batch.remove(&self.keys, key),
            }
        }
        batch.insert(&self.keys, VERSION_KEY, Bytes::copy_from_slice(&version.to_be_bytes()));
        batch.commit().map_err(|error| error_of(&error))
    }

    /// Writes sorted items into an empty store, without a journal.
    pub(super) fn fill(&self, version: StoreVersion, items: &mut Items<'_>) -> Result<(), StoreError> {
        let mut fill = self.keys.start_ingestion().map_err(|error| error_of(&error))?;
        items(&mut |key, value| fill.write(key, value).map_err(|error| error_of(&error)))?;
        let version = Bytes::copy_from_slice(&version.to_be_bytes());
        fill.write(VERSION_KEY, version).map_err(|error| error_of(&error))?;
        fill.finish().map_err(|error| error_of(&error))?;
        self.database.persist(PersistMode::SyncAll).map_err(|error| error_of(&error))
    }

    /// fjall refuses to persist after a write or sync that has failed.
    pub(super) fn failure(&self) -> Option<StoreError> {
        self.database.persist(PersistMode::Buffer).err().map(|error| error_of(&error))
    }

    pub(super) fn is_behind(&self) -> bool {
        self.keys.sealed_memtable_count() > SEALED_MAX || self.keys.l0_table_count() > UNMERGED_MAX
    }

    /// True when the open memtable must be sealed with [`EmbeddedStore::start_flush`]. fjall's threads
    /// seal it a little earlier, but not while all of them make or merge tables, and not after
    /// fjall has read the journal of an earlier process.
    pub(super) fn is_open_full(&self) -> bool {
        self.open_bytes() > self.memtable_bytes.saturating_add(self.memtable_bytes / 4)
    }

    pub(super) fn flush_idle(&self) -> Result<(), StoreError> {
        if self.open_bytes() < self.memtable_bytes / IDLE_PART { Ok(()) } else { self.start_flush() }
    }

    fn open_bytes(&self) -> u64 {
        self.keys.tree.active_memtable().size()
    }

    pub(super) fn start_flush(&self) -> Result<(), StoreError> {
        self.keys.rotate_memtable().map(drop).map_err(|error| error_of(&error))
    }

    /// Seals the open memtable, into which it first writes the version if it is empty: fjall makes no table of nothing.
    pub(super) fn make_table(&self, version: StoreVersion) -> Result<(), StoreError> {
        if self.keys.rotate_memtable().map_err(|error| error_of(&error))? {
            return Ok(());
        }
        let version = Bytes::copy_from_slice(&version.to_be_bytes());
        self.keys.insert(VERSION_KEY, version).map_err(|error| error_of(&error))?;
        self.start_flush()
    }

    pub(super) fn is_working(&self) -> bool {
        self.is_flushing() || self.database.active_compactions() > 0
    }

    pub(super) fn is_flushing(&self) -> bool {
        self.keys.sealed_memtable_count() > 0
    }

    pub(super) fn look(&self, counters: &Counters) {
        let micros = self.database.time_compacting().as_micros();
        counters.memory_bytes.set(self.keys.tree.version_memtable_size_sum());
        counters.flushes.set(self.keys.sealed_memtable_count() as u64);
        counters.journals.set(self.database.journal_count() as u64);
        counters.cache_bytes.set(self.database.cache_size());
        counters.tables.set(self.keys.table_count() as u64);
        counters.unmerged.set(self.keys.l0_table_count() as u64);
        counters.merging.set(self.database.active_compactions() as u64);
        counters.merges.set(self.database.compactions_completed() as u64);
        counters.merge_micros.set(u64::try_from(micros).unwrap_or(u64::MAX));
    }

    pub(super) fn disk_space(&self) -> Result<u64, StoreError> {
        self.database.disk_space().map_err(|error| error_of(&error))
    }
}

fn version_of(stored: Option<&[u8]>) -> Result<StoreVersion, StoreError> {
    match stored.map(<[u8; 8]>::try_from) {
        None => Ok(0),
        Some(Ok(bytes)) => Ok(StoreVersion::from_be_bytes(bytes)),
        Some(Err(_)) => Err(StoreError::Corrupt("the version has not eight bytes".into())),
    }
}

pub(super) type Items<'a> =
    dyn FnMut(&mut dyn FnMut(Bytes, Bytes) -> Result<(), StoreError>) -> Result<(), StoreError> + 'a;

fn error_of(error: &fjall::Error) -> StoreError {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => {
            StoreError::Io(error.to_string())
        }
        fjall::Error::Poisoned => StoreError::Io("an earlier write or sync failed".into()),
        other => StoreError::Corrupt(reason_of(other)),
    }
}

fn open_error(path: &Path, error: fjall::Error) -> OpenError {
    match error {
        fjall::Error::Locked => OpenError::Locked(path.into()),
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => match error.kind() {
            ErrorKind::NotFound
            | ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData
            | ErrorKind::InvalidInput => corrupt(path, format!("its tables cannot be read: {error}")),
            _ => refused(path, error),
        },
        other => corrupt(path, reason_of(&other)),
    }
}

fn reason_of(error: &fjall::Error) -> String {
    match error {
        fjall::Error::Storage(LsmError::ChecksumMismatch { .. }) => {
            "a part of a table is not what was written".into()
        }
        fjall::Error::Storage(LsmError::Unrecoverable) => "a table is missing, or damaged at its end".into(),
        other => format!("its tables cannot be read: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(store: &EmbeddedStore, version: StoreVersion) {
        let value = Some(Bytes::from(vec![0; 700 << 10]));
        store
            .apply(version, vec![KeyWrite { key: Bytes::from(version.to_be_bytes().to_vec()), value }])
            .unwrap();
    }

    #[test]
    fn an_open_memtable_that_no_thread_seals_is_noticed_and_sealed() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { memtable_bytes: 1 << 20, ..Options::default() };
        let store = EmbeddedStore::open_with(folder.path(), &options, 0).unwrap();
        write(&store, 1);
        assert!(!store.is_open_full());
        (2..=4).for_each(|version| write(&store, version));
        assert!(store.is_open_full());
        drop(store);
        // Also after a restart, which reads all of the journal into the open memtable.
        let store = EmbeddedStore::open_with(folder.path(), &options, 0).unwrap();
        assert!(store.is_open_full());
        store.start_flush().unwrap();
        assert!(!store.is_open_full() && store.is_flushing());
    }
}
