//! The MQTT connection and session state machine: packets in, [`SessionEffect`]s and bytes out.
//!
//! This crate does no I/O, owns no clock and starts no task: the time comes in with each call, bytes leave through [`Out`]. It
//! knows nothing of routing, stores or threads. A [`Connection`] lives as long as a network connection, a [`Session`] as long as
//! the standard says.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

mod aliases;
mod budget;
mod connack;
mod connection;
mod delivery;
mod effect;
mod inbound;
mod message;
#[cfg(test)]
mod model_tests;
mod out;
mod outbox;
#[cfg(test)]
mod packet_tests;
mod session;
mod settings;
#[cfg(test)]
mod test_client;

pub use budget::{Budget, Hold};
pub use connack::Accept;
pub use connection::Connection;
pub use delivery::{Delivered, Delivery, DropReason, PUMP_MAX};
pub use effect::{Closing, Publication, SessionEffect, Topic};
pub use message::{Message, Seconds, StoredPosition, Trace};
pub use out::Out;
pub use outbox::{InFlight, OutboxEntry, RemainingMessage};
pub use session::{ClientSubscription, NextFilter, Remains, Session, SessionWill};
pub use settings::{SessionSettings, UNCOUNTED_BYTES_MAX};

/// An empty collection of a session keeps at most this capacity, so that one burst costs memory only once.
pub(crate) const EMPTY_CAPACITY_MAX: usize = 64;
