//! Requests of the control plane to the servers of a region about the clients, sessions and messages of one broker.
//!
//! [`Live`] is implemented by the broker process, which holds the connections. The API has already authorised the
//! caller when it calls a method, so an implementation checks no permissions of the control plane.

mod clients;
mod messages;
mod stored_streams;
mod streams;

use std::future::Future;
use std::pin::Pin;

use futures_util::stream::BoxStream;
use serde::Serialize;
use utoipa::ToSchema;

pub use clients::{
    Client, ClientDetails, Clients, SessionDetails, SessionInfo, SessionState, SubscriptionInfo,
};
pub use messages::{
    MessageProperties, MessageReceiver, PublishRequest, Published, ReceiverState, RemovalReason,
    RemovedMessages, Retained, RetainedMessage, StoredMessage, StoredMessages, StoringFilter, TopicBranch,
    UserProperty,
};
pub use stored_streams::{GroupBacklog, StreamBacklog, StreamBacklogDetails, StreamSession};
pub use streams::{
    TailDropped, TailEnd, TailEvent, TailMessage, TraceBegun, TraceDirection, TraceEvent, TraceLeftOut,
    TracedConnect, TracedFilter, TracedPacket,
};

use crate::domain::{AccessQuestion, Drops, Latency, LiveBroker, Page, PageRequest, Visit};

pub type LiveAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LiveError>> + Send + 'a>>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// This server does not implement the method.
    #[error("this server cannot do that yet")]
    NotWired,
    #[error("there is no such {0}")]
    NotFound(&'static str),
    #[error("{field}: {what}")]
    Invalid { field: &'static str, what: String },
    /// The request may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// The broker's rules or settings refuse the request.
    #[error("{0}")]
    Forbidden(String),
    /// A limit of the broker or the server is reached.
    #[error("{0}")]
    Limited(String),
}

impl LiveError {
    /// Whether the server may have done what was asked.
    pub(crate) fn may_be_done(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::NotWired
            | Self::NotFound(_)
            | Self::Invalid { .. }
            | Self::Forbidden(_)
            | Self::Limited(_) => false,
        }
    }
}

/// Requests about a broker's clients, sessions and messages. A method that is not implemented returns
/// [`LiveError::NotWired`].
pub trait Live: Send + Sync + 'static {
    /// Connected clients in order of client ids. `search` is a prefix of the client id or of the user name.
    fn clients<'a>(
        &'a self,
        _: &'a LiveBroker,
        _search: Option<&'a str>,
        _: &'a PageRequest,
    ) -> LiveAnswer<'a, Clients> {
        not_wired()
    }

    fn client<'a>(&'a self, _: &'a LiveBroker, _client_id: &'a str) -> LiveAnswer<'a, ClientDetails> {
        not_wired()
    }

    fn kick<'a>(&'a self, _: &'a LiveBroker, _client_id: &'a str) -> LiveAnswer<'a, ()> {
        not_wired()
    }

    /// Sessions that outlive their connection, in order of client ids. `search` is a prefix of the client id.
    fn sessions<'a>(
        &'a self,
        _: &'a LiveBroker,
        _search: Option<&'a str>,
        _: &'a PageRequest,
    ) -> LiveAnswer<'a, Page<SessionInfo>> {
        not_wired()
    }

    fn session<'a>(&'a self, _: &'a LiveBroker, _client_id: &'a str) -> LiveAnswer<'a, SessionDetails> {
        not_wired()
    }

    /// Ends a session with its queued messages, and closes its connection.
    fn purge_session<'a>(&'a self, _: &'a LiveBroker, _client_id: &'a str) -> LiveAnswer<'a, ()> {
        not_wired()
    }

    /// Retained messages whose topics match `filter`, in order of topics.
    fn retained<'a>(
        &'a self,
        _: &'a LiveBroker,
        _filter: Option<&'a str>,
        _: &'a PageRequest,
    ) -> LiveAnswer<'a, Page<Retained>> {
        not_wired()
    }

    /// One level of the tree of topics that have retained messages: the children of the topic `below`.
    fn topics<'a>(
        &'a self,
        _: &'a LiveBroker,
        _below: Option<&'a str>,
        _: &'a PageRequest,
    ) -> LiveAnswer<'a, Page<TopicBranch>> {
        not_wired()
    }

    fn retained_message<'a>(&'a self, _: &'a LiveBroker, _topic: &'a str) -> LiveAnswer<'a, RetainedMessage> {
        not_wired()
    }

    fn clear_retained<'a>(&'a self, _: &'a LiveBroker, _topic: &'a str) -> LiveAnswer<'a, ()> {
        not_wired()
    }

    fn messages<'a>(
        &'a self,
        _: &'a LiveBroker,
        _topic: &'a str,
        _limit: usize,
    ) -> LiveAnswer<'a, StoredMessages> {
        not_wired()
    }

    fn streams<'a>(&'a self, _: &'a LiveBroker, _: &'a PageRequest) -> LiveAnswer<'a, Page<StreamBacklog>> {
        not_wired()
    }

    fn stream<'a>(&'a self, _: &'a LiveBroker, _filter: &'a str) -> LiveAnswer<'a, StreamBacklogDetails> {
        not_wired()
    }

    /// With QoS 1 and 2, `Ok` means what a PUBACK means.
    fn publish<'a>(&'a self, _: &'a Visit, _: &'a PublishRequest) -> LiveAnswer<'a, Published> {
        not_wired()
    }

    /// Messages published from now on; with `retained`, the retained messages come first.
    fn tail<'a>(
        &'a self,
        _: &'a Visit,
        _filter: &'a str,
        _retained: bool,
    ) -> LiveAnswer<'a, BoxStream<'static, TailEvent>> {
        not_wired()
    }

    /// The packets of a client from now on, whether or not it is connected. The first event is [`TraceEvent::Begun`].
    fn trace<'a>(
        &'a self,
        _: &'a LiveBroker,
        _client_id: &'a str,
    ) -> LiveAnswer<'a, BoxStream<'static, TraceEvent>> {
        not_wired()
    }

    /// The QoS that the server's settings grant for an action; `None`: the settings refuse it.
    fn by_settings(&self, _: &AccessQuestion) -> Result<Option<u8>, LiveError> {
        Err(LiveError::NotWired)
    }

    fn metrics<'a>(&'a self, _: &'a LiveBroker) -> LiveAnswer<'a, Metrics> {
        not_wired()
    }
}

/// A server without connections, for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingLive;

impl Live for NothingLive {}

fn not_wired<'a, T: Send + 'a>() -> LiveAnswer<'a, T> {
    Box::pin(async { Err(LiveError::NotWired) })
}

/// A broker's load, summed over all servers. Each server reports every two seconds; counters begin with the broker's
/// creation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Metrics {
    /// Time of the sum, in unix milliseconds.
    pub at_ms: u64,
    pub connections: u64,
    pub messages_in: u64,
    pub messages_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub dropped: u64,
    /// Dropped messages by reason. `dropped` counts all of them but those of `stored_limit`.
    pub drops: Drops,
    /// Stored messages now. A message counts once for each filter for which it is stored.
    pub stored_messages: u64,
    pub stored_bytes: u64,
    /// Time that a QoS 1 or 2 message waits to be stored, before its PUBACK or PUBREC, in the minutes among the last two that have
    /// ended, because servers report latency at their ends. Null: no message was stored.
    pub puback: Option<Latency>,
    /// Time from reading a PUBLISH of any QoS until an event loop has handed it to its connected subscribers, in the same
    /// minutes. Null: no delivery was measured.
    pub delivery: Option<Latency>,
}
