//! MQTT over WebSocket (RFC 6455, MQTT 5.0 chapter 6): the upgrade and the frames. It knows no
//! sockets, clocks or MQTT packets: its output is the byte stream that TCP would give.

pub mod frames;
pub mod handshake;
