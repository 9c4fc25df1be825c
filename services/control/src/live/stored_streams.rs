use serde::Serialize;
use utoipa::ToSchema;

use super::SessionState;

/// The stored messages of one topic filter, which all sessions with this filter share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Stream)]
pub struct StreamBacklog {
    /// The filter, with `$share/GROUP/` for a shared subscription and `$share/#NAME/` for a webhook.
    #[schema(example = "plant/+/alarm")]
    pub filter: String,
    /// Number of stored sessions that subscribe to the filter; 1 for the filter of a webhook.
    pub subscriptions: u64,
    /// Stored messages. If several sessions share the filter, messages may stay after all sessions have acknowledged them.
    pub stored_messages: u64,
    pub stored_bytes: u64,
    /// Unix milliseconds.
    pub oldest_stored_at_ms: Option<u64>,
    /// Null if the filter is not shared: then each session has a backlog of its own.
    pub group: Option<GroupBacklog>,
    /// Messages that were removed before each session had them: at most so many.
    pub trimmed_messages: u64,
}

/// The messages that the members of a shared subscription have not acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct GroupBacklog {
    pub waiting_messages: u64,
    pub waiting_bytes: u64,
    /// Whether more messages wait than the server counted.
    pub waiting_is_more: bool,
    pub oldest_waiting_at_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = StreamDetails)]
pub struct StreamBacklogDetails {
    #[serde(flatten)]
    pub stream: StreamBacklog,
    /// At most 100 sessions that subscribe, the ones with the most counted messages first.
    pub sessions: Vec<StreamSession>,
    /// Whether sessions may be missing: the answer reached a bound.
    pub incomplete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StreamSession {
    pub client_id: String,
    pub state: SessionState,
    /// Messages of this stream that wait for the session, as far as counted; 0 if the subscription is shared.
    pub waiting_messages: u64,
    /// Whether more messages wait than the server counted.
    pub waiting_is_more: bool,
    pub oldest_waiting_at_ms: Option<u64>,
}
