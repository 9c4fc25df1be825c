//! The storage of keys and values under the local engines.

use bytes::Bytes;

use crate::{error::Error, key::KeyRange, stat::Stat, version::Version};

/// One key of a group of commits, in its final state.
pub(crate) struct Write {
    pub(crate) key: Bytes,
    /// `None` deletes the key.
    pub(crate) value: Option<Bytes>,
}

pub(crate) enum Readiness {
    Ready,
    /// It is catching up, and accepts writes in a moment.
    Behind,
    /// It accepts only writes that make room.
    Low(Error),
    /// It refuses writes as long as it returns this.
    Refuse(Error),
    /// It failed and must recover.
    Failed(Error),
}

/// Keys and values. Only the commit thread writes.
pub(crate) trait Backend: Send + Sync + 'static {
    /// An immutable state of the keys.
    type View: View;

    /// The last applied version, also of an earlier process.
    fn version(&self) -> Version;

    /// The state after the last `apply` that succeeded.
    fn view(&self) -> Self::View;

    /// Whether the backend accepts `apply` now.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// Makes the writes, whose keys are distinct, durable together, then visible to new views. After an error it is
    /// unknown whether they are durable, and the backend must recover.
    fn apply(&self, version: Version, writes: Vec<Write>) -> Result<(), Error>;

    fn stats(&self) -> Vec<Stat> {
        Vec::new()
    }

    /// Tries to work again after a failure. Older views may answer [`Error::TooOld`] afterwards.
    fn recover(&self) -> Result<(), Error> {
        Ok(())
    }
}

pub(crate) trait View: Send + Sync + 'static {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Calls `each` for keys of the range in order, until it returns false.
    fn scan(
        &self,
        range: &KeyRange,
        reverse: bool,
        each: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), Error>;
}
