//! Encodes MQTT 5.0 packets with every field that a hostile client wants to choose. No sockets, no
//! clock.

pub(super) const CONNACK: u8 = 2;
pub(super) const PUBLISH: u8 = 3;
pub(super) const PUBACK: u8 = 4;
pub(super) const PUBREC: u8 = 5;
pub(super) const SUBACK: u8 = 9;
pub(super) const UNSUBACK: u8 = 11;
pub(super) const PINGRESP: u8 = 13;
pub(super) const DISCONNECT: u8 = 14;
pub(super) const PUBACK_FIRST: u8 = 0x40;
pub(super) const PUBREL_FIRST: u8 = 0x62;
pub(super) const DISCONNECT_NORMALLY: [u8; 2] = [0xE0, 0];

const SESSION_EXPIRY: u8 = 0x11;
const RECEIVE_MAXIMUM: u8 = 0x21;
const TOPIC_ALIAS: u8 = 0x23;
const USER_PROPERTY: u8 = 0x26;
const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
const WILL_DELAY: u8 = 0x18;

#[derive(Clone, Default)]
pub(super) struct Connect {
    pub(super) client_id: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) clean: bool,
    /// Seconds; 0 turns the keep alive off.
    pub(super) keep_alive_s: u16,
    pub(super) properties: Vec<u8>,
    pub(super) will: Option<Will>,
}

#[derive(Clone, Default)]
pub(super) struct Will {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
    pub(super) qos: u8,
    pub(super) retain: bool,
    pub(super) delay_s: u32,
}

impl Connect {
    /// The user name selects the broker.
    pub(super) fn new(broker: &str, client_id: &str) -> Self {
        // A user name that ends after the broker's name and a slash makes the client anonymous.
        let (user, client_id) = (Some(format!("{broker}/")), client_id.to_owned());
        Self { client_id, user, clean: true, ..Self::default() }
    }

    pub(super) fn persistent(mut self, expiry_s: u32) -> Self {
        self.clean = false;
        self.properties.push(SESSION_EXPIRY);
        self.properties.extend(expiry_s.to_be_bytes());
        self
    }

    pub(super) fn receive_maximum(mut self, messages: u16) -> Self {
        self.properties.push(RECEIVE_MAXIMUM);
        self.properties.extend(messages.to_be_bytes());
        self
    }

    pub(super) fn will(mut self, will: Will) -> Self {
        self.will = Some(will);
        self
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut flags = u8::from(self.clean) << 1;
        flags |= if self.user.is_some() { 0x80 } else { 0 };
        flags |= if self.password.is_some() { 0x40 } else { 0 };
        flags |= self.will.as_ref().map_or(0, |will| 4 | will.qos << 3 | u8::from(will.retain) << 5);
        let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 5, flags];
        body.extend(self.keep_alive_s.to_be_bytes());
        push_properties(&mut body, &self.properties);
        push_text(&mut body, &self.client_id);
        if let Some(will) = &self.will {
            let delay = will.delay_s.to_be_bytes();
            push_properties(&mut body, &[&[WILL_DELAY][..], &delay].concat());
            push_text(&mut body, &will.topic);
            push_bytes(&mut body, &will.payload);
        }
        for text in [&self.user, &self.password].into_iter().flatten() {
            push_text(&mut body, text);
        }
        packet(0x10, &body)
    }
}

/// Identifier 0 sends none.
pub(super) fn subscribe<F: AsRef<str>>(packet_id: u16, filters: &[F], qos: u8, identifier: u32) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    let mut properties = Vec::new();
    if identifier > 0 {
        properties.push(SUBSCRIPTION_IDENTIFIER);
        push_length(&mut properties, identifier as usize);
    }
    push_properties(&mut body, &properties);
    for filter in filters {
        push_text(&mut body, filter.as_ref());
        body.push(qos);
    }
    packet(0x82, &body)
}

pub(super) fn unsubscribe<F: AsRef<str>>(packet_id: u16, filters: &[F]) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.push(0);
    filters.iter().for_each(|filter| push_text(&mut body, filter.as_ref()));
    packet(0xA2, &body)
}

/// The packet id is only written with QoS 1 and 2.
#[derive(Clone, Copy, Default)]
pub(super) struct Publish<'a> {
    pub(super) topic: &'a str,
    pub(super) payload: &'a [u8],
    pub(super) qos: u8,
    pub(super) retain: bool,
    pub(super) packet_id: u16,
    pub(super) properties: &'a [u8],
}

