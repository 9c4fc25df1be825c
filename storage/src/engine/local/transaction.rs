//! A transaction of a local engine: it reads a snapshot with its own writes on top, and remembers
//! what it read, for the committer to find conflicts. It cannot read where its own versionstamped
//! keys may be, because their names are unknown before the commit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{
    EngineState,
    backend::{Backend, View},
    buffer::{Buffer, Op, add},
    merge::{self, Layer},
    request::{self, Base, CommitRequest, Mutation},
    snapshots::EngineSnapshot,
};
use crate::{
    completion::Completion,
    engine::stamped::Stamped,
    error::StoreError,
    interface::{EngineTransaction, TransactionOption},
    key::KeyRange,
    read::{RangeOptions, RangePage, Read},
    reply::Reply,
    version::{Committed, StoreVersion},
};

pub(super) struct LocalTransaction<B: Backend> {
    shared: Arc<EngineState<B>>,
    state: Mutex<State<B::View>>,
}

struct State<V> {
    snapshot: Option<Arc<EngineSnapshot<V>>>,
    buffer: Buffer,
    reads: Vec<KeyRange>,
    write_conflicts: Vec<KeyRange>,
    frees_space: bool,
}

impl<V> Default for State<V> {
    fn default() -> Self {
        let (reads, write_conflicts) = (Vec::new(), Vec::new());
        Self { snapshot: None, buffer: Buffer::default(), reads, write_conflicts, frees_space: false }
    }
}

impl<B: Backend> LocalTransaction<B> {
    pub(super) fn new(shared: Arc<EngineState<B>>) -> Self {
        Self { shared, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State<B::View>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn snapshot(&self, state: &mut State<B::View>) -> Arc<EngineSnapshot<B::View>> {
        state.snapshot.get_or_insert_with(|| self.shared.snapshots.current()).clone()
    }

    fn read_key(&self, key: &[u8], read: Read) -> Result<Option<Bytes>, StoreError> {
        let mut state = self.lock();
        let snapshot = self.snapshot(&mut state);
        let range = KeyRange::key(key);
        if state.buffer.is_unreadable(&range, snapshot.version) {
            return Err(StoreError::Unreadable);
        }
        let addend = match state.buffer.seen(key) {
            Some(Op::Set(value)) => return Ok(Some(value)),
            Some(Op::Clear) => return Ok(None),
            Some(Op::Add(addend)) => Some(addend),
            None => None,
        };
        if read == Read::Serializable {
            state.reads.push(range);
        }
        drop(state);
        let stored = snapshot.view.get(key)?;
        Ok(match addend {
            Some(addend) => Some(add(stored, addend)),
            None => stored,
        })
    }

    fn read_range(&self, range: &KeyRange, options: RangeOptions) -> Result<RangePage, StoreError> {
        let mut state = self.lock();
        let snapshot = self.snapshot(&mut state);
        if state.buffer.is_unreadable(range, snapshot.version) {
            return Err(StoreError::Unreadable);
        }
        let layer = Layer::of(&state.buffer, range, options.reverse);
        drop(state);
        let page = merge::page(&snapshot.view, range, options, layer)?;
        if options.read == Read::Serializable {
            self.lock().reads.push(page.answers(range, options.reverse));
        }
        Ok(page)
    }
}

impl<B: Backend> EngineTransaction for LocalTransaction<B> {
    fn read_version(&self) -> Reply<'_, StoreVersion> {
        let version = self.snapshot(&mut self.lock()).version;
        Reply::ready(Ok(version))
    }

    fn get<'a>(&'a self, key: &[u8], read: Read) -> Reply<'a, Option<Bytes>> {
        Reply::ready(self.read_key(key, read))
    }

    fn range<'a>(&'a self, range: KeyRange, options: RangeOptions) -> Reply<'a, RangePage> {
        Reply::ready(self.read_range(&range, options))
    }

    fn set(&self, key: Bytes, value: Bytes) {
        self.lock().buffer.set(key, value);
    }

    fn clear(&self, key: Bytes) {
        self.lock().buffer.clear(key);
    }

    fn clear_range(&self, range: KeyRange) {
        self.lock().buffer.clear_range(range);
    }

    fn atomic_add(&self, key: Bytes, addend: i64) {
        self.lock().buffer.add(key, addend);
    }

    fn set_versionstamped_key(&self, template: Vec<u8>, offset: usize, value: Bytes) {
        self.lock().buffer.set_stamped(Stamped { template, offset, value });
    }

    fn add_read_conflict_range(&self, range: KeyRange) {
        let mut state = self.lock();
        // The conflict counts from the read version, so this fixes one.
        self.snapshot(&mut state);
        state.reads.push(range);
    }

    fn add_write_conflict_range(&self, range: KeyRange) {
        self.lock().write_conflicts.push(range);
    }

    fn set_option(&self, option: TransactionOption) {
        match option {
            TransactionOption::FreesSpace => self.lock().frees_space = true,
        }
    }

    fn commit(&self, done: Completion) {
        let state = std::mem::take(&mut *self.lock());
        let mutations = state.buffer.into_mutations();
        if mutations.is_empty() && state.write_conflicts.is_empty() {
            return done.complete(Ok(Committed { versionstamp: None }));
        }
        let pushed = self.shared.queue.push(CommitRequest {
            base: state.snapshot.map(|snapshot| Base { version: snapshot.version, _held: snapshot }),
            reads: state.reads,
            write_conflicts: state.write_conflicts,
            frees_space: state.frees_space || request::only_deletes(&mutations),
            bytes: mutations.iter().map(Mutation::bytes).sum(),
            mutations,
            done,
        });
        if let Err(error) = pushed {
            self.shared.counters.refused(&error).add(1);
        }
    }
}
