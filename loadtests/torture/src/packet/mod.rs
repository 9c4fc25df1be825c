//! Encodes and decodes the MQTT 3.1.1 and 5.0 packets of a client: no sockets, no clock, no state.
//!
//! The code is shared neither with `millrace-loadtests`, whose packets are templates made for
//! speed, nor with the broker, which must not be its own judge.

mod decode;
mod encode;

pub(crate) use decode::{Malformed, Packet, Publication, next};
pub(crate) use encode::{
    Ack, Connect, Publish, Will, ack, connect, disconnect, publish, subscribe, unsubscribe,
};

/// Reason code of a DISCONNECT that asks the server to publish the will.
pub(crate) const WITH_WILL: u8 = 0x04;

const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const PUBREL: u8 = 0x60;
const PUBCOMP: u8 = 0x70;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;
const UNSUBSCRIBE: u8 = 0xA2;
const UNSUBACK: u8 = 0xB0;
const DISCONNECT: u8 = 0xE0;
