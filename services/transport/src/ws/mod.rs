//! MQTT over WebSocket (RFC 6455, MQTT 5.0 chapter 6): the upgrade and the frames. The output is
//! the byte stream that TCP would give; sockets, clocks and MQTT packets are unknown here.

pub mod frames;
pub mod handshake;
