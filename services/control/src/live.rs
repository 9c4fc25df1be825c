//! Requests of the control plane to the servers of a region about the clients, sessions and messages of one broker.
//!
//! [`Live`] is implemented by the broker process, which holds the connections. The API has already authorised the
//! caller when it calls a method, so an implementation checks no permissions of the control plane.

use std::future::Future;
use std::pin::Pin;

use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{AccessQuestion, Drops, LiveBroker, Page, PageRequest, PubackLatency, Visit};

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
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    Limited(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishRequest {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub content_type: Option<String>,
    pub response_topic: Option<String>,
    pub correlation_data: Option<Vec<u8>>,
    pub message_expiry_s: Option<u32>,
    pub user_properties: Vec<UserProperty>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserProperty {
    #[schema(max_length = 65535)]
    pub name: String,
    #[schema(max_length = 65535)]
    pub value: String,
}

/// Result of publishing a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Published {
    /// Whether the server stores the message until each matching persistent session has it. False with QoS 0.
    pub stored: bool,
    /// Number of matching subscribers. Null when the server does not know it.
    pub matched: Option<u64>,
}

/// The latest stored messages of a topic, and how far each session has come with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoredMessages {
    /// The newest message first. A message leaves the store once each session has acknowledged it.
    pub items: Vec<StoredMessage>,
    /// Filters of stored sessions that match the topic. Empty: no session needs the messages of this topic stored.
    pub filters: Vec<StoringFilter>,
    /// Whether the answer is incomplete: it reached a bound on messages, filters or sessions.
    pub incomplete: bool,
}

/// A message in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoredMessage {
    /// Position in the order of commits: a larger one was committed later.
    #[schema(example = "00000000000000f30000000a")]
    pub position: String,
    /// When it was published, in unix milliseconds.
    pub at_ms: u64,
    /// Quality of service with which it was published.
    pub qos: u8,
    pub payload_bytes: u64,
    /// Expiry in unix milliseconds; null: the message does not expire.
    pub expires_at_ms: Option<u64>,
    pub filters: Vec<String>,
    /// Number of sessions and groups that have acknowledged it.
    pub acknowledged: u64,
    /// Number of connected sessions that have not acknowledged it, as far as the store knows.
    pub in_flight: u64,
    /// Number of offline sessions that have yet to receive it.
    pub waiting: u64,
    /// At most 100 of these sessions and groups; the ones that have not acknowledged the message come first.
    pub receivers: Vec<MessageReceiver>,
}

/// A session, or a group of a shared subscription, for which a message is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MessageReceiver {
    /// Client id. Null for a group, because its clients share one position.
    pub client_id: Option<String>,
    /// The subscription's filter, with `$share/GROUP/` for a group.
    pub filter: String,
    /// How far the session has come with the message.
    pub state: ReceiverState,
}

/// How far a session has come with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiverState {
    /// The session is offline and gets the message when its client reconnects.
    Waiting,
    /// The message expired before the session acknowledged it.
    Expired,
    /// The session is connected, and the store holds no acknowledgement of the message yet.
    InFlight,
    Acknowledged,
}

/// A filter that makes the server store messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoringFilter {
    /// The filter, with `$share/GROUP/` for a group.
    pub filter: String,
    /// Number of subscriptions with this filter.
    pub subscriptions: u64,
    /// Messages on all topics of this filter that a limit removed before each session had them.
    pub trimmed: u64,
}

/// An event in a tail, the stream of messages that a broker's clients publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailEvent {
    Message(TailMessage),
    Dropped(TailDropped),
    End(TailEnd),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TailMessage {
    /// Arrival at this server, in unix milliseconds.
    pub at_ms: u64,
    pub topic: String,
    /// Quality of service that it was published with.
    pub qos: u8,
    /// Whether it is the retained message of its topic.
    pub retain: bool,
    /// The payload, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The payload in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Bytes of the whole payload. The tail cuts a payload off that is longer than a limit.
    pub payload_bytes: u64,
    /// User properties, and the standard properties by their names.
    pub properties: Vec<UserProperty>,
}

