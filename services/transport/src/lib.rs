//! From a listening socket to bytes of MQTT.
//!
//! ```text
//! listeners ── accept ──> addresses (limits per address) ──> PROXY header ──> WebSocket ──> bytes of MQTT
//! ```
//!
//! Each part is told the time and hands its results back; none starts a thread or writes a log line. This crate knows
//! no packet of MQTT, no session, no broker and no event loop.

pub mod addresses;
pub mod listeners;
pub mod origin;
pub mod proxy;
pub mod socket;
pub mod throttle;
pub mod tls;
pub mod ws;

/// Milliseconds since the process started.
pub type Millis = u64;
