//! Keeps keys in a map, for tests: transactions behave as on disk.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::local::{Backend, KeyWrite, LocalEngine, View};
use crate::{
    database::Database,
    error::StoreError,
    host::{Host, System},
    key::KeyRange,
    retry::RetryPolicy,
    version::StoreVersion,
};

impl Database {
    /// A store in memory, for tests, because it copies all keys at each commit.
    #[must_use]
    pub fn memory() -> Self {
        Self::memory_on(Arc::new(System::new()))
    }

    #[must_use]
    pub fn memory_on(host: Arc<dyn Host>) -> Self {
        let engine = LocalEngine::start(Arc::new(MemoryEngine::default()))
            .expect("a thread for the commits of a test");
        Self::new(Arc::new(engine), host, RetryPolicy::default())
    }
}

type Keys = BTreeMap<Bytes, Bytes>;

#[derive(Default)]
struct MemoryEngine(Mutex<(StoreVersion, Arc<Keys>)>);

impl MemoryEngine {
    fn lock(&self) -> MutexGuard<'_, (StoreVersion, Arc<Keys>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for MemoryEngine {
    type View = Arc<Keys>;

    fn version(&self) -> StoreVersion {
        self.lock().0
    }

    fn view(&self) -> Arc<Keys> {
        self.lock().1.clone()
    }

    fn apply(&self, version: StoreVersion, writes: Vec<KeyWrite>) -> Result<(), StoreError> {
        let mut state = self.lock();
        state.0 = version;
        let keys = Arc::make_mut(&mut state.1);
        for KeyWrite { key, value } in writes {
            match value {
                Some(value) => keys.insert(key, value),
                None => keys.remove(&key),
            };
        }
        Ok(())
    }
}

impl View for Arc<Keys> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(BTreeMap::get(self, key).cloned())
    }

    fn scan(
        &self,
        range: &KeyRange,
        reverse: bool,
        each: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StoreError> {
        let mut keys = self.range::<Bytes, _>(&range.begin..&range.end);
        while let Some((key, value)) = if reverse { keys.next_back() } else { keys.next() } {
            if !each(key.clone(), value.clone()) {
                break;
            }
        }
        Ok(())
    }
}
