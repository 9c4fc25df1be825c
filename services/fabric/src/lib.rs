//! The network between pods: opaque messages over NATS, numbered, so that a loss is noticed.
//!
//! This crate knows nothing of MQTT.

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
mod shared;
#[cfg(test)]
mod simulation;
mod sink;
mod tasks;

pub use address::{PodId, To};
pub use counters::{Counters, Metric};
pub use fabric::Fabric;
pub use health::Health;
pub use limits::Limits;
pub use outbox::{Dropped, Sent};
pub use settings::{Credentials, Settings, SettingsError, Tls};
pub use sink::{Batch, Gap, Messages, Sink};

/// Entry points of fuzz targets.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    /// Decodes a frame, then encodes and decodes it again.
    pub fn frame(bytes: &[u8]) {
        crate::frame::round_trip(bytes);
    }
}
