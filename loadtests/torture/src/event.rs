//! Events that a run records: packets, ends of connections, kills.

use std::fmt;

/// Index into [`crate::history::History::clients`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// Index into [`crate::history::History::messages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u32);

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishAnswer {
    /// PUBACK: the server is responsible for the message.
    PubAck,
    PubRec,
    /// PUBCOMP: the packet id is free.
    PubComp,
    /// PUBACK or PUBREC with a reason of 0x80 or more (MQTT 5.0): the server refused the message.
    Refused(u8),
}

/// A sent packet counts when it is queued for the socket, a received packet when it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    ConnectSent {
        client: ClientId,
        connection: ConnectionId,
        pod: usize,
        /// Clean session (3.1.1), or clean start (5.0).
        clean: bool,
        will: Option<MessageId>,
    },
    Connected {
        connection: ConnectionId,
        session_present: bool,
    },
    /// Later packets of the connection are ignored.
    Ended {
        connection: ConnectionId,
        end: End,
    },
    /// The server closed its side of a connection that had ended for the client.
    HungUp {
        connection: ConnectionId,
    },
    /// The server did not close a connection that was taken over.
    Lingers {
        connection: ConnectionId,
    },
    PublishSent {
        connection: ConnectionId,
        message: MessageId,
        packet_id: u16,
        /// A resend in the same session. Without DUP, this is a new publication for the server.
        dup: bool,
    },
    Answered {
        connection: ConnectionId,
        message: MessageId,
        answer: PublishAnswer,
    },
    SubscribeSent {
        connection: ConnectionId,
        filter: String,
        qos: u8,
    },
    Subscribed {
        connection: ConnectionId,
        filter: String,
    },
    UnsubscribeSent {
        connection: ConnectionId,
        filter: String,
    },
    Unsubscribed {
        connection: ConnectionId,
        filter: String,
    },
    Received {
        connection: ConnectionId,
        /// `Err` with the text of a payload that no client sent.
        message: Result<MessageId, Box<str>>,
        qos: u8,
        dup: bool,
        retained: bool,
        /// 0 at QoS 0.
        packet_id: u16,
    },
    /// PUBREL arrived: the packet id may be used for another message.
    Released {
        connection: ConnectionId,
        packet_id: u16,
    },
    /// A new subscriber of retained messages waited long enough, or received all of them.
    Probed {
        connection: ConnectionId,
    },
    /// Recorded before the server, or this pod, is killed.
    Kill {
        pod: usize,
    },
    Up,
    /// From here on clients publish nothing new; all connect and wait for the rest.
    Finale,
}

impl Event {
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

impl fmt::Display for PublishAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PubAck => f.write_str("PUBACK"),
            Self::PubRec => f.write_str("PUBREC"),
            Self::PubComp => f.write_str("PUBCOMP"),
            Self::Refused(reason) => write!(f, "refused with 0x{reason:02x}"),
        }
    }
}
