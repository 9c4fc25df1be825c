//! One thing that happened at a client, or to the server.

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
    /// The client closed its socket without DISCONNECT: the will is to be published.
    Cut,
    /// DISCONNECT with reason 0: the will is to be discarded.
    Disconnect,
    /// DISCONNECT with reason 0x04 (MQTT 5.0): the will is to be published.
    DisconnectWithWill,
    /// The client is about to connect anew with the same client id while this connection lives.
    TakenOver,
    /// The server closed it, with the reason of its DISCONNECT if it sent one.
    ByServer(Option<u8>),
}

/// What a publisher hears about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// PUBACK: the message is the server's now.
    PubAck,
    /// PUBREC: the message is the server's now.
    PubRec,
    /// PUBCOMP: the packet id is free.
    PubComp,
    /// PUBACK or PUBREC with a reason of 0x80 or more (MQTT 5.0): the server did not take the message.
    Refused(u8),
}

/// Something that happened. Packets count when they are left for the socket, or when they were read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// CONNECT was sent.
    ConnectSent {
        /// Who.
        client: ClientId,
        /// The connection that begins.
        connection: ConnectionId,
        /// The pod that it goes to; 0 where there is one.
        pod: usize,
        /// Clean session (3.1.1), clean start (5.0).
        clean: bool,
        /// The will, if there is one; its delay is in the message.
        will: Option<MessageId>,
    },
    /// CONNACK that accepts.
    Connected {
        /// The connection.
        connection: ConnectionId,
        /// The session present flag.
        session_present: bool,
    },
    /// The connection is over for this client. What arrives afterwards is not looked at.
    Ended {
        /// The connection.
        connection: ConnectionId,
        /// How.
        end: End,
    },
    /// The server has closed its side of a connection that was over for the client.
    HungUp {
        /// The connection.
        connection: ConnectionId,
    },
    /// The server kept a connection that was taken over for longer than it may.
    Lingers {
        /// The connection.
        connection: ConnectionId,
    },
    /// PUBLISH was sent.
    PublishSent {
        /// On which connection.
        connection: ConnectionId,
        /// What.
        message: MessageId,
        /// Its packet id.
        packet_id: u16,
        /// Sent again in the same session. Without it, it is a new publication for the server.
        dup: bool,
    },
    /// The server answered a publish.
    Answered {
        /// On which connection.
        connection: ConnectionId,
        /// To which message.
        message: MessageId,
        /// What.
        answer: Answer,
    },
    /// SUBSCRIBE was sent.
    SubscribeSent {
        /// On which connection.
        connection: ConnectionId,
        /// Its one filter.
        filter: String,
        /// The QoS asked for.
        qos: u8,
    },
    /// SUBACK was received that grants what was asked for.
    Subscribed {
        /// On which connection.
        connection: ConnectionId,
        /// The filter.
        filter: String,
    },
    /// UNSUBSCRIBE was sent.
    UnsubscribeSent {
        /// On which connection.
        connection: ConnectionId,
        /// The filter.
        filter: String,
    },
    /// UNSUBACK was received.
    Unsubscribed {
        /// On which connection.
        connection: ConnectionId,
        /// The filter.
        filter: String,
    },
    /// PUBLISH was received.
    Received {
        /// On which connection.
        connection: ConnectionId,
        /// What; or the text of what no client ever sent.
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
    /// PUBREL was received: the packet id may be used for another message.
    Released {
        /// On which connection.
        connection: ConnectionId,
        /// The packet id.
        packet_id: u16,
    },
    /// A fresh subscriber of retained messages waited long enough, or saw all it had to see.
    Probed {
        /// On which connection.
        connection: ConnectionId,
    },
    /// The server, or this pod of it, is about to be killed.
    Kill {
        /// Which.
        pod: usize,
    },
    /// The server takes connections.
    Up,
    /// No client publishes anything new from here on; all connect and wait for what is still to come.
    Finale,
}

impl Event {
    /// The connection it happened on.
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
