//! Requests to the process that has a data folder open. On the socket each is a line of JSON, a [`SocketCall`]. A
//! list continues after the key `after`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketCall {
    /// A user of this machine, for audit logs.
    pub(super) by: String,
    pub(super) request: InspectRequest,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum InspectRequest {
    ListSessions {
        broker: String,
        after: Option<String>,
        limit: usize,
    },
    ShowSession {
        broker: String,
        client_id: String,
    },
    PurgeSession {
        broker: String,
        client_id: String,
    },
    PurgeExpired {
        broker: String,
    },
    ListStreams {
        broker: String,
        after: Option<u64>,
        limit: usize,
    },
    ShowStream {
        broker: String,
        filter: String,
        messages: usize,
    },
    /// Also removes unread messages.
    PurgeStream {
        broker: String,
        filter: String,
    },
    /// In order of the levels of their topics.
    ListRetained {
        broker: String,
        filter: Option<String>,
        after: Option<String>,
        limit: usize,
    },
    ShowRetained {
        broker: String,
        topic: String,
    },
    /// All messages whose topics match the filter.
    PurgeRetained {
        broker: String,
        filter: String,
    },
    /// `target` is an absolute path of a new folder.
    Backup {
        target: PathBuf,
    },
}

impl InspectRequest {
    pub(super) fn is_harmless(&self) -> bool {
        matches!(
            self,
            Self::ListSessions { .. }
                | Self::ShowSession { .. }
                | Self::ListStreams { .. }
                | Self::ShowStream { .. }
                | Self::ListRetained { .. }
                | Self::ShowRetained { .. }
        )
    }
}
