//! Encodes packets.

const SESSION_EXPIRY: u8 = 0x11;
const WILL_DELAY: u8 = 0x18;
/// Seconds, longer than any run.
const SESSION_EXPIRY_S: u32 = 24 * 3600;

/// The keep alive is always off.
#[derive(Clone, Copy)]
pub(crate) struct Connect<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) v5: bool,
    /// Sets the session expiry of 5.0; in 3.1.1 `clean` alone decides, so a client that is not persistent must set it.
    pub(crate) persistent: bool,
    pub(crate) clean: bool,
    pub(crate) will: Option<Will<'a>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Will<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: u8,
    pub(crate) delay_s: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct Publish<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: u8,
    pub(crate) dup: bool,
    pub(crate) retain: bool,
    pub(crate) packet_id: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "the names of the packets")]
pub(crate) enum Ack {
    PubAck,
    PubRec,
    PubRel,
    PubComp,
}

pub(crate) fn connect(ask: Connect<'_>) -> Vec<u8> {
    let Connect { client_id, v5, persistent, clean, will } = ask;
    let mut flags = u8::from(clean) << 1;
    if let Some(will) = will {
        flags |= 0b100 | will.qos << 3;
    }
    let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', if v5 { 5 } else { 4 }, flags, 0, 0];
    if v5 {
        let expiry_s = if persistent { SESSION_EXPIRY_S } else { 0 };
        push_properties(&mut body, Some((SESSION_EXPIRY, expiry_s)));
    }
    push_bytes(&mut body, client_id.as_bytes());
    if let Some(will) = will {
        if v5 {
            push_properties(&mut body, Some((WILL_DELAY, will.delay_s)));
        }
        push_bytes(&mut body, will.topic.as_bytes());
        push_bytes(&mut body, will.payload);
    }
    packet(super::CONNECT, &body)
}

pub(crate) fn publish(v5: bool, what: Publish<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    push_bytes(&mut body, what.topic.as_bytes());
    if what.qos > 0 {
        body.extend(what.packet_id.to_be_bytes());
    }
    if v5 {
        push_properties(&mut body, None);
    }
    body.extend(what.payload);
    packet(super::PUBLISH | u8::from(what.dup) << 3 | what.qos << 1 | u8::from(what.retain), &body)
}

/// The short form, which means success in 5.0, too.
pub(crate) fn ack(kind: Ack, packet_id: u16) -> Vec<u8> {
    let first = match kind {
        Ack::PubAck => super::PUBACK,
        Ack::PubRec => super::PUBREC,
        Ack::PubRel => super::PUBREL | 0b10,
        Ack::PubComp => super::PUBCOMP,
    };
    packet(first, &packet_id.to_be_bytes())
}

pub(crate) fn subscribe(v5: bool, packet_id: u16, filter: &str, qos: u8) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    if v5 {
        push_properties(&mut body, None);
    }
    push_bytes(&mut body, filter.as_bytes());
    body.push(qos);
    packet(super::SUBSCRIBE, &body)
}

pub(crate) fn unsubscribe(v5: bool, packet_id: u16, filter: &str) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    if v5 {
        push_properties(&mut body, None);
    }
    push_bytes(&mut body, filter.as_bytes());
    packet(super::UNSUBSCRIBE, &body)
}

/// `reason` is for MQTT 5.0.
pub(crate) fn disconnect(v5: bool, reason: u8) -> Vec<u8> {
    packet(super::DISCONNECT, if v5 && reason != 0 { std::slice::from_ref(&reason) } else { &[] })
}

fn push_properties(out: &mut Vec<u8>, number: Option<(u8, u32)>) {
    let Some((id, value)) = number else { return out.push(0) };
    out.extend([5, id]);
    out.extend(value.to_be_bytes());
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(bytes);
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    let mut length = body.len();
    loop {
        let low = (length & 0x7F) as u8;
        length >>= 7;
        out.push(if length == 0 { low } else { low | 0x80 });
        if length == 0 {
            break;
        }
    }
    out.extend(body);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_the_bytes_of_the_standard() {
        let will = Will { topic: "w", payload: b"x", qos: 1, delay_s: 2 };
        let ask = Connect { client_id: "a", v5: false, persistent: true, clean: false, will: Some(will) };
        let mqtt = [0, 4, b'M', b'Q', b'T', b'T'];
        let start = |length: u8| [&[0x10, length][..], &mqtt].concat();
        let v3 = [&start(19)[..], &[4, 0b1100, 0, 0, 0, 1, b'a', 0, 1, b'w', 0, 1, b'x']].concat();
        assert_eq!(connect(ask), v3);
        let v5 = [
            &start(31)[..],
            &[5, 0b1100, 0, 0, 5, 0x11, 0, 1, 0x51, 0x80, 0, 1, b'a'],
            &[5, 0x18, 0, 0, 0, 2, 0, 1, b'w', 0, 1, b'x'],
        ];
        assert_eq!(connect(Connect { v5: true, ..ask }), v5.concat());
        let message = Publish { topic: "t", payload: b"p", qos: 2, dup: true, retain: true, packet_id: 258 };
        assert_eq!(publish(false, message), [0x3D, 6, 0, 1, b't', 1, 2, b'p']);
        assert_eq!(publish(true, message), [0x3D, 7, 0, 1, b't', 1, 2, 0, b'p']);
        assert_eq!(ack(Ack::PubRel, 7), [0x62, 2, 0, 7]);
        assert_eq!(subscribe(true, 1, "f", 2), [0x82, 7, 0, 1, 0, 0, 1, b'f', 2]);
        assert_eq!(unsubscribe(false, 1, "f"), [0xA2, 5, 0, 1, 0, 1, b'f']);
        assert_eq!(disconnect(true, 0), [0xE0, 0]);
        assert_eq!(disconnect(true, super::super::WITH_WILL), [0xE0, 1, 4]);
        assert_eq!(
            publish(false, Publish { payload: &[0; 200], ..message })[..3],
            [0x3D, 205 & 0x7F | 0x80, 1]
        );
    }
}
