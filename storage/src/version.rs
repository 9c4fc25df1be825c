//! Versions of a store, and positions in commit order.

use std::fmt;

/// Names a state of the store: a commit that is visible at a version is visible at all later ones.
pub type StoreVersion = u64;

/// The position of a transaction in commit order: the commit version and the transaction's number
/// at this version, as ten bytes that sort.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Versionstamp(pub [u8; Self::LEN]);

impl Versionstamp {
    pub const LEN: usize = 10;

    /// `number` counts the transactions that committed at `version`.
    #[must_use]
    pub fn new(version: StoreVersion, number: u16) -> Self {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&version.to_be_bytes());
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        Self(bytes)
    }

    #[must_use]
    pub fn version(&self) -> StoreVersion {
        self.0[..8].iter().fold(0, |version, byte| version << 8 | StoreVersion::from(*byte))
    }

    #[must_use]
    pub fn number(&self) -> u16 {
        u16::from_be_bytes([self.0[8], self.0[9]])
    }
}

impl fmt::Debug for Versionstamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.version(), self.number())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// `None` when nothing was written.
    pub versionstamp: Option<Versionstamp>,
}
