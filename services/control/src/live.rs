//! What is known of a broker's clients while they are there, and of what is kept for them. Who holds the connections implements it.

use std::future::Future;
use std::pin::Pin;

use futures_util::stream::BoxStream;
use millrace_layers::BrokerId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{AccessQuestion, Page, PageRequest};
use crate::secret::Secret;

/// A broker that the caller may look into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveBroker {
    /// Its id in the store.
    pub id: BrokerId,
    /// Its name.
    pub name: String,
}

/// An answer that comes later.
pub type LiveAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LiveError>> + Send + 'a>>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// This server cannot tell.
    #[error("this server cannot do that yet")]
    NotWired,
    /// There is no such thing.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// What was asked is not right.
    #[error("{field}: {what}")]
    Invalid {
        /// The parameter.
        field: &'static str,
        /// What is wrong with it and what to do.
        what: String,
    },
    /// It may work later.
    #[error("{0}")]
    Unavailable(String),
    /// The broker does not let it happen.
    #[error("{0}")]
    Forbidden(String),
    /// A limit of the broker is reached.
    #[error("{0}")]
    Limited(String),
}

/// Somebody of the control plane who comes as a client to a broker.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The broker.
    pub broker: LiveBroker,
    /// The client's id.
    pub client_id: String,
    /// Its user name.
    pub user: String,
    /// Its password, a connect token.
    pub password: Secret,
}

/// A message to publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// Its topic.
    pub topic: String,
    /// Its payload.
    pub payload: Vec<u8>,
    /// 0, 1 or 2.
    pub qos: u8,
    /// It becomes the retained message of its topic.
    pub retain: bool,
    /// Content type.
    pub content_type: Option<String>,
    /// Topic for an answer.
    pub response_topic: Option<String>,
    /// What an answer repeats.
    pub correlation_data: Option<Vec<u8>>,
    /// Seconds after which it is not delivered any more.
    pub message_expiry_s: Option<u32>,
    /// User properties, in order.
    pub user_properties: Vec<UserProperty>,
}

/// A user property of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserProperty {
    /// Its name.
    #[schema(max_length = 65535)]
    pub name: String,
    /// Its value.
    #[schema(max_length = 65535)]
    pub value: String,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Published {
    /// Whether the server keeps the message until each persistent session that it is for has it, whatever happens. False with QoS 0.
    pub stored: bool,
    /// How many subscribers it was for: 0 when the server knows that there was none; null when it does not know how many.
    pub matched: Option<u64>,
}

/// The latest stored messages of a topic, and how far each session has come with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoredMessages {
    /// The last one first. A message leaves the store once each session has acknowledged it.
    pub items: Vec<StoredMessage>,
    /// Filters of stored sessions that are for the topic. None: nobody makes the server store its messages.
    pub filters: Vec<StoringFilter>,
    /// Whether something was not looked at: older messages, filters or sessions beyond what one answer looks at.
    pub incomplete: bool,
}

/// A message in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoredMessage {
    /// Its place in the order of commits: the larger, the later.
    #[schema(example = "00000000000000f30000000a")]
    pub position: String,
    /// When it was published, in unix milliseconds.
    pub at_ms: u64,
    /// Quality of service with which it was published.
    pub qos: u8,
    /// Bytes of its payload.
    pub payload_bytes: u64,
    /// Until when it is delivered, in unix milliseconds; null: as long as it is stored.
    pub expires_at_ms: Option<u64>,
    /// Filters that it is stored for.
    pub filters: Vec<String>,
    /// Sessions and groups that have acknowledged it.
    pub acknowledged: u64,
    /// Connected sessions that have not yet acknowledged it, as far as the store knows.
    pub in_flight: u64,
    /// Offline sessions that it waits for.
    pub waiting: u64,
    /// Each of them, those that have not acknowledged it first; at most 100.
    pub receivers: Vec<MessageReceiver>,
}

/// A session, or a group that shares a subscription, that a message is stored for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MessageReceiver {
    /// Client id; null for a group, which has one position for all of its clients.
    pub client_id: Option<String>,
    /// Its filter, with `$share/GROUP/` for a group.
    pub filter: String,
    /// How far it has come with the message.
    pub state: ReceiverState,
}

/// How far a session has come with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiverState {
    /// It is offline, and gets the message when it comes back.
    Waiting,
    /// The message has expired before the session acknowledged it, so it is not delivered any more.
    Expired,
    /// It is connected. The server sends it the message, or has sent it and not stored an acknowledgement.
    InFlight,
    /// It has acknowledged the message.
    Acknowledged,
}

/// A filter for which messages are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoringFilter {
    /// The filter, with `$share/GROUP/` for a group.
    pub filter: String,
    /// Its subscriptions.
    pub subscriptions: u64,
    /// Messages of all its topics that a limit removed before each session had them.
    pub trimmed: u64,
}

/// What a tail shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailEvent {
    /// A message.
    Message(TailMessage),
    /// Messages were left out.
    Dropped(TailDropped),
    /// There is no more.
    End(TailEnd),
}

