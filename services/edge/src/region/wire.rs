//! Encoding of the notices between pods. The first byte is the kind; numbers are big-endian.
//!
//! | byte | notice | sent to | fields |
//! |---|---|---|---|
//! | 1 | a message | at | as in a stream, see [`crate::encoding::record`] |
//! | 2 | a run | at | 1: protocol 5.0 or not; 4: number of messages; topic; PUBLISH packets |
//! | 3 | committed to the streams of a topic | at | the topic |
//! | 4 | members of a shared subscription on this pod | at | 8: broker; 2: number; share name; filter |
//! | 5 | all members on this pod follow | at | 8: broker |
//! | 6 | request for the members | broker, pod, at | 8: broker |
//! | 7 | a message for a member | at | 8: broker; 1: how often it was passed on; share name; filter; the message as in 1 |
//! | 8 | a session is wanted: read the notices in the store | pod | |
//! | 9 | a committed retained message | at | 12: its position; the message as in 1 |
//! | 10 | a shared subscription has unclaimed messages | broker | 8: stream |
//! | 11 | digest of the filters on this pod | at | 8: number; 1: 0 unchanged since that number, 1 everything, 2 this digest, see [`millrace_router::Digest`] |
//! | 12 | new filters on this pod | at | 8: number, one higher than before; 16 each, see [`millrace_router::Code`] |
//! | 13 | request for a digest | pod, pods | 8: broker; 8: number of the last known one, or 0 |
//! | 14 | this pod does not have the broker | pod | 8: broker |
//! | 15 | confirmation of announcements | at | 8: number of the last one |
//! | 16 | as 3, with the message | broker | 12: its position; 8: the publisher's connection, 0 for none; the message as in 1 |
//! | 17 | request for connected clients, see [`crate::clients::Question`] | pods | 8: number; 8: broker; JSON |
//! | 18 | connected clients; empty: too many requests | pod | 8: number; JSON |
//! | 19 | trace of the message that follows | as the message | 8: [`check`] of it; 16: trace; 8: span of the publish; 8: time of sending, nanoseconds since 1970 |
//! | 20 | time of sending of what follows | at | 8: nanoseconds since 1970 |
//! | 21 | report of a client's trace, see [`crate::client_traces::TraceReport`] | pod | 8: number of the trace; JSON |
//! | 23 | a topic's retained message was removed without a message | at | 12: the position of the removal; the topic |
//!
//! Earlier builds send 22, which is 23 without the position. "At" addresses a broker on one pod, so the broker is not
//! repeated. Texts have their length before them, in two bytes, except the last text of a row.

use millrace_fabric::{Fabric, PodId, Sent, To};
use millrace_session::StoredPosition;

