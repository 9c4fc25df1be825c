//! Encodes and decodes the few MQTT 3.1.1 packets that the driver needs: no sockets, no clock, no
//! allocation per message.

pub(crate) const DISCONNECT: [u8; 2] = [0xE0, 0];
pub(crate) const CONNACK_BYTES: usize = 4;
/// Length of a SUBACK for one filter.
pub(crate) const SUBACK_BYTES: usize = 5;
pub(crate) const STAMP_BYTES: usize = 16;

/// Seconds: so long that no run sends a PINGREQ, and not 0 because some brokers refuse 0.
const KEEP_ALIVE_SECONDS: u16 = 3600;
const REMAINING_LENGTH_BYTES_MAX: usize = 4;

/// The flag in the first byte of a PUBLISH.
pub(crate) const RETAIN: u8 = 1;

pub(crate) const CONNACK: u8 = 2;
pub(crate) const PUBLISH: u8 = 3;
pub(crate) const PUBACK: u8 = 4;
pub(crate) const SUBACK: u8 = 9;

fn push_remaining_length(out: &mut Vec<u8>, mut length: usize) {
    loop {
        let low = (length & 0x7F) as u8;
        length >>= 7;
        if length == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

fn push_string(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
}

pub(crate) fn connect(client_id: &str, clean_session: bool) -> Vec<u8> {
    connect_as(client_id, clean_session, None)
}

pub(crate) fn connect_as(client_id: &str, clean_session: bool, user: Option<(&str, &str)>) -> Vec<u8> {
    let flags = u8::from(clean_session) << 1 | if user.is_some() { 0xC0 } else { 0 };
    let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 4, flags];
    body.extend_from_slice(&KEEP_ALIVE_SECONDS.to_be_bytes());
    push_string(&mut body, client_id);
    if let Some((user, password)) = user {
        push_string(&mut body, user);
        push_string(&mut body, password);
    }
    packet(0x10, &body)
}

pub(crate) fn subscribe(packet_id: u16, filter: &str, qos: u8) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    push_string(&mut body, filter);
    body.push(qos);
    packet(0x82, &body)
}

pub(crate) fn unsubscribe(packet_id: u16, filter: &str) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    push_string(&mut body, filter);
    packet(0xA2, &body)
}

pub(crate) fn puback(packet_id: u16) -> [u8; 4] {
    let [high, low] = packet_id.to_be_bytes();
    [0x40, 2, high, low]
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    push_remaining_length(&mut out, body.len());
    out.extend_from_slice(body);
    out
}

/// The begin of each payload, by which receivers check the order and measure the latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) publisher: u32,
    pub(crate) sequence: u32,
    /// Nanoseconds of the monotonic clock of this process, which must be sender and receiver.
    pub(crate) sent_ns: u64,
}

impl Stamp {
    /// `None` if the payload is too short.
    #[inline]
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let (head, _) = payload.split_first_chunk::<STAMP_BYTES>()?;
        let whole = u128::from_le_bytes(*head);
        Some(Self { publisher: whole as u32, sequence: (whole >> 32) as u32, sent_ns: (whole >> 64) as u64 })
    }

    #[inline]
    fn bytes(self) -> [u8; STAMP_BYTES] {
        let whole =
            u128::from(self.publisher) | u128::from(self.sequence) << 32 | u128::from(self.sent_ns) << 64;
        whole.to_le_bytes()
    }
}

/// An encoded PUBLISH: each message is a copy with its packet id and stamp patched in.
pub(crate) struct PublishTemplate {
    bytes: Vec<u8>,
    packet_id_at: Option<usize>,
    stamp_at: usize,
    publisher: u32,
}

impl PublishTemplate {
    /// Raises `payload_bytes` to at least [`STAMP_BYTES`].
    pub(crate) fn new(topic: &str, qos: u8, publisher: u32, payload_bytes: usize) -> Self {
        let mut body = Vec::new();
        push_string(&mut body, topic);
        let id_in_body = (qos > 0).then_some(body.len());
        if id_in_body.is_some() {
            body.extend_from_slice(&[0, 1]);
        }
        let stamp_in_body = body.len();
        body.resize(stamp_in_body + payload_bytes.max(STAMP_BYTES), b'x');
        let bytes = packet(PUBLISH << 4 | qos << 1, &body);
        let head = bytes.len() - body.len();
        Self {
            packet_id_at: id_in_body.map(|at| head + at),
            stamp_at: head + stamp_in_body,
            bytes,
            publisher,
        }
    }

    pub(crate) fn retained(mut self) -> Self {
        self.bytes[0] |= RETAIN;
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(crate) fn append(&self, out: &mut Vec<u8>, sequence: u32, packet_id: u16, sent_ns: u64) {
        let at = out.len();
        out.extend_from_slice(&self.bytes);
        let message = &mut out[at..];
        if let Some(id_at) = self.packet_id_at {
            message[id_at..id_at + 2].copy_from_slice(&packet_id.to_be_bytes());
        }
        let stamp = Stamp { publisher: self.publisher, sequence, sent_ns };
        message[self.stamp_at..self.stamp_at + STAMP_BYTES].copy_from_slice(&stamp.bytes());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) first: u8,
    pub(crate) body: &'a [u8],
    pub(crate) length: usize,
}

impl<'a> Frame<'a> {
    pub(crate) fn kind(&self) -> u8 {
        self.first >> 4
    }

