//! Frees versions of the store that no view reads.
//!
//! fjall adds a version with each flush and each compaction. A version keeps its memtables in
//! memory and its tables on disk. fjall removes old versions, up to the one that the oldest
//! snapshot reads, only at the next flush or compaction. So a flushed memtable would stay in memory
//! until the next one is full, and a long transaction would keep every memtable that is flushed
//! meanwhile. This module removes such versions earlier, by functions that fjall exports without
//! documenting them: read their source before an upgrade.

use std::{
    any::Any,
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use fjall::{AbstractTree, Database, Keyspace, SeqNo, Snapshot};

#[derive(Default)]
pub(super) struct Versions(Mutex<State>);

#[derive(Default)]
struct State {
    /// Number of open views at each sequence number.
    views: BTreeMap<SeqNo, usize>,
    active: Option<(u64, Memtable)>,
    /// Memtables that are written to no more. This reference keeps fjall from freeing their entries
    /// under the lock that every commit takes; a thread of its own frees them.
    sealed: Vec<Memtable>,
    /// A version could not be removed. From then on only versions before the oldest view are
    /// removed, which keeps the history in order.
    has_failed: bool,
}

/// fjall does not export the type.
type Memtable = Arc<dyn Any + Send + Sync>;

pub(super) struct OpenView {
    snapshot: Snapshot,
    versions: Arc<Versions>,
}

impl Deref for OpenView {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl Drop for OpenView {
    fn drop(&mut self) {
        let mut state = self.versions.lock();
        let sequence = self.snapshot.seqno();
        if let Some(count) = state.views.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                state.views.remove(&sequence);
            }
        }
    }
}

impl Versions {
    pub(super) fn open_view(self: &Arc<Self>, database: &Database) -> OpenView {
        // Under the lock, because `free` could otherwise remove the version of this snapshot before
        // `views` has it.
        let mut state = self.lock();
        let snapshot = database.snapshot();
        *state.views.entry(snapshot.seqno()).or_default() += 1;
        OpenView { snapshot, versions: self.clone() }
    }

    /// For the commit thread: true when more can be freed later.
    pub(super) fn free(&self, keys: &Keyspace) -> bool {
        let mut state = self.lock();
        state.note_active(keys);
        state.remove_versions(keys);
        let unread = state.sealed.extract_if(.., |memtable| Arc::strong_count(memtable) == 1).collect();
        let is_left = !state.sealed.is_empty() || keys.tree.version_free_list_len() > 0;
        drop(state);
        drop_elsewhere(unread);
        is_left
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note_active(&mut self, keys: &Keyspace) {
        let active = keys.tree.active_memtable();
        if self.active.as_ref().is_none_or(|(id, _)| *id != active.id()) {
            let last = self.active.replace((active.id(), active));
            self.sealed.extend(last.map(|(_, memtable)| memtable));
        }
    }

    fn remove_versions(&mut self, keys: &Keyspace) {
        if keys.tree.version_free_list_len() == 0 {
            return;
        }
        let mut versions = keys.tree.get_version_history_lock();
        // A reader without a view reads the newest version.
        let mut sequences: Vec<_> = self.views.keys().copied().chain([SeqNo::MAX]).collect();
        if self.has_failed {
            sequences.truncate(1);
        }
        let wanted: Vec<_> =
            sequences.iter().map(|sequence| versions.get_version_for_snapshot(*sequence)).collect();
        let (mut read, mut left) = (Vec::new(), usize::MAX);
        for (sequence, version) in sequences.iter().zip(&wanted) {
            if let Err(error) = versions.maintenance(keys.path(), *sequence) {
                tracing::warn!(%error, "the file of an old version of the store could not be removed, and takes disk space until a restart");
                // Readers look from the end, and there find all versions in order, whatever was
                // removed before.
                if !self.has_failed {
                    wanted.into_iter().for_each(|version| versions.append_version(version));
                }
                self.has_failed = true;
                return;
            }
            // If none was removed, this view reads the same version as the one before.
            if versions.len() < left {
                left = versions.len();
                read.push(version.clone());
            }
        }
        // Only the newest version is left, so the others go before it.
        if read.len() > 1 {
            let mut read = read.into_iter();
            read.next().into_iter().for_each(|version| versions.replace_latest_version(version));
            read.for_each(|version| versions.append_version(version));
        }
    }
}

fn drop_elsewhere(memtables: Vec<Memtable>) {
    if memtables.is_empty() {
        return;
    }
    // If no thread can be started, the closure and its memtables are dropped here.
    if let Err(error) = thread::Builder::new().name("store-free".into()).spawn(move || drop(memtables)) {
        tracing::debug!(%error, "a memtable was freed on the commit thread");
    }
}
