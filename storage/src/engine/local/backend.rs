//! The interface between the commit thread and the place where keys and values are: a data folder,
//! or a map for tests.

use bytes::Bytes;

use crate::{error::StoreError, key::KeyRange, stat::Stat, version::StoreVersion};

/// The state of one key after all commits of a group.
pub(crate) struct Write {
    pub(crate) key: Bytes,
    /// `None` deletes the key.
    pub(crate) value: Option<Bytes>,
}

pub(crate) enum Readiness {
    Ready,
    Behind,
    Low(StoreError),
    Refuse(StoreError),
    Failed(StoreError),
}

/// Only the commit thread writes.
pub(crate) trait Backend: Send + Sync + 'static {
    type View: View;

    /// The last applied version, also of an earlier process.
    fn version(&self) -> StoreVersion;

    fn view(&self) -> Self::View;

    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// Makes the writes, whose keys are distinct, durable together, then visible to new views.
    /// After an error nobody knows whether they are durable, and the backend must recover.
    fn apply(&self, version: StoreVersion, writes: Vec<Write>) -> Result<(), StoreError>;

    /// Frees data that only closed views have read. True when some of it can be freed later,
    /// without another write.
    fn free(&self) -> bool {
        false
    }

    fn stats(&self) -> Vec<Stat> {
        Vec::new()
    }

    /// Older views may answer [`StoreError::TooOld`] afterwards.
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