    #[inline]
    pub(crate) fn publish(&self) -> Option<(u16, &'a [u8])> {
        let (topic_length, rest) = self.body.split_first_chunk::<2>()?;
        let rest = rest.get(usize::from(u16::from_be_bytes(*topic_length))..)?;
        if self.first & 0b110 == 0 {
            return Some((0, rest));
        }
        let (id, payload) = rest.split_first_chunk::<2>()?;
        Some((u16::from_be_bytes(*id), payload))
    }

    pub(crate) fn packet_id(&self) -> Option<u16> {
        self.body.first_chunk::<2>().map(|id| u16::from_be_bytes(*id))
    }
}

/// The broker's bytes are not MQTT, so the stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// `None` while the first packet is incomplete.
#[inline]
pub(crate) fn next_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
    let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
    let mut body_length = 0usize;
    for at in 0..REMAINING_LENGTH_BYTES_MAX {
        let Some(&byte) = rest.get(at) else { return Ok(None) };
        body_length |= usize::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            let length = 2 + at + body_length;
            return Ok(bytes.get(2 + at..length).map(|body| Frame { first, body, length }));
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_is_the_bytes_of_the_standard() {
        assert_eq!(
            connect("ab", true),
            [0x10, 14, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0x0E, 0x10, 0, 2, b'a', b'b']
        );
        assert_eq!(connect("ab", false)[9], 0);
        assert_eq!(
            connect_as("a", true, Some(("b", "cd")))[9..],
            [0xC2, 0x0E, 0x10, 0, 1, b'a', 0, 1, b'b', 0, 2, b'c', b'd']
        );
    }

    #[test]
    fn subscribe_is_the_bytes_of_the_standard() {
        assert_eq!(subscribe(0x0102, "a/b", 1), [0x82, 8, 1, 2, 0, 3, b'a', b'/', b'b', 1]);
    }

    #[test]
    fn unsubscribe_and_a_retained_publish_are_the_bytes_of_the_standard() {
        assert_eq!(unsubscribe(0x0102, "a/b"), [0xA2, 7, 1, 2, 0, 3, b'a', b'/', b'b']);
        let mut out = Vec::new();
        PublishTemplate::new("a", 1, 0, STAMP_BYTES).retained().append(&mut out, 0, 7, 0);
        assert_eq!(out[..7], [0x33, 21, 0, 1, b'a', 0, 7]);
    }

    #[test]
    fn puback_is_the_bytes_of_the_standard() {
        assert_eq!(puback(0x0A0B), [0x40, 2, 0x0A, 0x0B]);
    }

    #[test]
    fn remaining_length_grows_at_the_limits_of_the_standard() {
        let encodings: [(usize, &[u8]); 7] = [
            (0, &[0]),
            (127, &[0x7F]),
            (128, &[0x80, 1]),
            (16_383, &[0xFF, 0x7F]),
            (16_384, &[0x80, 0x80, 1]),
            (2_097_151, &[0xFF, 0xFF, 0x7F]),
            (268_435_455, &[0xFF, 0xFF, 0xFF, 0x7F]),
        ];
        for (length, expected) in encodings {
            let mut out = Vec::new();
            push_remaining_length(&mut out, length);
            assert_eq!(out, expected, "{length}");
        }
    }

    #[test]
    fn a_published_stamp_is_read_back() {
        for (qos, payload_bytes) in [(0, 100), (1, 100), (1, 3), (0, 40_000)] {
            let template = PublishTemplate::new("load/1", qos, 7, payload_bytes);
            let mut out = Vec::new();
            template.append(&mut out, 1, 11, 21);
            template.append(&mut out, u32::MAX, 12, u64::MAX);
            assert_eq!(out.len(), 2 * template.len());

            let first = next_frame(&out).unwrap().unwrap();
            assert_eq!((first.kind(), first.length), (PUBLISH, template.len()));
            let (id, payload) = first.publish().unwrap();
            assert_eq!(id, if qos == 0 { 0 } else { 11 });
            assert_eq!(payload.len(), payload_bytes.max(STAMP_BYTES));
            assert_eq!(Stamp::read(payload), Some(Stamp { publisher: 7, sequence: 1, sent_ns: 21 }));

            let (_, payload) = next_frame(&out[first.length..]).unwrap().unwrap().publish().unwrap();
            let last = Stamp { publisher: 7, sequence: u32::MAX, sent_ns: u64::MAX };
            assert_eq!(Stamp::read(payload), Some(last));
        }
    }

    #[test]
    fn a_cut_packet_is_waited_for_at_every_byte() {
        let whole = subscribe(1, &"x".repeat(200), 0);
        for cut in 0..whole.len() {
            assert_eq!(next_frame(&whole[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(next_frame(&whole).unwrap().unwrap().length, whole.len());
    }

    #[test]
    fn an_endless_remaining_length_is_refused() {
        assert_eq!(next_frame(&[0x30, 0x80, 0x80, 0x80, 0x80, 1]), Err(Malformed));
    }

    #[test]
    fn a_topic_longer_than_its_packet_is_no_publish() {
        let bytes = [0x30, 3, 0, 9, b'a'];
        assert_eq!(next_frame(&bytes).unwrap().unwrap().publish(), None);
    }
}
