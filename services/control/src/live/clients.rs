//! Clients and sessions of a broker, as the API shows them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::Page;

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
    pub identifier: u32,
}
