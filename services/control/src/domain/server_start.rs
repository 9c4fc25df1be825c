use serde::Serialize;
use utoipa::ToSchema;

use super::Control;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStart {
    pub at_ms: u64,
    pub recovery: Option<StoreRecovery>,
}

/// The data folder when the server started. A commit is a group of changes that were synced together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoreRecovery {
    /// Number of the last commit that was noted as acknowledged; null: none was, as in a new folder. The note precedes the
    /// acknowledgement and is not synced, so after a loss of power it may be older than the last acknowledgement.
    #[schema(example = 4117)]
    pub acknowledged_commit: Option<u64>,
    /// Number of the last commit in the folder.
    #[schema(example = 4118)]
    pub recovered_commit: u64,
    /// Acknowledged commits that the folder lacks. The server does not start when it lacks any.
    #[schema(example = 0)]
    pub acknowledged_commits_lost: Option<u64>,
    /// Commits that were read from the journals, with valid checksums.
    pub journal_commits: u64,
    /// Bytes of an incomplete last write, which the server cut off: its commit was never acknowledged.
    pub cut_bytes: u64,
}

impl Control {
    pub fn started(&self, start: ServerStart) {
        let _ = self.0.start.set(start);
    }

    pub(crate) fn server_start(&self) -> Option<ServerStart> {
        self.0.start.get().copied()
    }
}