/// A message as a tail shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TailMessage {
    /// When it came here, in unix milliseconds.
    pub at_ms: u64,
    /// Its topic.
    pub topic: String,
    /// Quality of service that it was published with.
    pub qos: u8,
    /// Whether it is the retained message of its topic.
    pub retain: bool,
    /// Its payload, when that is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Its payload in base64, when that is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Bytes of the whole payload. When that is more than is here, the rest was cut off.
    pub payload_bytes: u64,
    /// Names and values of its properties.
    pub properties: Vec<UserProperty>,
}

/// Messages that a tail has left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TailDropped {
    /// How many since it was said last.
    pub messages: u64,
}

/// Why a tail ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TailEnd {
    /// For people.
    pub reason: String,
}

/// What is known of a broker's clients while they are there, and of what is kept for them. What is not implemented says so.
pub trait Live: Send + Sync + 'static {
    /// Connected clients in order of client ids, whose client id or user name begins with `search`.
    fn clients<'a>(
        &'a self,
        _: &'a LiveBroker,
        _search: Option<&'a str>,
        _: &'a PageRequest,
    ) -> LiveAnswer<'a, Clients> {
        not_wired()
    }

    /// A connected client.
    fn client<'a>(&'a self, _: &'a LiveBroker, _client_id: &'a str) -> LiveAnswer<'a, ClientDetails> {
        not_wired()
    }

    /// Closes a client's connection.
    fn kick<'a>(&'a self, _: &'a LiveBroker, _client_id: &'a str) -> LiveAnswer<'a, ()> {
        not_wired()
    }

    /// Sessions that outlive their connection, in order of client ids.
    fn sessions<'a>(&'a self, _: &'a LiveBroker, _: &'a PageRequest) -> LiveAnswer<'a, Page<Session>> {
        not_wired()
    }

    /// A session.
    fn session<'a>(&'a self, _: &'a LiveBroker, _client_id: &'a str) -> LiveAnswer<'a, SessionDetails> {
        not_wired()
    }

    /// Ends a session with all that waits for it, and closes its connection.
    fn purge_session<'a>(&'a self, _: &'a LiveBroker, _client_id: &'a str) -> LiveAnswer<'a, ()> {
        not_wired()
    }

    /// Retained messages in order of topics, of those that match a filter.
    fn retained<'a>(
        &'a self,
        _: &'a LiveBroker,
        _filter: Option<&'a str>,
        _: &'a PageRequest,
    ) -> LiveAnswer<'a, Page<Retained>> {
        not_wired()
    }

    /// Topics with retained messages, below a topic: one level of the tree.
    fn topics<'a>(
        &'a self,
        _: &'a LiveBroker,
        _below: Option<&'a str>,
        _: &'a PageRequest,
    ) -> LiveAnswer<'a, Page<TopicBranch>> {
        not_wired()
    }

    /// The retained message of a topic.
    fn retained_message<'a>(&'a self, _: &'a LiveBroker, _topic: &'a str) -> LiveAnswer<'a, RetainedMessage> {
        not_wired()
    }

    /// Removes the retained message of a topic.
    fn clear_retained<'a>(&'a self, _: &'a LiveBroker, _topic: &'a str) -> LiveAnswer<'a, ()> {
        not_wired()
    }

    /// The latest stored messages of a topic.
    fn messages<'a>(
        &'a self,
        _: &'a LiveBroker,
        _topic: &'a str,
        _limit: usize,
    ) -> LiveAnswer<'a, StoredMessages> {
        not_wired()
    }

    /// Publishes a message. With QoS 1 and 2 the answer means what a PUBACK means.
    fn publish<'a>(&'a self, _: &'a Visit, _: &'a Publication) -> LiveAnswer<'a, Published> {
        not_wired()
    }

    /// What is published, from now on; `retained`: first the retained messages.
    fn tail<'a>(
        &'a self,
        _: &'a Visit,
        _filter: &'a str,
        _retained: bool,
    ) -> LiveAnswer<'a, BoxStream<'static, TailEvent>> {
        not_wired()
    }

    /// The QoS with which a client may do something by the settings of the server; `None`: it may not.
    ///
    /// # Errors
    /// When this server cannot tell.
    fn by_settings(&self, _: &AccessQuestion) -> Result<Option<u8>, LiveError> {
        Err(LiveError::NotWired)
    }

    /// What a broker does now.
    fn metrics<'a>(&'a self, _: &'a LiveBroker) -> LiveAnswer<'a, Metrics> {
        not_wired()
    }
}

/// A server that knows nothing of clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingLive;

impl Live for NothingLive {}

fn not_wired<'a, T: Send + 'a>() -> LiveAnswer<'a, T> {
    Box::pin(async { Err(LiveError::NotWired) })
}

/// A page of connected clients.
#[derive(Clone, Debug)]
pub struct Clients {
    /// Its rows.
    pub page: Page<Client>,
    /// Servers of the region that did not answer in time: their clients are not there.
    pub unanswered: Vec<String>,
}