/// Messages that the tail left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TailDropped {
    /// Number of messages since the last such event.
    pub messages: u64,
}

/// Why a tail ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TailEnd {
    /// The reason, for people.
    pub reason: String,
}

/// An event in the trace of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    Begun(Box<TraceBegun>),
    Traced(Box<TracedPacket>),
    LeftOut(TraceLeftOut),
    End(TailEnd),
}

/// The first event of a trace: from now on the server traces the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TraceBegun {
    /// The client, if it is connected. Null: the trace waits for it.
    pub client: Option<ClientDetails>,
    /// Servers that do not answer. The trace shows nothing that happens there.
    pub unanswered: Vec<String>,
}

/// Events that the trace left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TraceLeftOut {
    /// Number of events since the last such event.
    pub events: u64,
}

/// Where a packet of a trace goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceDirection {
    /// From the client.
    In,
    /// To the client.
    Out,
    /// No packet: a decision of the server.
    Server,
}

/// A packet of a traced client, or a decision of the server about it. A field is absent where the packet does not have
/// it. The trace shows no payload and no password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TracedPacket {
    /// Time in unix milliseconds.
    pub at_ms: u64,
    pub direction: TraceDirection,
    /// Name of the packet in capitals. Decisions of the server: `refused` (a CONNECT), `dropped` (messages that the
    /// server did not take or did not deliver), `closed` (the connection).
    #[schema(example = "PUBLISH")]
    pub kind: String,
    /// Bytes of the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_id: Option<u16>,
    /// At most 1,024 bytes of the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain: Option<bool>,
    /// Whether the packet may be a retransmission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dup: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_present: Option<bool>,
    /// Reason code of MQTT 5.0, or return code of a CONNACK of 3.1 and 3.1.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<u8>,
    /// The reason, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// At most 100 filters of a SUBSCRIBE, an UNSUBSCRIBE or its answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<TracedFilter>,
    /// Number of further filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_filters: Option<u64>,
    /// Number of dropped messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<TracedConnect>,
}

/// A filter of a SUBSCRIBE or an UNSUBSCRIBE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TracedFilter {
    /// Absent when the trace has not seen the packet that is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The requested QoS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<u8>,
    /// The server's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<u8>,
}

/// The contents of a CONNECT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TracedConnect {
    pub user: Option<String>,
    pub address: Option<String>,
    #[schema(example = "5.0")]
    pub protocol: String,
    pub keep_alive_s: u16,
    pub clean_start: bool,
    pub will_topic: Option<String>,
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

#[derive(Clone, Debug)]
pub struct Clients {
    pub page: Page<Client>,
    /// Servers of the region that did not answer in time: their clients are missing from the page.
    pub unanswered: Vec<String>,
}

// Another schema name, because generated clients have a type `Client` of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ConnectedClient)]
pub struct Client {
    pub client_id: String,
    /// User name; null: the client sent none.
    pub user: Option<String>,
    /// Address of the client; null: the server does not know it any more.
    pub address: Option<String>,
    #[schema(example = "5.0")]
    pub protocol: String,
    /// The method that authenticated it: `password`, `token:` or `certificate:` with the name of the record, `webhook`,
    /// `connect_token`, `anonymous`, or `settings` of the server.
    #[schema(example = "token:own")]
    pub method: String,
    /// Time of the CONNECT, in unix milliseconds.
    pub connected_at_ms: u64,
    /// Keep alive in seconds; 0: none.
    pub keep_alive_s: u16,
    pub subscriptions: u64,
}

