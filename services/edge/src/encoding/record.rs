//! Encoding of a message in the store.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | format, 1 |
//! | 1 | QoS in bits 0 and 1, RETAIN in bit 2, bit 3: the publisher follows the length of the properties, bit 4: a will expires at once, bit 5: with RETAIN, but a limit forbids to retain it, bit 6: a will whose client proved the password of a credential |
//! | 8 | expiry, milliseconds since 1970, little-endian; 0: never |
//! | 4 | length of the properties, little-endian |
//! | 8 | only with bit 3: the publisher, see [`publisher`]. Not in an entry of a stream |
//! | | properties as on the wire, then the payload |
//!
//! An entry of a stream is a publisher, a topic and a message; a stored will is a topic and a message:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | the publisher; 0: none. Not in a will |
//! | 2 | length of the topic, little-endian |
//! | | the topic, then the message as above |

use std::sync::Arc;

use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use crate::clock::Clock;

const FORMAT: u8 = 1;
const HEAD: usize = 14;
const RETAIN: u8 = 4;
const PUBLISHER: u8 = 8;
/// A will whose expiry interval is 0: as a time, 0 is "never". A server of a former version ignores the bit.
const AT_ONCE: u8 = 16;
/// A server of a former version ignores this bit, too.
const ONLY_LIVE: u8 = 32;
const BY_PASSWORD: u8 = 64;

pub(crate) fn encode(message: &Message, clock: &Clock) -> Vec<u8> {
    encode_from(message, message.publisher(), clock)
}

fn encode_from(message: &Message, publisher: u64, clock: &Clock) -> Vec<u8> {
    let properties = message.properties().as_bytes();
    let mut out = Vec::with_capacity(HEAD + properties.len() + message.payload().len());
    out.push(FORMAT);
    let retain = match (message.retain(), message.is_retained()) {
        (false, _) => 0,
        (true, true) => RETAIN,
        (true, false) => RETAIN | ONLY_LIVE,
    };
    let named = if publisher == 0 { 0 } else { PUBLISHER };
    let expires_at = message.expires_at_ms().map(|at| clock.unix_at(at));
    let at_once = if expires_at == Some(0) { AT_ONCE } else { 0 };
    out.push(message.qos() as u8 | retain | named | at_once);
    let expires_at = expires_at.unwrap_or(0);
    out.extend_from_slice(&expires_at.to_le_bytes());
    out.extend_from_slice(&u32::try_from(properties.len()).unwrap_or(u32::MAX).to_le_bytes());
    if publisher != 0 {
        out.extend_from_slice(&publisher.to_le_bytes());
    }
    out.extend_from_slice(properties);
    out.extend_from_slice(message.payload());
    out
}

/// `None`: the bytes have another format.
pub(crate) fn decode(topic: Arc<str>, bytes: &[u8], clock: &Clock) -> Option<Message> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let [FORMAT, flags, a, b, c, d, e, f, g, h, lengths @ ..] = *head else { return None };
    let expires_at = match u64::from_le_bytes([a, b, c, d, e, f, g, h]) {
        0 if flags & AT_ONCE == 0 => None,
        unix_ms => Some(clock.at_unix(unix_ms)),
    };
    let (publisher, rest) = match flags & PUBLISHER {
        0 => (0, rest),
        _ => rest.split_first_chunk().map(|(publisher, rest)| (u64::from_le_bytes(*publisher), rest))?,
    };
    let (properties, payload) = rest.split_at_checked(u32::from_le_bytes(lengths) as usize)?;
    let properties = Properties::from_validated(properties);
    let qos = QoS::from_bits(flags & 3)?;
    let message = Message::restored(topic, qos, flags & RETAIN != 0, properties, payload, expires_at);
    if flags & ONLY_LIVE != 0 {
        message.forbid_retaining();
    }
    Some(message.published_by(publisher))
}

/// Hash of a client id, never 0, to recognise a publisher (No Local); it is stored, so it must never change.
pub(crate) fn publisher(client_id: &str) -> u64 {
    let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    client_id.bytes().fold(0xcbf2_9ce4_8422_2325, fold) | 1
}

/// Instead of [`publisher`], where No Local cannot apply.
pub(crate) const NO_PUBLISHER: u64 = 0;

pub(crate) fn encode_entry(message: &Message, publisher: u64, clock: &Clock) -> Vec<u8> {
    let mut out = publisher.to_le_bytes().to_vec();
    with_topic(message, 0, clock, &mut out);
    out
}

pub(crate) fn decode_entry(bytes: &[u8], clock: &Clock) -> Option<(Message, u64)> {
    let (publisher, rest) = bytes.split_first_chunk()?;
    let publisher = u64::from_le_bytes(*publisher);
    Some((decode_with_topic(rest, clock)?.published_by(publisher), publisher))
}

/// Encodes a will. Its expiry interval has not begun, so a clock at 0 encodes the interval itself.
pub(crate) fn encode_will(message: &Message, by_password: bool) -> Vec<u8> {
    let mut out = Vec::new();
    with_topic(message, message.publisher(), &Clock::at(0), &mut out);
    if by_password && let Some(flags) = out.get_mut(flags_at(message.topic().len())) {
        *flags |= BY_PASSWORD;
    }
    out
}

