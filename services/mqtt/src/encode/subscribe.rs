//! Encodes SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK.

use super::{first_byte, properties_len, put_header, put_properties};
use crate::{
    PacketId, PacketType, Properties, ReasonCode, SubscribeOptions, Version,
    wire::{fit, put_string},
};

/// `filters` must not be empty.
pub fn subscribe<'a>(
    packet_id: PacketId,
    properties: Properties<'_>,
    filters: impl IntoIterator<Item = (&'a str, SubscribeOptions), IntoIter: Clone>,
    version: Version,
    out: &mut Vec<u8>,
) {
    let filters = filters.into_iter();
    let payload_len = filters.clone().map(|(filter, _)| 3 + fit(filter).len()).sum();
    put_head(PacketType::Subscribe, packet_id, properties, payload_len, version, out);
    for (filter, options) in filters {
        put_string(filter, out);
        out.push(options.to_bits(version));
    }
}

/// `filters` must not be empty.
pub fn unsubscribe<'a>(
    packet_id: PacketId,
    properties: Properties<'_>,
    filters: impl IntoIterator<Item = &'a str, IntoIter: Clone>,
    version: Version,
    out: &mut Vec<u8>,
) {
    let filters = filters.into_iter();
    let payload_len = filters.clone().map(|filter| 2 + fit(filter).len()).sum();
    put_head(PacketType::Unsubscribe, packet_id, properties, payload_len, version, out);
    for filter in filters {
        put_string(filter, out);
    }
}

/// Appends a SUBACK or UNSUBACK. A 3.x UNSUBACK has no reasons; in a 3.x SUBACK every error becomes
/// 0x80, its only failure code.
pub fn subscribe_ack(
    kind: PacketType,
    packet_id: PacketId,
    properties: Properties<'_>,
    reasons: &[ReasonCode],
    version: Version,
    out: &mut Vec<u8>,
) {
    self::reasons(kind, packet_id, properties, reasons.iter().map(|reason| reason.0), version, out);
}

pub(super) fn reasons(
    kind: PacketType,
    packet_id: PacketId,
    properties: Properties<'_>,
    reasons: impl ExactSizeIterator<Item = u8>,
    version: Version,
    out: &mut Vec<u8>,
) {
    debug_assert!(
        matches!(kind, PacketType::SubAck | PacketType::UnsubAck),
        "{kind:?} has no list of reasons"
    );
    if kind == PacketType::UnsubAck && version != Version::V5 {
        return put_head(kind, packet_id, properties, 0, version, out);
    }
    put_head(kind, packet_id, properties, reasons.len(), version, out);
    match version {
        Version::V5 => out.extend(reasons),
        //= [MQTT-3.9.3-2] v3.1.1
        Version::V31 | Version::V311 => {
            out.extend(reasons.map(|byte| if ReasonCode(byte).is_error() { 0x80 } else { byte }));
        }
    }
}

fn put_head(
    kind: PacketType,
    packet_id: PacketId,
    properties: Properties<'_>,
    payload_len: usize,
    version: Version,
    out: &mut Vec<u8>,
) {
    let properties_len = if version == Version::V5 { properties_len(properties) } else { 0 };
    put_header(first_byte(kind), 2 + properties_len + payload_len, out);
    out.extend_from_slice(&packet_id.get().to_be_bytes());
    if version == Version::V5 {
        put_properties(properties, out);
    }
}
