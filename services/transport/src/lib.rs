//! From a listening socket to bytes of MQTT.
//!
//! ```text
//! listeners ── accept ──> addresses (limits per address) ──> PROXY header ──> WebSocket ──> bytes of MQTT
//! ```
//!
//! The caller passes the time in and takes results out; no part starts a thread or writes a log
//! line. This crate knows no MQTT packet, session, broker or event loop.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

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
