//! MQTT over WebSocket (RFC 6455, MQTT 5.0 chapter 6): the upgrade and the frames, bytes in and bytes out.
//!
//! Knows nothing of sockets, clocks or MQTT packets: its output is the byte stream that TCP would give.

pub mod frames;
pub mod handshake;
