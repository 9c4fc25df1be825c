//! The network between pods: opaque messages over NATS, numbered, so that a loss is noticed.
//!
//! ```text
//! any thread ── Fabric::send ──> outbox (batches, numbers) ── one thread ──> NATS
//! user <── Sink (messages, gaps, joins) ── core, inbox (checks numbers) <─────┘
//! ```
//!
//! A message can be lost, but not unnoticed: the user gets a [`Gap`] and reads the store instead.
//! This crate must not know MQTT or the store.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

mod address;
mod clock;
mod collections;
mod core;
mod counters;
mod fabric;
mod frame;
mod health;
mod inbox;
mod joins;
pub mod limits;
mod linger;
mod link;
mod outbox;
pub mod settings;
#[cfg(test)]
mod simulation;
mod sink;
mod state;
mod tasks;

pub use address::{PodId, To};
pub use counters::{Counters, FabricMetric};
pub use fabric::Fabric;
pub use health::Health;
pub use limits::FabricLimits;
pub use outbox::{FabricDropReason, Sent};
pub use settings::{Credentials, FabricSettings, NatsTls, SettingsError};
pub use sink::{Gap, MessageBatch, Messages, Sink};

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub fn frame(bytes: &[u8]) {
        crate::frame::round_trip(bytes);
    }
}
