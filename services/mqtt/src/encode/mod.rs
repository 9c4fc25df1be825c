//! Encodes packets. Every function appends one whole packet to `out`.
//!
//! A string or binary field has at most 65,535 bytes, a packet at most 268,435,455 bytes after its
//! fixed header. An encoder cuts a longer field (a string between two characters), so that the
//! packet stays well formed. A debug build panics instead, because a longer field is the caller's
//! mistake. The encoders check nothing else: take properties and topics from decoded packets, or
//! follow the rules for them.

mod connect;
mod publish;
mod subscribe;

use crate::{
    Ack, Packet, PacketId, PacketType, Properties, ReasonCode, Version,
    wire::{put_var_int, var_int_len},
};

pub use publish::PublishHead;
pub use subscribe::{subscribe, subscribe_ack, unsubscribe};

/// Leaves out the fields (properties, reasons) that `version` does not have. A CONNECT is written
/// for its own version, an AUTH always for 5.0.
pub fn packet(packet: &Packet<'_>, version: Version, out: &mut Vec<u8>) {
    match packet {
        Packet::Connect(p) => connect::connect(p, out),
        Packet::ConnAck(p) => connect::connack(p, version, out),
        Packet::Publish(p) => {
            PublishHead {
                dup: p.dup,
                qos: p.qos,
                retain: p.retain,
                topic: p.topic,
                packet_id: p.packet_id,
                properties: p.properties,
                more: Properties::EMPTY,
                payload_len: p.payload.len(),
            }
            .encode(version, out);
            out.extend_from_slice(p.payload);
        }
        Packet::PubAck(p) | Packet::PubRec(p) | Packet::PubRel(p) | Packet::PubComp(p) => {
            ack(packet.packet_type(), p, version, out);
        }
        Packet::Subscribe(p) => subscribe(p.packet_id, p.properties, p.filters.clone(), version, out),
        Packet::SubAck(p) => {
            subscribe::reasons(
                PacketType::SubAck,
                p.packet_id,
                p.properties,
                p.reasons.iter().copied(),
                version,
                out,
            );
        }
        Packet::Unsubscribe(p) => unsubscribe(p.packet_id, p.properties, p.filters.clone(), version, out),
        Packet::UnsubAck(p) => {
            let reasons = p.reasons.iter().copied();
            subscribe::reasons(PacketType::UnsubAck, p.packet_id, p.properties, reasons, version, out);
        }
        Packet::PingReq | Packet::PingResp => out.extend_from_slice(&[first_byte(packet.packet_type()), 0]),
        Packet::Disconnect(p) => reason_only(PacketType::Disconnect, p.reason, p.properties, version, out),
        Packet::Auth(p) if version == Version::V5 => {
            reason_only(PacketType::Auth, p.reason, p.properties, version, out);
        }
        Packet::Auth(_) => debug_assert!(false, "AUTH is a packet of MQTT 5.0"),
    }
}

/// A success without properties has no reason code in 5.0.
pub fn ack(kind: PacketType, ack: &Ack<'_>, version: Version, out: &mut Vec<u8>) {
    if version != Version::V5 || (ack.reason == ReasonCode::SUCCESS && ack.properties.is_empty()) {
        return plain_ack(kind, ack.packet_id, out);
    }
    let reason = if ack.properties.is_empty() { 1 } else { 1 + properties_len(ack.properties) };
    put_header(first_byte(kind), 2 + reason, out);
    out.extend_from_slice(&ack.packet_id.get().to_be_bytes());
    out.push(ack.reason.0);
    if !ack.properties.is_empty() {
        put_properties(ack.properties, out);
    }
}

/// Appends a successful acknowledgement without properties: the same four bytes in every version.
#[inline]
pub fn plain_ack(kind: PacketType, packet_id: PacketId, out: &mut Vec<u8>) {
    debug_assert!(
        matches!(kind, PacketType::PubAck | PacketType::PubRec | PacketType::PubRel | PacketType::PubComp),
        "{kind:?} is no acknowledgement of a PUBLISH"
    );
    let [high, low] = packet_id.get().to_be_bytes();
    out.extend_from_slice(&[first_byte(kind), 2, high, low]);
}

fn reason_only(
    kind: PacketType,
    reason: ReasonCode,
    properties: Properties<'_>,
    version: Version,
    out: &mut Vec<u8>,
) {
    if version != Version::V5 || (reason == ReasonCode::SUCCESS && properties.is_empty()) {
        return out.extend_from_slice(&[first_byte(kind), 0]);
    }
    put_header(first_byte(kind), 1 + properties_len(properties), out);
    out.push(reason.0);
    put_properties(properties, out);
}

#[inline]
const fn first_byte(kind: PacketType) -> u8 {
    //= [MQTT-2.1.3-1] v5
    //= [MQTT-2.2.2-1] v3.1.1
    let flags = match kind {
        PacketType::PubRel | PacketType::Subscribe | PacketType::Unsubscribe => 0x02,
        _ => 0x00,
    };
    (kind as u8) << 4 | flags
}

#[inline]
fn put_header(first: u8, body_len: usize, out: &mut Vec<u8>) {
    out.reserve(5 + body_len);
    out.push(first);
    put_var_int(body_len, out);
}

#[inline]
const fn properties_len(properties: Properties<'_>) -> usize {
    var_int_len(properties.0.len()) + properties.0.len()
}

#[inline]
fn put_properties(properties: Properties<'_>, out: &mut Vec<u8>) {
    //= [MQTT-2.2.2-1] v5
    put_var_int(properties.0.len(), out);
    out.extend_from_slice(properties.0);
}

#[cfg(test)]
mod tests;