/// Where the flags of a stored will are, behind its topic.
fn flags_at(topic_bytes: usize) -> usize {
    2 + topic_bytes + 1
}

pub(crate) fn is_will_by_password(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().map_or(0, |length| u16::from_le_bytes(*length));
    bytes.get(flags_at(length.into())).is_some_and(|flags| flags & BY_PASSWORD != 0)
}

pub(crate) fn decode_will(bytes: &[u8]) -> Option<Message> {
    decode_with_topic(bytes, &Clock::at(0))
}

fn with_topic(message: &Message, publisher: u64, clock: &Clock, out: &mut Vec<u8>) {
    let topic = message.topic().as_bytes();
    // A topic of MQTT is never longer.
    out.extend_from_slice(&u16::try_from(topic.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(topic);
    out.extend_from_slice(&encode_from(message, publisher, clock));
}

fn decode_with_topic(bytes: &[u8], clock: &Clock) -> Option<Message> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (topic, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    decode(std::str::from_utf8(topic).ok()?.into(), rest, clock)
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::Property;

    use super::*;

    #[test]
    fn a_message_comes_back_as_it_went() {
        let clock = Clock::start();
        let mut properties = Vec::new();
        Property::ContentType("text/plain").encode(&mut properties);
        Property::MessageExpiryInterval(90).encode(&mut properties);
        Property::UserProperty("a", "b").encode(&mut properties);
        for properties in [Properties::EMPTY, Properties::from_validated(&properties)] {
            for (qos, retain, payload) in [
                (QoS::AtMostOnce, true, &b""[..]),
                (QoS::AtLeastOnce, false, b"x"),
                (QoS::ExactlyOnce, true, b"yy"),
            ] {
                let message = Message::new("a/b".into(), qos, retain, properties, payload, 10);
                let bytes = encode(&message, &clock);
                assert_eq!(decode("a/b".into(), &bytes, &clock).as_ref(), Some(&message));
                for cut in 0..HEAD {
                    assert_eq!(decode("a/b".into(), &bytes[..cut], &clock), None);
                }
                let named = message.published_by(publisher("me"));
                let bytes = encode(&named, &clock);
                let read = decode("a/b".into(), &bytes, &clock).unwrap();
                assert_eq!((read.publisher(), &read), (publisher("me"), &named));
                assert_eq!(decode("a/b".into(), &bytes[..HEAD + 7], &clock), None);
            }
        }
        assert_eq!(decode("a".into(), &[9; 40], &clock), None);
    }

    #[test]
    fn an_entry_knows_its_publisher_and_a_will_its_interval() {
        let clock = Clock::at(1_000_000);
        let mut properties = Vec::new();
        Property::MessageExpiryInterval(60).encode(&mut properties);
        let properties = Properties::from_validated(&properties);
        let message = Message::new("a/b".into(), QoS::ExactlyOnce, true, properties, b"x", 5_000);
        let bytes = encode_entry(&message, publisher("me"), &clock);
        assert_eq!(decode_entry(&bytes, &clock), Some((message, publisher("me"))));
        assert_eq!(decode_entry(&bytes[..20], &clock), None);
        let will = Message::new("w".into(), QoS::AtLeastOnce, false, properties, b"gone", 0);
        let read = decode_will(&encode_will(&will.published_by(publisher("me")), false)).unwrap();
        assert_eq!((read.expires_at_ms(), read.payload()), (Some(60_000), &b"gone"[..]));
        assert_eq!(read.publisher(), publisher("me"));
        let mut at_once = Vec::new();
        Property::MessageExpiryInterval(0).encode(&mut at_once);
        let at_once = Properties::from_validated(&at_once);
        for (properties, expires_at) in [(at_once, Some(0)), (Properties::EMPTY, None)] {
            let will = Message::new("w".into(), QoS::AtLeastOnce, true, properties, b"gone", 0);
            for by_password in [false, true] {
                let bytes = encode_will(&will, by_password);
                let read = decode_will(&bytes).unwrap();
                assert_eq!((read.expires_at_ms(), is_will_by_password(&bytes)), (expires_at, by_password));
                assert_eq!((read.qos(), read.retain(), read.topic()), (will.qos(), true, will.topic()));
            }
        }
        assert_eq!((publisher(""), publisher("a") == publisher("b")), (0xcbf2_9ce4_8422_2325, false));
    }

    #[test]
    fn what_expired_while_the_process_was_away_is_expired() {
        let before = Clock::at(1_000_000);
        let mut properties = Vec::new();
        Property::MessageExpiryInterval(60).encode(&mut properties);
        let properties = Properties::from_validated(&properties);
        let message = Message::new("a".into(), QoS::AtMostOnce, true, properties, b"x", 5_000);
        let bytes = encode(&message, &before);
        for (later_ms, expired) in [(1_030_000, false), (1_100_000, true)] {
            let message = decode("a".into(), &bytes, &Clock::at(later_ms)).unwrap();
            assert_eq!(message.is_expired(1), expired, "{later_ms}");
        }
        // Processes start at different fractions of a second.
        let message = decode("a".into(), &bytes, &Clock::at(1_000_999)).unwrap();
        assert_eq!(message.expires_at_ms(), Some(64_001));
    }
}
