//! Turns connections of listening sockets into bytes of MQTT: accepting, limits, PROXY headers,
//! TLS, WebSocket.
//!
//! ```text
//! listeners ── accept ──> addresses (limits per address) ──> PROXY header ──> WebSocket ──> bytes of MQTT
//! ```
//!
//! Connections and the time come in, results go out; no part starts a thread or writes a log line.
//! This crate must not know MQTT packets, sessions, brokers or event loops.

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
