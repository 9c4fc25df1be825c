//! The states of the store that open transactions read. Transactions that begin share the newest state; the oldest one in use says how
//! far back the resolver must remember writes.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;

use super::backend::View;
use crate::{error::StoreError, key::KeyRange, version::StoreVersion};

pub(super) struct EngineSnapshot<V> {
    pub(super) version: StoreVersion,
    pub(super) view: V,
}

impl<V: View> View for Arc<EngineSnapshot<V>> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.view.get(key)
    }

    fn scan(
        &self,
        range: &KeyRange,
        reverse: bool,
        each: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StoreError> {
        self.view.scan(range, reverse, each)
    }
}

pub(super) struct Snapshots<V>(Mutex<State<V>>);

struct State<V> {
    current: Arc<EngineSnapshot<V>>,
    older: VecDeque<(StoreVersion, Weak<EngineSnapshot<V>>)>,
}

impl<V> Snapshots<V> {
    pub(super) fn new(version: StoreVersion, view: V) -> Self {
        let current = Arc::new(EngineSnapshot { version, view });
        Self(Mutex::new(State { current, older: VecDeque::new() }))
    }

    pub(super) fn current(&self) -> Arc<EngineSnapshot<V>> {
        self.lock().current.clone()
    }

    /// Publishes a new state, and returns the oldest version in use.
    pub(super) fn publish(&self, version: StoreVersion, view: V) -> StoreVersion {
        let next = Arc::new(EngineSnapshot { version, view });
        let mut state = self.lock();
        let last = std::mem::replace(&mut state.current, next);
        state.older.push_back((last.version, Arc::downgrade(&last)));
        drop(state);
        // The last handle closes the view, which must not happen under the lock.
        drop(last);
        let mut state = self.lock();
        while state.older.front().is_some_and(|(_, snapshot)| snapshot.strong_count() == 0) {
            state.older.pop_front();
        }
        state.older.front().map_or(version, |(oldest, _)| *oldest)
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
