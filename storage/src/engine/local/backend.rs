//! What keeps keys and values under the local engines.

use bytes::Bytes;

use crate::{error::Error, key::KeyRange, stat::Stat, version::Version};

/// One key of a group of commits, as it is after the group.
pub(crate) struct Write {
    pub(crate) key: Bytes,
    /// `None` deletes the key.
    pub(crate) value: Option<Bytes>,
}

/// Whether a backend takes a group of commits now.
pub(crate) enum Readiness {
    /// It does.
    Ready,
    /// It does in a moment: it has to catch up.
    Behind,
    /// It takes only what makes room.
    Low(Error),
    /// It refuses all that writes, for as long as it says so.
    Refuse(Error),
    /// It failed and must recover.
    Failed(Error),
}

/// Keys and values. Only the commit thread writes.
pub(crate) trait Backend: Send + Sync + 'static {
    /// A state of the keys that does not change any more.
    type View: View;

    /// The last version that was applied, also by an earlier process.
    fn version(&self) -> Version;

    /// The state after the last `apply` that succeeded.
    fn view(&self) -> Self::View;

    /// Whether `apply` is welcome.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// Makes the writes, whose keys are distinct, durable together, then visible to new views. After an error it is unknown
    /// whether they are, and the backend must recover.
    fn apply(&self, version: Version, writes: Vec<Write>) -> Result<(), Error>;

    /// What it tells about itself.
    fn stats(&self) -> Vec<Stat> {
        Vec::new()
    }

    /// Tries to work again after a failure. Views from before may answer [`Error::TooOld`] afterwards.
    fn recover(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A state of the keys.
pub(crate) trait View: Send + Sync + 'static {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Calls `each` for keys of the range in order, until it says false.
    fn scan(
        &self,
        range: &KeyRange,
        reverse: bool,
        each: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), Error>;
}
