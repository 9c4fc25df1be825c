//! Effects: requests of the state machine to its caller.

use std::sync::Arc;

use millrace_mqtt::{Auth, Connect, PacketId, Publish, ReasonCode, Subscribe, Unsubscribe};

/// The effect of one packet.
#[derive(Debug)]
pub enum Effect<'a> {
    /// Nothing.
    None,
    /// A valid CONNECT: authenticate the client, and answer with [`crate::Connection::accept`] or
    /// [`crate::Connection::refuse`].
    Connect(Box<Connect<'a>>),
    /// A message to route; answer with [`crate::Connection::published`] when its QoS is above 0.
    Publish(Publication<'a>),
    /// Answer with [`crate::Connection::subscribed`].
    Subscribe(Subscribe<'a>),
    /// Answer with [`crate::Connection::unsubscribed`].
    Unsubscribe(Unsubscribe<'a>),
    /// A step of enhanced authentication. Answer with [`crate::Connection::challenge`], [`crate::Connection::accept`]
    /// or [`crate::Connection::refuse`]; on an open connection with [`crate::Connection::authenticated`] or
    /// [`crate::Connection::disconnect`].
    Authenticate(Auth<'a>),
    /// An acknowledgement made room for another message: call [`crate::Session::pump`].
    Acknowledged,
    /// PUBREC for a message of a stored session: answer with [`crate::Connection::release`] once the store has recorded
    /// it.
    Received(PacketId),
    /// PUBREL for a packet id that is stored: answer with [`crate::Connection::complete`] once the store has forgotten
    /// it.
    Released(PacketId),
    /// The client ends the connection; publish its will only when `with_will`.
    Disconnect {
        /// Reason code 0x04 of a 5.0 client.
        with_will: bool,
    },
    /// Close the connection after writing the outbound buffer.
    Close(Closing),
}

/// The reason why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// Reason code of the DISCONNECT for a 5.0 client.
    pub reason: ReasonCode,
    /// Text for logs.
    pub what: &'static str,
}

/// A message from a client.
#[derive(Debug)]
pub struct Publication<'a> {
    /// The topic name, with the alias resolved.
    pub topic: Topic<'a>,
    /// The packet. Its `topic` may be empty: use [`Publication::topic`].
    pub publish: Publish<'a>,
}

/// A topic name from the packet or from an earlier packet's alias.
#[derive(Clone, Debug)]
pub enum Topic<'a> {
    /// A name in this packet.
    Named(&'a str),
    /// A name that an earlier packet set as topic alias.
    Alias(Arc<str>),
}

impl Topic<'_> {
    /// The topic name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Named(topic) => topic,
            Self::Alias(topic) => topic,
        }
    }
}