/// A connected client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Client {
    /// Client id.
    pub client_id: String,
    /// User name; null for who has none.
    pub user: Option<String>,
    /// Where it connects from; null when that is not known any more.
    pub address: Option<String>,
    /// Version of the protocol.
    #[schema(example = "5.0")]
    pub protocol: String,
    /// What let it in: `password`, `token:` or `certificate:` with the name of the record, `webhook`, `anonymous`, or `settings` of
    /// the server.
    #[schema(example = "token:own")]
    pub method: String,
    /// Since when, in unix milliseconds.
    pub connected_at_ms: u64,
    /// Keep alive, seconds; 0 is none.
    pub keep_alive_s: u16,
    /// Its subscriptions.
    pub subscriptions: u64,
}

/// All of a connected client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClientDetails {
    /// What a list shows.
    #[serde(flatten)]
    pub client: Client,
    /// For so long its session outlives the connection, seconds; null is for ever.
    pub session_expiry_s: Option<u32>,
    /// QoS 1 and 2 messages to it that it has not acknowledged.
    pub unacknowledged_messages: u64,
    /// Messages to it that wait in the server's memory. What waits in the store is said of its session.
    pub waiting_messages: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Bytes that its connection has not taken yet.
    pub unsent_bytes: u64,
}

/// Whether a session has a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// It has one.
    Connected,
    /// It waits for its client.
    Offline,
    /// Its time is over; it is removed soon.
    Expired,
}

/// A session that outlives its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Session {
    /// Client id.
    pub client_id: String,
    /// Whether it has a connection.
    pub state: SessionState,
    /// Since when it has none, in unix milliseconds.
    pub offline_since_ms: Option<u64>,
    /// For so long it stays without one, seconds; null is for ever.
    pub expiry_s: Option<u32>,
    /// When it ends if its client does not come, in unix milliseconds.
    pub expires_at_ms: Option<u64>,
    /// Its subscriptions.
    pub subscriptions: u64,
    /// Messages that wait for it, without those of shared subscriptions: they wait in the group.
    pub waiting_messages: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Whether counting ended before their end.
    pub waiting_is_more: bool,
    /// When the oldest one was published, in unix milliseconds.
    pub oldest_waiting_at_ms: Option<u64>,
}

/// All of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SessionDetails {
    /// What a list shows.
    #[serde(flatten)]
    pub session: Session,
    /// What it subscribes to.
    pub filters: Vec<Subscription>,
    /// Messages that limits removed before it had read them, at least.
    pub missed_at_least: u64,
    /// Seconds after the end of the connection that its will is published; null: it has none.
    pub will_delay_s: Option<u32>,
    /// QoS 1 and 2 messages to it that it has not acknowledged, by packet id.
    pub outbound_packet_ids: Vec<u16>,
    /// QoS 2 messages from it that are not released, by packet id.
    pub inbound_packet_ids: Vec<u16>,
}

/// A subscription of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Subscription {
    /// Topic filter, with its share name.
    pub filter: String,
    /// Highest QoS.
    pub qos: u8,
    /// Not what the client published itself.
    pub no_local: bool,
    /// RETAIN stays as it was published.
    pub retain_as_published: bool,
    /// When retained messages are sent: 0, 1 or 2.
    pub retain_handling: u8,
    /// Subscription identifier; 0 is none.
    pub identifier: u32,
}

/// A level of the tree of topics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TopicBranch {
    /// What stands between two slashes here; it may be empty.
    #[schema(example = "pump")]
    pub level: String,
    /// The topic that ends with this level: what to send as `below` for the levels under it.
    #[schema(example = "plant/7/pump")]
    pub topic: String,
    /// Whether the topic itself has a retained message.
    pub has_message: bool,
    /// Retained messages of the topic and of all below it.
    pub retained_messages: u64,
    /// Whether there are more than were counted.
    pub is_more: bool,
}

/// A retained message in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Retained {
    /// Its topic.
    pub topic: String,
    /// Its QoS.
    pub qos: u8,
    /// When it expires, in unix milliseconds; null is never.
    pub expires_at_ms: Option<u64>,
    /// Bytes of its payload.
    pub payload_bytes: u64,
}

/// A retained message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RetainedMessage {
    /// What a list shows.
    #[serde(flatten)]
    pub retained: Retained,
    /// Names and values of its properties.
    pub properties: Vec<(String, String)>,
    /// Its payload, when that is text.
    pub payload: Option<String>,
    /// Its payload in base64, when that is no text.
    pub payload_base64: Option<String>,
}

/// What a broker does now, on all servers together: as they said last, which is every two seconds. Counters are since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Metrics {
    /// When, in unix milliseconds.
    pub at_ms: u64,
    /// Connections.
    pub connections: u64,
    /// Messages that were published.
    pub messages_in: u64,
    /// Messages that were delivered.
    pub messages_out: u64,
    /// Bytes of messages that were published.
    pub bytes_in: u64,
    /// Bytes of messages that were delivered.
    pub bytes_out: u64,
    /// Messages that were dropped.
    pub dropped: u64,
}