const CHECKED_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodNotice<'b> {
    Message(&'b [u8]),
    Run { is_v5: bool, count: u32, topic: &'b str, bytes: &'b [u8] },
    Grown(&'b str),
    Committed { position: StoredPosition, sender: u64, entry: &'b [u8] },
    Members { broker: u64, count: u16, name: &'b str, filter: &'b str },
    AllMembers { broker: u64 },
    AskMembers { broker: u64 },
    Shared { broker: u64, hops: u8, name: &'b str, filter: &'b str, entry: &'b [u8] },
    Notices,
    Retained { position: StoredPosition, entry: &'b [u8] },
    Unclaimed { stream: u64 },
    Digest { version: u64, says: u8, digest: &'b [u8] },
    Added { version: u64, codes: &'b [u8] },
    AskDigest { broker: u64, known: u64 },
    NoBroker { broker: u64 },
    Confirmed { version: u64 },
    AskClients { number: u64, broker: u64, question: &'b [u8] },
    Clients { number: u64, answer: &'b [u8] },
    Traced { check: u64, trace_id: [u8; 16], span_id: [u8; 8], sent_ns: u64 },
    Sent { sent_ns: u64 },
    ClientTrace { number: u64, report: &'b [u8] },
    Cleared { at: StoredPosition, topic: &'b str },
}

impl<'b> PodNotice<'b> {
    /// The fabric counts a notice that cannot be sent, and announces the gap to its receivers.
    pub(super) fn send(&self, fabric: &Fabric, to: To) {
        self.send_each(fabric, std::iter::once(to));
    }

    /// Returns false if the fabric drops the notice.
    pub(super) fn try_send(&self, fabric: &Fabric, to: To) -> bool {
        let mut head = Vec::with_capacity(64);
        let body = self.encode(&mut head);
        !matches!(fabric.send(to, &[&head, body]), Sent::Dropped(_))
    }

    pub(super) fn send_at(&self, fabric: &Fabric, broker: u64, pods: &[PodId]) {
        self.send_each(fabric, pods.iter().map(|pod| To::BrokerOnPod { pod: *pod, broker }));
    }

    fn send_each(&self, fabric: &Fabric, receivers: impl Iterator<Item = To>) {
        let mut head = Vec::with_capacity(64);
        let body = self.encode(&mut head);
        for to in receivers {
            let _ = fabric.send(to, &[&head, body]);
        }
    }

    /// Writes the fixed fields to `head`, and returns the rest.
    fn encode(&self, head: &mut Vec<u8>) -> &'b [u8] {
        match *self {
            Self::Message(entry) => {
                head.push(1);
                entry
            }
            Self::Run { is_v5, count, topic, bytes } => {
                head.extend_from_slice(&[2, is_v5.into()]);
                head.extend_from_slice(&count.to_be_bytes());
                put_text(head, topic);
                bytes
            }
            Self::Grown(topic) => {
                head.push(3);
                topic.as_bytes()
            }
            Self::Cleared { at, topic } => put_position(head, 23, at, topic.as_bytes()),
            Self::Members { broker, count, name, filter } => {
                head.push(4);
                head.extend_from_slice(&broker.to_be_bytes());
                head.extend_from_slice(&count.to_be_bytes());
                put_text(head, name);
                filter.as_bytes()
            }
            Self::AllMembers { broker } => {
                head.push(5);
                head.extend_from_slice(&broker.to_be_bytes());
                &[]
            }
            Self::AskMembers { broker } => {
                head.push(6);
                head.extend_from_slice(&broker.to_be_bytes());
                &[]
            }
            Self::Shared { broker, hops, name, filter, entry } => {
                head.push(7);
                head.extend_from_slice(&broker.to_be_bytes());
                head.push(hops);
                put_text(head, name);
                put_text(head, filter);
                entry
            }
            Self::Notices => {
                head.push(8);
                &[]
            }
            Self::Retained { position, entry } => put_position(head, 9, position, entry),
            Self::Committed { position, sender, entry } => {
                head.push(16);
                head.extend_from_slice(&position);
                head.extend_from_slice(&sender.to_be_bytes());
                entry
            }
            Self::Unclaimed { stream } => {
                head.push(10);
                head.extend_from_slice(&stream.to_be_bytes());
                &[]
            }
            Self::Digest { version, says, digest } => {
                head.push(11);
                head.extend_from_slice(&version.to_be_bytes());
                head.push(says);
                digest
            }
            Self::Added { version, codes } => {
                head.push(12);
                head.extend_from_slice(&version.to_be_bytes());
                codes
            }
            Self::AskDigest { broker, known } => {
                head.push(13);
                head.extend_from_slice(&broker.to_be_bytes());
                head.extend_from_slice(&known.to_be_bytes());
                &[]
            }
            Self::NoBroker { broker } => {
                head.push(14);
                head.extend_from_slice(&broker.to_be_bytes());
                &[]
            }
            Self::Confirmed { version } => {
                head.push(15);
                head.extend_from_slice(&version.to_be_bytes());
                &[]
            }
            Self::AskClients { number, broker, question } => {
                head.push(17);
                head.extend_from_slice(&number.to_be_bytes());
                head.extend_from_slice(&broker.to_be_bytes());
                question
            }
            Self::Clients { number, answer } => {
                head.push(18);
                head.extend_from_slice(&number.to_be_bytes());
                answer
            }
            Self::ClientTrace { number, report } => {
                head.push(21);
                head.extend_from_slice(&number.to_be_bytes());
                report
            }
            Self::Traced { check, trace_id, span_id, sent_ns } => {
                head.push(19);
                head.extend_from_slice(&check.to_be_bytes());
                head.extend_from_slice(&trace_id);
                head.extend_from_slice(&span_id);
                head.extend_from_slice(&sent_ns.to_be_bytes());
                &[]
            }
            Self::Sent { sent_ns } => {
                head.push(20);
                head.extend_from_slice(&sent_ns.to_be_bytes());
                &[]
            }
        }
    }

    /// `None`: the notice is of a newer version.
    pub(super) fn decode(bytes: &'b [u8]) -> Option<Self> {
        let (kind, mut rest) = bytes.split_first()?;
        Some(match kind {
            1 => Self::Message(rest),
            2 => {
                let [is_v5] = take(&mut rest)?;
                let count = u32::from_be_bytes(take(&mut rest)?);
                Self::Run { is_v5: is_v5 == 1, count, topic: text(&mut rest)?, bytes: rest }
            }
            3 => Self::Grown(std::str::from_utf8(rest).ok()?),
            4 => {
                let broker = u64::from_be_bytes(take(&mut rest)?);
                let count = u16::from_be_bytes(take(&mut rest)?);
                let name = text(&mut rest)?;
                Self::Members { broker, count, name, filter: std::str::from_utf8(rest).ok()? }
            }
            5 => Self::AllMembers { broker: u64::from_be_bytes(take(&mut rest)?) },
            6 => Self::AskMembers { broker: u64::from_be_bytes(take(&mut rest)?) },
            7 => {
                let broker = u64::from_be_bytes(take(&mut rest)?);
                let [hops] = take(&mut rest)?;
                let (name, filter) = (text(&mut rest)?, text(&mut rest)?);
                Self::Shared { broker, hops, name, filter, entry: rest }
            }
            8 => Self::Notices,
            9 => Self::Retained { position: take(&mut rest)?, entry: rest },
            16 => {
                let (position, sender) = (take(&mut rest)?, u64::from_be_bytes(take(&mut rest)?));
                Self::Committed { position, sender, entry: rest }
            }
            10 => Self::Unclaimed { stream: u64::from_be_bytes(take(&mut rest)?) },
            11 => {
                let version = u64::from_be_bytes(take(&mut rest)?);
                let [says] = take(&mut rest)?;
                Self::Digest { version, says, digest: rest }
            }
            12 => Self::Added { version: u64::from_be_bytes(take(&mut rest)?), codes: rest },
            13 => Self::AskDigest { broker: number(&mut rest)?, known: number(&mut rest)? },
            14 => Self::NoBroker { broker: u64::from_be_bytes(take(&mut rest)?) },
            15 => Self::Confirmed { version: u64::from_be_bytes(take(&mut rest)?) },
            17 => {
                let number = u64::from_be_bytes(take(&mut rest)?);
                let broker = u64::from_be_bytes(take(&mut rest)?);
                Self::AskClients { number, broker, question: rest }
            }
            18 => Self::Clients { number: u64::from_be_bytes(take(&mut rest)?), answer: rest },
            19 => Self::Traced {
                check: u64::from_be_bytes(take(&mut rest)?),
                trace_id: take(&mut rest)?,
                span_id: take(&mut rest)?,
                sent_ns: u64::from_be_bytes(take(&mut rest)?),
            },
            20 => Self::Sent { sent_ns: u64::from_be_bytes(take(&mut rest)?) },
            21 => Self::ClientTrace { number: u64::from_be_bytes(take(&mut rest)?), report: rest },
            23 => Self::Cleared { at: take(&mut rest)?, topic: std::str::from_utf8(rest).ok()? },
            _ => return None,
        })
    }
}

/// Identifies a traced message: FNV-1a of its first bytes and its length; pods of different builds must agree on it.
pub(super) fn check(entry: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    entry.iter().take(CHECKED_BYTES).fold(0xcbf2_9ce4_8422_2325 ^ entry.len() as u64, fold)
}

/// A topic or filter of MQTT is never longer than two bytes can express.
fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_position<'b>(head: &mut Vec<u8>, kind: u8, position: StoredPosition, rest: &'b [u8]) -> &'b [u8] {
    head.push(kind);
    head.extend_from_slice(&position);
    rest
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_be_bytes)
}

fn text<'b>(rest: &mut &'b [u8]) -> Option<&'b str> {
    let length = u16::from_be_bytes(take(rest)?);
    let (taken, after) = rest.split_at_checked(length.into())?;
    *rest = after;
    std::str::from_utf8(taken).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_as_it_went_and_a_piece_of_one_is_none_or_shorter() {
        let notes = [
            PodNotice::Message(b"entry"),
            PodNotice::Run { is_v5: true, count: 3, topic: "a/b", bytes: b"packets" },
            PodNotice::Grown("a/b"),
            PodNotice::Members { broker: 1 << 40, count: 7, name: "g", filter: "a/#" },
            PodNotice::AllMembers { broker: 3 },
            PodNotice::AskMembers { broker: 4 },
            PodNotice::Shared { broker: 5, hops: 2, name: "g", filter: "a/+", entry: b"entry" },
            PodNotice::Notices,
            PodNotice::Retained { position: [7; 12], entry: b"entry" },
            PodNotice::Unclaimed { stream: 1 << 47 },
            PodNotice::Committed { position: [7; 12], sender: 9, entry: b"entry" },
            PodNotice::Digest { version: 1 << 40, says: 2, digest: b"digest" },
            PodNotice::Added { version: 1 << 41, codes: b"codes" },
            PodNotice::AskDigest { broker: 6, known: 7 },
            PodNotice::NoBroker { broker: 8 },
            PodNotice::Confirmed { version: 9 },
            PodNotice::AskClients { number: 10, broker: 11, question: b"{}" },
            PodNotice::Clients { number: 12, answer: b"{}" },
            PodNotice::Traced { check: 9, trace_id: [7; 16], span_id: [8; 8], sent_ns: 13 },
            PodNotice::Sent { sent_ns: 14 },
            PodNotice::ClientTrace { number: 14, report: b"{}" },
            PodNotice::Cleared { at: [7; 12], topic: "a/b" },
        ];
        for note in notes {
            let mut bytes = Vec::new();
            let body = note.encode(&mut bytes);
            bytes.extend_from_slice(body);
            assert_eq!(PodNotice::decode(&bytes), Some(note));
            for end in 0..bytes.len() {
                assert_ne!(PodNotice::decode(&bytes[..end]), Some(note));
            }
        }
        assert_eq!((PodNotice::decode(b""), PodNotice::decode(&[99])), (None, None));
    }
}
