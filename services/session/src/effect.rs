//! What an input asks of the world around the state machine.

use std::sync::Arc;

use millrace_mqtt::{Auth, Connect, PacketId, Publish, ReasonCode, Subscribe, Unsubscribe};

/// What one packet asks of the caller.
#[derive(Debug)]
pub enum Effect<'a> {
    /// Nothing.
    None,
    /// A valid CONNECT: find out who it is and answer with [`crate::Connection::accept`] or
    /// [`crate::Connection::refuse`].
    Connect(Box<Connect<'a>>),
    /// A message to route; answer with [`crate::Connection::published`] when its QoS is above 0.
    Publish(Publication<'a>),
    /// Answer with [`crate::Connection::subscribed`].
    Subscribe(Subscribe<'a>),
    /// Answer with [`crate::Connection::unsubscribed`].
    Unsubscribe(Unsubscribe<'a>),
    /// A step of enhanced authentication: answer with [`crate::Connection::challenge`], [`crate::Connection::accept`] or
    /// [`crate::Connection::refuse`]; once the connection is open, with [`crate::Connection::authenticated`] or
    /// [`crate::Connection::disconnect`].
    Authenticate(Auth<'a>),
    /// An acknowledgement freed a place: call [`crate::Session::pump`].
    Acknowledged,
    /// PUBREC for a message of a session that keeps its packet ids: answer with [`crate::Connection::release`] once the
    /// store knows.
    Received(PacketId),
    /// PUBREL for a packet id that the store knows: answer with [`crate::Connection::complete`] once it has forgotten it.
    Released(PacketId),
    /// The client ends the connection; its will is to be published only when `with_will`.
    Disconnect {
        /// Reason code 0x04 of a 5.0 client.
        with_will: bool,
    },
    /// Close the connection after writing what is in the outbound buffer.
    Close(Closing),
}

/// Why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The code that a 5.0 client is told.
    pub reason: ReasonCode,
    /// For logs: what was wrong.
    pub what: &'static str,
}

/// A message from a client.
#[derive(Debug)]
pub struct Publication<'a> {
    /// The topic name, with the alias resolved.
    pub topic: Topic<'a>,
    /// The packet. Its `topic` field may be empty: use [`Publication::topic`].
    pub publish: Publish<'a>,
}

/// A topic name from the packet or from an earlier packet's alias.
#[derive(Clone, Debug)]
pub enum Topic<'a> {
    /// Stands in the packet.
    Named(&'a str),
    /// Was set by a topic alias.
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
