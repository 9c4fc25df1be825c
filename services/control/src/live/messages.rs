//! Requests and answers about messages: publishing, stored messages, retained messages and the tree of their topics.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes of a property's identifier, and before each text, of its length.
const ID_BYTES: usize = 1;
const LENGTH_BYTES: usize = 2;

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

impl PublishRequest {
    /// Bytes of topic, properties and payload in a PUBLISH packet, which count against the broker's publish rate.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [&self.content_type, &self.response_topic].into_iter().flatten().map(String::len);
        let one = texts
            .chain(self.correlation_data.as_ref().map(Vec::len))
            .map(|len| ID_BYTES + LENGTH_BYTES + len);
        let pairs = self.user_properties.iter();
        let pairs = pairs.map(|own| ID_BYTES + 2 * LENGTH_BYTES + own.name.len() + own.value.len());
        let expiry = self.message_expiry_s.map_or(0, |seconds| ID_BYTES + size_of_val(&seconds));
        self.topic.len() + self.payload.len() + expiry + one.chain(pairs).sum::<usize>()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserProperty {
    #[schema(example = "unit", max_length = 65535)]
    pub name: String,
    #[schema(example = "celsius", max_length = 65535)]
    pub value: String,
}

/// Properties of a message (MQTT 5.0).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessageProperties {
    #[schema(example = "application/json", max_length = 65535)]
    pub content_type: Option<String>,
    pub response_topic: Option<String>,
    /// Data that the responder repeats, in base64.
    pub correlation_data_base64: Option<String>,
    /// Seconds after which the message is no longer delivered.
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    pub message_expiry_s: Option<u32>,
    pub user_properties: Vec<UserProperty>,
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
    /// The newest message first. The store removes a message when the only session of its filter has acknowledged it,
    /// when the last session of its filter ends or unsubscribes, or for a reason of `removed`. With several sessions it
    /// stays until such a reason.
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
    /// The latest time of the acknowledgement, in unix milliseconds: when the session's connection ended. The store has
    /// one position for each session and no time for each message. So this is null while the session is connected, for
    /// a group, and without an acknowledgement.
    pub acknowledged_by_ms: Option<u64>,
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
    pub subscriptions: u64,
    /// Messages on all topics of this filter that a limit removed before each session had them.
    pub trimmed: u64,
    /// The latest first. A message that is neither in `items` nor within one of them was acknowledged by each session, or
    /// had expired.
    pub removed: Vec<RemovedMessages>,
}

/// Messages of a filter that were removed before each session had them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RemovedMessages {
    pub reason: RemovalReason,
    /// First and last removal, in unix milliseconds; removals for one reason within a minute are joined.
    pub first_at_ms: u64,
    pub last_at_ms: u64,
    /// When the oldest and the newest of the messages were published, in unix milliseconds.
    pub published_from_ms: u64,
    pub published_to_ms: u64,
    pub messages: u64,
}

/// Why stored messages were removed before each session had them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemovalReason {
    /// They were older than the limit on the age of waiting messages.
    QueueAge,
    /// The queue had more messages or bytes than the limit of a session.
    QueueSize,
    /// All queues of the broker together had more bytes than their limit.
    BrokerQueueBytes,
    /// An operator purged the queue.
    Purged,
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
    pub qos: u8,
    /// Expiry in unix milliseconds; null: never.
    pub expires_at_ms: Option<u64>,
    pub payload_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RetainedMessage {
    /// The fields of a list.
    #[serde(flatten)]
    pub retained: Retained,
    pub properties: MessageProperties,
    /// The payload, if it is UTF-8.
    pub payload: Option<String>,
    /// The payload in base64, if it is not UTF-8.
    pub payload_base64: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publish_has_as_many_bytes_as_its_topic_properties_and_payload_have_in_a_packet() {
        let bare = PublishRequest { topic: "a/b".into(), payload: vec![0; 10], ..PublishRequest::default() };
        assert_eq!(bare.bytes(), 13);
        let full = PublishRequest {
            content_type: Some("text".into()),
            response_topic: Some("c".into()),
            correlation_data: Some(vec![0; 2]),
            message_expiry_s: Some(60),
            user_properties: vec![UserProperty { name: String::new(), value: String::new() }; 3],
            ..bare
        };
        assert_eq!(full.bytes(), 13 + (3 + 4) + (3 + 1) + (3 + 2) + 5 + 3 * 5);
    }
}
