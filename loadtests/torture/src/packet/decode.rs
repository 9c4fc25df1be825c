//! Decodes packets.

use super::{Ack, CONNACK, DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, UNSUBACK};

const REMAINING_LENGTH_BYTES_MAX: usize = 4;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    ConnAck { session_present: bool, reason: u8 },
    Publish(Publication<'a>),
    Ack { kind: Ack, packet_id: u16, reason: u8 },
    SubAck { packet_id: u16, reason: u8 },
    UnsubAck { packet_id: u16, reason: u8 },
    Disconnect { reason: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publication<'a> {
    pub(crate) topic: &'a [u8],
    pub(crate) payload: &'a [u8],
    pub(crate) qos: u8,
    pub(crate) dup: bool,
    pub(crate) retain: bool,
    /// 0 at QoS 0.
    pub(crate) packet_id: u16,
}

/// The server's bytes are not a packet, so the stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// `None` while the first packet of `bytes` is incomplete.
pub(crate) fn next(v5: bool, bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, Malformed> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    let Some((body_bytes, length_bytes)) = variable_length(&bytes[1..])? else { return Ok(None) };
    let head = 1 + length_bytes;
    let Some(body) = bytes.get(head..head + body_bytes) else { return Ok(None) };
    Ok(Some((packet(v5, first, body).ok_or(Malformed)?, head + body_bytes)))
}

fn variable_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut value = 0;
    for at in 0..REMAINING_LENGTH_BYTES_MAX {
        let Some(&byte) = bytes.get(at) else { return Ok(None) };
        value |= usize::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((value, at + 1)));
        }
    }
    Err(Malformed)
}

fn packet(v5: bool, first: u8, body: &[u8]) -> Option<Packet<'_>> {
    let (kind, flags) = (first & 0xF0, first & 0x0F);
    match kind {
        CONNACK => Some(Packet::ConnAck { session_present: body.first()? & 1 == 1, reason: *body.get(1)? }),
        PUBLISH => publish(v5, flags, body).map(Packet::Publish),
        PUBACK => acknowledgement(Ack::PubAck, body),
        PUBREC => acknowledgement(Ack::PubRec, body),
        PUBREL if flags == 0b10 => acknowledgement(Ack::PubRel, body),
        PUBCOMP => acknowledgement(Ack::PubComp, body),
        SUBACK => {
            let packet_id = packet_id(body)?;
            Some(Packet::SubAck { packet_id, reason: *after_properties(v5, body.get(2..)?)?.first()? })
        }
        UNSUBACK => {
            let packet_id = packet_id(body)?;
            // 3.1.1 has no reasons here.
            let reason = if v5 { *after_properties(v5, body.get(2..)?)?.first()? } else { 0 };
            Some(Packet::UnsubAck { packet_id, reason })
        }
        DISCONNECT => Some(Packet::Disconnect { reason: body.first().copied().unwrap_or(0) }),
        _ => None,
    }
}

fn publish(v5: bool, flags: u8, body: &[u8]) -> Option<Publication<'_>> {
    let qos = flags >> 1 & 0b11;
    let (topic_bytes, rest) = body.split_first_chunk::<2>()?;
    let (topic, mut rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*topic_bytes)))?;
    let mut id = 0;
    if qos > 0 {
        id = packet_id(rest)?;
        rest = &rest[2..];
    }
    let payload = after_properties(v5, rest)?;
    let right = qos < 3 && (qos == 0 || id != 0);
    let publication =
        Publication { topic, payload, qos, dup: flags & 8 != 0, retain: flags & 1 != 0, packet_id: id };
    right.then_some(publication)
}

fn acknowledgement(kind: Ack, body: &[u8]) -> Option<Packet<'_>> {
    Some(Packet::Ack { kind, packet_id: packet_id(body)?, reason: body.get(2).copied().unwrap_or(0) })
}

fn packet_id(body: &[u8]) -> Option<u16> {
    body.first_chunk().map(|id| u16::from_be_bytes(*id))
}

/// The properties are ignored, because the client requests none.
fn after_properties(v5: bool, bytes: &[u8]) -> Option<&[u8]> {
    if !v5 {
        return Some(bytes);
    }
    let (properties_bytes, own_bytes) = variable_length(bytes).ok()??;
    bytes.get(own_bytes + properties_bytes..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_both_versions_are_read_and_waited_for_at_every_byte() {
        let publication =
            Publication { topic: b"t", payload: b"p", qos: 1, dup: true, retain: false, packet_id: 3 };
        let cases: [(bool, &[u8], Packet<'_>); 9] = [
            (false, &[0x20, 2, 1, 0], Packet::ConnAck { session_present: true, reason: 0 }),
            (true, &[0x20, 3, 0, 0x87, 0], Packet::ConnAck { session_present: false, reason: 0x87 }),
            (false, &[0x3A, 6, 0, 1, b't', 0, 3, b'p'], Packet::Publish(publication)),
            (true, &[0x3A, 9, 0, 1, b't', 0, 3, 2, 1, 0, b'p'], Packet::Publish(publication)),
            (true, &[0x50, 3, 0, 9, 0x97], Packet::Ack { kind: Ack::PubRec, packet_id: 9, reason: 0x97 }),
            (false, &[0x62, 2, 0, 9], Packet::Ack { kind: Ack::PubRel, packet_id: 9, reason: 0 }),
            (true, &[0x90, 4, 0, 1, 0, 2], Packet::SubAck { packet_id: 1, reason: 2 }),
            (false, &[0xB0, 2, 0, 1], Packet::UnsubAck { packet_id: 1, reason: 0 }),
            (true, &[0xE0, 2, 0x8E, 0], Packet::Disconnect { reason: 0x8E }),
        ];
        for (v5, bytes, packet) in cases {
            for cut in 0..bytes.len() {
                assert_eq!(next(v5, &bytes[..cut]), Ok(None), "{packet:?} {cut}");
            }
            assert_eq!(next(v5, bytes), Ok(Some((packet, bytes.len()))));
        }
    }

    #[test]
    fn other_bytes_than_a_packet_are_refused() {
        let cases: [&[u8]; 6] = [
            &[0x30, 0x80, 0x80, 0x80, 0x80, 1],
            &[0x36, 5, 0, 1, b't', 0, 3],
            &[0x32, 5, 0, 1, b't', 0, 0],
            &[0x30, 3, 0, 9, b't'],
            &[0x60, 2, 0, 1],
            &[0x00, 0],
        ];
        for bytes in cases {
            assert_eq!(next(false, bytes), Err(Malformed), "{bytes:?}");
        }
    }
}