impl Publish<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.topic.len() + self.payload.len() + self.properties.len() + 16);
        push_text(&mut body, self.topic);
        if self.qos > 0 {
            body.extend(self.packet_id.to_be_bytes());
        }
        push_properties(&mut body, self.properties);
        body.extend_from_slice(self.payload);
        packet(0x30 | self.qos << 1 | u8::from(self.retain), &body)
    }
}

pub(super) fn topic_alias(alias: u16) -> Vec<u8> {
    [&[TOPIC_ALIAS][..], &alias.to_be_bytes()].concat()
}

/// The server refuses a packet with more.
pub(super) const USER_PROPERTIES_MAX: usize = 10_000;

/// Each has `bytes` bytes, at least 5.
pub(super) fn user_properties(count: usize, bytes: usize) -> Vec<u8> {
    let value = "v".repeat(bytes - 5);
    let mut one = vec![USER_PROPERTY];
    push_text(&mut one, "");
    push_text(&mut one, &value);
    one.repeat(count)
}

/// A PUBACK, PUBREC, PUBREL or PUBCOMP; `first` is its first byte.
pub(super) fn acknowledgement(first: u8, packet_id: u16) -> [u8; 4] {
    let [high, low] = packet_id.to_be_bytes();
    [first, 2, high, low]
}

pub(super) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 5);
    out.push(first);
    push_length(&mut out, body.len());
    out.extend_from_slice(body);
    out
}

fn push_length(out: &mut Vec<u8>, mut length: usize) {
    loop {
        let low = (length & 0x7F) as u8;
        length >>= 7;
        out.push(if length == 0 { low } else { low | 0x80 });
        if length == 0 {
            return;
        }
    }
}

fn push_properties(out: &mut Vec<u8>, properties: &[u8]) {
    push_length(out, properties.len());
    out.extend_from_slice(properties);
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    push_bytes(out, text.as_bytes());
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(&bytes[..bytes.len().min(usize::from(u16::MAX))]);
}

pub(super) struct Received<'a> {
    /// 0 with QoS 0.
    pub(super) packet_id: u16,
    pub(super) payload: &'a [u8],
}

pub(super) fn received(first: u8, body: &[u8]) -> Option<Received<'_>> {
    let (length, rest) = body.split_first_chunk::<2>()?;
    let mut rest = rest.get(usize::from(u16::from_be_bytes(*length))..)?;
    let mut packet_id = 0;
    if first & 0b110 != 0 {
        let (id, behind) = rest.split_first_chunk::<2>()?;
        (packet_id, rest) = (u16::from_be_bytes(*id), behind);
    }
    let (mut length, mut at) = (0usize, 0);
    loop {
        let byte = *rest.get(at)?;
        length |= usize::from(byte & 0x7F) << (7 * at);
        at += 1;
        if byte & 0x80 == 0 || at == 4 {
            break;
        }
    }
    Some(Received { packet_id, payload: rest.get(at + length..)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_is_the_bytes_of_the_standard() {
        let connect = Connect::new("b", "c").receive_maximum(1);
        let expected = [
            &[0x10, 21, 0, 4, b'M', b'Q', b'T', b'T', 5, 0x82, 0, 0][..],
            &[3, 0x21, 0, 1, 0, 1, b'c', 0, 2, b'b', b'/'],
        ];
        assert_eq!(connect.bytes(), expected.concat());
        let will = Will { topic: "w".into(), qos: 1, retain: true, ..Will::default() };
        assert_eq!(connect.will(will).bytes()[9], 0x82 | 4 | 8 | 32);
    }

    #[test]
    fn filters_and_identifiers_are_the_bytes_of_the_standard() {
        assert_eq!(subscribe(1, &["#"], 2, 300), [0x82, 10, 0, 1, 3, 0x0B, 0xAC, 2, 0, 1, b'#', 2]);
        assert_eq!(unsubscribe(1, &["a", "b"]), [0xA2, 9, 0, 1, 0, 0, 1, b'a', 0, 1, b'b']);
    }

    #[test]
    fn a_publish_is_read_as_it_was_written() {
        let properties = user_properties(40, 5);
        let publish = Publish {
            topic: "t",
            payload: b"p",
            qos: 1,
            packet_id: 7,
            properties: &properties,
            ..Publish::default()
        };
        let bytes = publish.bytes();
        let read = received(bytes[0], &bytes[3..]).unwrap();
        assert_eq!((read.packet_id, read.payload), (7, &b"p"[..]));
    }
}
