//! Requests to the process that has a data folder open.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A query or a command. On the socket it is one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Sessions in order of client ids.
    ListSessions { broker: String, after: Option<String>, limit: usize },
    /// All of a session.
    ShowSession { broker: String, client_id: String },
    /// The end of a session.
    PurgeSession { broker: String, client_id: String },
    /// The end of all sessions that have expired.
    PurgeExpired { broker: String },
    /// Streams in order of their ids.
    ListStreams { broker: String, after: Option<u64>, limit: usize },
    /// A stream and its first messages.
    ShowStream { broker: String, filter: String, messages: usize },
    /// The end of all messages of a stream.
    PurgeStream { broker: String, filter: String },
    /// Retained messages in order of the levels of their topics.
    ListRetained { broker: String, filter: Option<String>, after: Option<String>, limit: usize },
    /// A retained message.
    ShowRetained { broker: String, topic: String },
    /// The end of the retained messages that match a filter.
    PurgeRetained { broker: String, filter: String },
    /// A copy of everything in a new folder; an absolute path.
    Backup { target: PathBuf },
}

impl Request {
    /// Whether it only looks.
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
