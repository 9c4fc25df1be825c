//! The interface between the commit thread and a backend, which has the keys and values: a data
//! folder, or a map for tests.

use bytes::Bytes;

use crate::{error::StoreError, key::KeyRange, stat::Stat, version::StoreVersion};

/// The state of one key after all commits of a group.
pub(crate) struct KeyWrite {
    pub(crate) key: Bytes,
    /// `None` deletes the key.
    pub(crate) value: Option<Bytes>,
}

pub(crate) enum Readiness {
    Ready,
    /// Tables are written: groups wait.
    Behind,
    /// Little disk space: only transactions that make room are accepted.
    Low(StoreError),
    /// No disk space: nothing is accepted.
    Refuse(StoreError),
    /// An earlier write failed: the backend must recover first.
    Failed(StoreError),
}

/// The place of the keys and values, to which only the commit thread writes.
pub(crate) trait Backend: Send + Sync + 'static {
    type View: View;

    /// The last applied version, which an earlier process may have applied.
    fn version(&self) -> StoreVersion;

    fn view(&self) -> Self::View;

    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// Makes the writes durable together, then visible to new views; their keys are distinct. After
    /// an error it is unknown whether they are durable, and the backend must recover.
    fn apply(&self, version: StoreVersion, writes: Vec<KeyWrite>) -> Result<(), StoreError>;

    /// Frees data that only closed views have read; true when more can be freed later, without
    /// another write.
    fn free(&self) -> bool {
        false
    }

    /// No transaction came for a second, so what a backend puts off while it is busy can be done.
    fn idle(&self) {}

    fn stats(&self) -> Vec<Stat> {
        Vec::new()
    }

    /// Makes the backend usable after an error; older views may answer [`StoreError::TooOld`] then.
    fn recover(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

pub(crate) trait View: Send + Sync + 'static {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Calls `each` in key order, until it returns false.
    fn scan(
        &self,
        range: &KeyRange,
        reverse: bool,
        each: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StoreError>;
}
