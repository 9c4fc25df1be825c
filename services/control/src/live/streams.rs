//! Events of the two streams: the tail of a broker's messages and the trace of a client.

use serde::Serialize;
use utoipa::ToSchema;

use super::{ClientDetails, MessageProperties};

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
    pub properties: MessageProperties,
}

/// Messages that the tail left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TailDropped {
    /// Number of messages since the last such event.
    pub messages: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TailEnd {
    pub reason: String,
}

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
