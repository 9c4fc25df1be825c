use crate::version::StoreVersion;

/// The commits of a data folder when it was opened: groups of transactions, synced together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderRecovery {
    /// The last commit that was noted as acknowledged, which may be an older one after a loss of
    /// power; 0: no note.
    pub acknowledged: StoreVersion,
    pub recovered: StoreVersion,
    pub journal_commits: u64,
    /// Bytes of an incomplete last write.
    pub cut_bytes: u64,
}

impl FolderRecovery {
    /// Acknowledged commits that the folder lacks; `None` without a note.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        (self.acknowledged > 0).then(|| self.acknowledged.saturating_sub(self.recovered))
    }
}
