//! Requests of the state machine to its caller.

use std::sync::Arc;

use millrace_mqtt::{Auth, Connect, PacketId, Publish, ReasonCode, Subscribe, Unsubscribe};

#[derive(Debug)]
pub enum SessionEffect<'a> {
    None,
    /// A valid CONNECT: authenticate the client, then call [`crate::Connection::accept`] or [`crate::Connection::refuse`].
    Connect(Box<Connect<'a>>),
    /// A message to route; above QoS 0, call [`crate::Connection::published`] afterwards.
    Publish(Publication<'a>),
    /// Answer with [`crate::Connection::subscribed`].
    Subscribe(Subscribe<'a>),
    /// Answer with [`crate::Connection::unsubscribed`].
    Unsubscribe(Unsubscribe<'a>),
    /// A step of enhanced authentication. Answer with [`crate::Connection::challenge`], [`crate::Connection::accept`] or
    /// [`crate::Connection::refuse`]; on an open connection with [`crate::Connection::authenticated`] or
    /// [`crate::Connection::disconnect`].
    Authenticate(Auth<'a>),
    /// An acknowledgement made room for another message: call [`crate::Session::pump`].
    Acknowledged,
    /// PUBREC in a stored session: answer with [`crate::Connection::release`] once the store has recorded it.
    Received(PacketId),
    /// PUBREL in a stored session: answer with [`crate::Connection::complete`] once the store has deleted the packet id.
    Released(PacketId),
    Disconnect {
        /// False for reason code 0x00: the server then discards the will.
        with_will: bool,
    },
    /// Close the connection after writing the outbound buffer.
    Close(Closing),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    pub reason: ReasonCode,
    pub what: &'static str,
}

#[derive(Debug)]
pub struct Publication<'a> {
    pub topic: Topic<'a>,
    /// Its `topic` may be empty: use [`Publication::topic`].
    pub publish: Publish<'a>,
}

#[derive(Clone, Debug)]
pub enum Topic<'a> {
    Named(&'a str),
    /// Set as topic alias by an earlier packet.
    Alias(Arc<str>),
}

impl Topic<'_> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Named(topic) => topic,
            Self::Alias(topic) => topic,
        }
    }
}
