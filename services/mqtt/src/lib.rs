//! MQTT 3.1, 3.1.1 and 5.0 packets: incremental zero-copy decoding, encoding into shared buffers,
//! strict validation.
//!
//! [`frame()`] finds a packet in a stream, [`decode()`] turns it into a [`Packet`] that borrows
//! from the bytes, [`mod@encode`] turns packets into bytes. This crate knows nothing of sockets,
//! clocks, sessions or routing.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

pub mod encode;
mod error;
mod frame;
mod packet;
mod property;
mod reason;
pub mod topic;
mod types;
mod wire;

pub use error::DecodeError;
pub use frame::{Frame, frame};
pub use packet::{
    Ack, Auth, ConnAck, Connect, Disconnect, Packet, Publish, SubAck, Subscribe, SubscribeFilters, UnsubAck,
    Unsubscribe, UnsubscribeFilters, Will, connect_version, decode,
};
pub use property::{Properties, Property, PropertyIter, REPEATED_PROPERTIES_MAX};
pub use reason::ReasonCode;
pub use types::{PacketId, PacketType, QoS, RetainHandling, SubscribeOptions, Version};
