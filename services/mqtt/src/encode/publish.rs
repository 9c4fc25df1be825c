//! Encodes the head of a PUBLISH, which is all but its payload: receivers share the payload's
//! bytes, and only their heads differ.

use super::{put_header, put_var_int};
use crate::{
    PacketId, PacketType, Properties, QoS, Version,
    wire::{fit, put_string, var_int_len},
};

#[derive(Clone, Copy, Debug)]
pub struct PublishHead<'a> {
    /// Written only when `qos` is above 0.
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    pub topic: &'a str,
    /// Set exactly when `qos` is above 0.
    pub packet_id: Option<PacketId>,
    /// Written only for 5.0: `more` (one receiver's), then `properties` (the message's, shared by
    /// all receivers). Two fields spare joining them for each receiver.
    pub properties: Properties<'a>,
    pub more: Properties<'a>,
    pub payload_len: usize,
}

impl PublishHead<'_> {
    /// The size of the whole packet with its payload, bytes. A packet over 268,435,460 bytes cannot
    /// be written.
    #[inline]
    pub fn packet_size(&self, version: Version) -> usize {
        let body_len = self.body_len(version);
        1 + var_int_len(body_len) + body_len
    }

    /// Appends all but the payload; the caller then appends exactly `payload_len` bytes.
    #[inline]
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) {
        self.encode_up_to_properties(version, out);
        if version == Version::V5 {
            out.extend_from_slice(self.properties.0);
        }
    }

    /// Like [`PublishHead::encode`], but the caller of a 5.0 packet appends also `properties`.
    #[inline]
    pub fn encode_up_to_properties(&self, version: Version, out: &mut Vec<u8>) {
        debug_assert_eq!(
            self.packet_id.is_some(),
            self.qos > QoS::AtMostOnce,
            "packet id and QoS do not agree"
        );
        //= [MQTT-3.3.1-2] v5 v3.1.1
        let dup = self.dup && self.qos > QoS::AtMostOnce;
        let flags = u8::from(dup) << 3 | (self.qos as u8) << 1 | u8::from(self.retain);
        put_header((PacketType::Publish as u8) << 4 | flags, self.body_len(version), out);
        put_string(self.topic, out);
        //= [MQTT-2.2.1-2] v5
        //= [MQTT-2.3.1-5] v3.1.1
        if let Some(packet_id) = self.packet_id {
            out.extend_from_slice(&packet_id.get().to_be_bytes());
        }
        if version == Version::V5 {
            put_var_int(self.properties_len(), out);
            out.extend_from_slice(self.more.0);
        }
    }

    #[inline]
    fn body_len(&self, version: Version) -> usize {
        let packet_id = if self.packet_id.is_some() { 2 } else { 0 };
        let properties = match version {
            Version::V5 => var_int_len(self.properties_len()) + self.properties_len(),
            Version::V31 | Version::V311 => 0,
        };
        2 + fit(self.topic).len() + packet_id + properties + self.payload_len
    }

    #[inline]
    const fn properties_len(&self) -> usize {
        self.properties.0.len() + self.more.0.len()
    }
}