/// A connected client with the state of its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClientDetails {
    /// The fields of a list.
    #[serde(flatten)]
    pub client: Client,
    /// Session expiry interval in seconds; null: the session never expires.
    pub session_expiry_s: Option<u32>,
    /// QoS 1 and 2 messages that the client has not acknowledged.
    pub unacknowledged_messages: u64,
    /// Messages for the client in the server's memory. Its session counts the messages in the store.
    pub waiting_messages: u64,
    /// Bytes of these messages.
    pub waiting_bytes: u64,
    /// Bytes that the connection has not accepted yet.
    pub unsent_bytes: u64,
    /// Time of the last packet from the client, in unix milliseconds, to the second.
    pub last_packet_at_ms: u64,
    /// Messages from the client on this connection.
    pub messages_in: u64,
    /// Bytes of these messages, with topics and properties.
    pub bytes_in: u64,
    /// Messages to the client on this connection.
    pub messages_out: u64,
    /// Bytes of these messages, with topics and properties.
    pub bytes_out: u64,
    /// At most 1,000 of its subscriptions.
    pub filters: Vec<SubscriptionInfo>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// A client is connected to it.
    Connected,
    /// It waits for its client to reconnect.
    Offline,
    /// Its expiry has passed, and the server removes it soon.
    Expired,
}

/// A session that outlives its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Session)]
pub struct SessionInfo {
    pub client_id: String,
    pub state: SessionState,
    /// Time of the disconnect in unix milliseconds; null while a client is connected.
    pub offline_since_ms: Option<u64>,
    /// Session expiry interval in seconds; null: it never expires.
    pub expiry_s: Option<u32>,
    /// When the session ends unless its client reconnects, in unix milliseconds.
    pub expires_at_ms: Option<u64>,
    pub subscriptions: u64,
    /// Messages that wait for this session. Messages of shared subscriptions wait in their group instead.
    pub waiting_messages: u64,
    /// Bytes of these messages.
    pub waiting_bytes: u64,
    /// Whether the server stopped counting at a bound: more messages wait.
    pub waiting_is_more: bool,
    /// Publish time of the oldest waiting message, in unix milliseconds.
    pub oldest_waiting_at_ms: Option<u64>,
}

/// A session with its subscriptions and its packet ids in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SessionDetails {
    /// The fields of a list.
    #[serde(flatten)]
    pub session: SessionInfo,
    pub filters: Vec<SubscriptionInfo>,
    /// Lower bound of the messages that limits removed before the session read them.
    pub missed_at_least: u64,
    /// Delay of the will after a disconnect, in seconds; null: the session has no will.
    pub will_delay_s: Option<u32>,
    /// Packet ids of QoS 1 and 2 messages that the client has not acknowledged.
    pub outbound_packet_ids: Vec<u16>,
    /// Packet ids of QoS 2 messages from the client that it has not released.
    pub inbound_packet_ids: Vec<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Subscription)]
pub struct SubscriptionInfo {
    /// Topic filter, with `$share/GROUP/` for a shared subscription.
    pub filter: String,
    pub qos: u8,
    /// Whether the client does not get its own messages.
    pub no_local: bool,
    /// Whether messages keep the RETAIN flag with which they were published.
    pub retain_as_published: bool,
    /// Retain handling: 0, 1 or 2.
    pub retain_handling: u8,
    /// Subscription identifier; 0: none.
    pub identifier: u32,
}

/// A level in the tree of topics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TopicBranch {
    /// The text between two slashes; it may be empty.
    #[schema(example = "pump")]
    pub level: String,
    /// The topic up to this level. Send it as `below` to list the next level.
    #[schema(example = "plant/7/pump")]
    pub topic: String,
    /// Whether the topic itself has a retained message.
    pub has_message: bool,
    /// Number of retained messages on the topic and below it.
    pub retained_messages: u64,
    /// Whether the server stopped counting at a bound.
    pub is_more: bool,
}

/// A retained message in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Retained {
    pub topic: String,
    /// Its QoS.
    pub qos: u8,
    /// Expiry in unix milliseconds; null: never.
    pub expires_at_ms: Option<u64>,
    pub payload_bytes: u64,
}

/// A retained message with its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RetainedMessage {
    /// The fields of a list.
    #[serde(flatten)]
    pub retained: Retained,
    /// Names and values of its properties.
    #[schema(value_type = Vec<Vec<String>>)]
    pub properties: Vec<(String, String)>,
    /// The payload, if it is UTF-8.
    pub payload: Option<String>,
    /// The payload in base64, if it is not UTF-8.
    pub payload_base64: Option<String>,
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
    /// The last two minutes; null: no message was stored in this time.
    pub puback: Option<PubackLatency>,
}
