//! Events of a client or of the server.

use std::fmt;

/// A client: one client id. Numbers count from 0 in the order of [`crate::history::History::clients`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// A network connection of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// A message, in the order of [`crate::history::History::messages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u32);

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client closed its socket without DISCONNECT: the will must be published.
    Cut,
    /// DISCONNECT with reason 0: the will must be discarded.
    Disconnect,
    /// DISCONNECT with reason 0x04 (MQTT 5.0): the will must be published.
    DisconnectWithWill,
    /// The client is about to reconnect with the same client id while this connection lives.
    TakenOver,
    /// The server closed it, with the reason of its DISCONNECT if it sent one.
    ByServer(Option<u8>),
}

/// A server's answer to a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// PUBACK: the server is responsible for the message.
    PubAck,
    /// PUBREC: the server is responsible for the message.
    PubRec,
    /// PUBCOMP: the packet id is free.
    PubComp,
    /// PUBACK or PUBREC with a reason of 0x80 or more (MQTT 5.0): the server refused the message.
    Refused(u8),
}

/// An event. Sent packets count when they are queued for the socket, received ones when they are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// CONNECT was sent.
    ConnectSent {
        /// The client.
        client: ClientId,
        /// The new connection.
        connection: ConnectionId,
        /// Its pod; 0 where there is only one.
        pod: usize,
        /// Clean session (3.1.1), clean start (5.0).
        clean: bool,
        /// The will, if there is one; its delay is in the message.
        will: Option<MessageId>,
    },
    /// A CONNACK that accepts.
    Connected {
        /// The connection.
        connection: ConnectionId,
        /// The session present flag.
        session_present: bool,
    },
    /// The connection has ended for this client, and later packets are ignored.
    Ended {
        /// The connection.
        connection: ConnectionId,
        /// The way it ended.
        end: End,
    },
    /// The server has closed its side of a connection that had ended for the client.
    HungUp {
        /// The connection.
        connection: ConnectionId,
    },
    /// The server kept a connection that was taken over for too long.
    Lingers {
        /// The connection.
        connection: ConnectionId,
    },
    /// PUBLISH was sent.
    PublishSent {
        /// The connection.
        connection: ConnectionId,
        /// The message.
        message: MessageId,
        /// Its packet id.
        packet_id: u16,
        /// A resend in the same session. Without it, this is a new publication for the server.
        dup: bool,
    },
    /// The server answered a publish.
    Answered {
        /// The connection.
        connection: ConnectionId,
        /// The message.
        message: MessageId,
        /// The answer.
        answer: Answer,
    },
    /// SUBSCRIBE was sent.
    SubscribeSent {
        /// The connection.
        connection: ConnectionId,
        /// Its one filter.
        filter: String,
        /// The requested QoS.
        qos: u8,
    },
    /// A SUBACK that grants the request.
    Subscribed {
        /// The connection.
        connection: ConnectionId,
        /// The filter.
        filter: String,
    },
    /// UNSUBSCRIBE was sent.
    UnsubscribeSent {
        /// The connection.
        connection: ConnectionId,
        /// The filter.
        filter: String,
    },
    /// UNSUBACK was received.
    Unsubscribed {
        /// The connection.
        connection: ConnectionId,
        /// The filter.
        filter: String,
    },
    /// PUBLISH was received.
    Received {
        /// The connection.
        connection: ConnectionId,
        /// The message, or the text of a payload that no client sent.
        message: Result<MessageId, Box<str>>,
        /// QoS of the delivery.
        qos: u8,
        /// The DUP flag.
        dup: bool,
        /// The RETAIN flag.
        retained: bool,
        /// The packet id, 0 at QoS 0.
        packet_id: u16,
    },
    /// PUBREL has arrived: the packet id may be used for another message.
    Released {
        /// The connection.
        connection: ConnectionId,
        /// The packet id.
        packet_id: u16,
    },
    /// A new subscriber of retained messages waited long enough, or received all that it must.
    Probed {
        /// The connection.
        connection: ConnectionId,
    },
    /// The server, or this pod of it, is about to be killed.
    Kill {
        /// The pod.
        pod: usize,
    },
    /// The server accepts connections.
    Up,
    /// From here on no client publishes anything new; all connect and wait for the rest.
    Finale,
}

impl Event {
    /// The connection of the event.
    #[must_use]
    pub fn connection(&self) -> Option<ConnectionId> {
        match self {
            Self::ConnectSent { connection, .. }
            | Self::Connected { connection, .. }
            | Self::Ended { connection, .. }
            | Self::HungUp { connection }
            | Self::Lingers { connection }
            | Self::PublishSent { connection, .. }
            | Self::Answered { connection, .. }
            | Self::SubscribeSent { connection, .. }
            | Self::Subscribed { connection, .. }
            | Self::UnsubscribeSent { connection, .. }
            | Self::Unsubscribed { connection, .. }
            | Self::Received { connection, .. }
            | Self::Released { connection, .. }
            | Self::Probed { connection } => Some(*connection),
            Self::Kill { .. } | Self::Up | Self::Finale => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("socket closed without DISCONNECT"),
            Self::Disconnect => f.write_str("DISCONNECT sent"),
            Self::DisconnectWithWill => f.write_str("DISCONNECT with will (0x04) sent"),
            Self::TakenOver => f.write_str("is being taken over by a new connection"),
            Self::ByServer(None) => f.write_str("closed by the server"),
            Self::ByServer(Some(reason)) => {
                write!(f, "closed by the server with DISCONNECT 0x{reason:02x}")
            }
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PubAck => f.write_str("PUBACK"),
            Self::PubRec => f.write_str("PUBREC"),
            Self::PubComp => f.write_str("PUBCOMP"),
            Self::Refused(reason) => write!(f, "refused with 0x{reason:02x}"),
        }
    }
}
