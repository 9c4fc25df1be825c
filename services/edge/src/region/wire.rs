//! The notices between pods, as bytes. The first one says what follows; numbers are big-endian.
//!
//! | byte | what | to | then |
//! |---|---|---|---|
//! | 1 | a message | at | as in a stream, see [`crate::store::record`] |
//! | 2 | a run | at | 1: protocol 5.0 or not; 4: how many; topic; PUBLISH packets |
//! | 3 | committed to the streams of a topic | at | the topic |
//! | 4 | members of a shared subscription here | broker, pod | 8: broker; 2: how many; share name; filter |
//! | 5 | what follows are all members here | pod | 8: broker |
//! | 6 | which members are there? | broker, pod | 8: broker |
//! | 7 | a message for a member | pod | 8: broker; 1: hops; share name; filter; the message as above |
//! | 8 | a session is wanted: see the store | pod | |
//! | 9 | a retained message that is committed | at | 12: its place; the message as above |
//! | 10 | a shared subscription has messages that nobody has | broker | 8: stream |
//! | 11 | what may be wanted here | at | 8: number; 1: 0 as under that number before, 1 everything, 2 this digest, see [`millrace_router::Digest`] |
//! | 12 | filters that have come, of a number one higher | at | 8: number; 16 each, see [`millrace_router::Code`] |
//! | 13 | what may be wanted there? | pod, pods | 8: broker; 8: number of what is known, or 0 |
//! | 14 | this pod does not have it | pod | 8: broker |
//! | 15 | what was told up to this number is known here | at | 8: number |
//! | 16 | as 3, with the message | broker | 12: its place; 8: the publisher's connection, 0 for none; the message as above |
//! | 17 | who is connected? see [`crate::clients::Question`] | pods | 8: number; 8: broker; JSON |
//! | 18 | those who are, or nothing: too many ask | pod | 8: number; JSON |
//! | 19 | a message that comes is followed | as that | 8: [`check`] of it; 16: trace; 8: span of the publish; 8: when it was sent, nanoseconds since 1970 |
//!
//! "At" is a pod, about a broker: then the broker is known.
//! Texts but the last one of a row have their length before them, in two bytes.

use millrace_fabric::{Fabric, PodId, To};
use millrace_session::Place;

/// Bytes of a message that [`check`] looks at.
const CHECKED_BYTES: usize = 1024;

/// A notice from one pod to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note<'b> {
    Message(&'b [u8]),
    Run { is_v5: bool, count: u32, topic: &'b str, bytes: &'b [u8] },
    Grown(&'b str),
    Committed { place: Place, sender: u64, entry: &'b [u8] },
    Members { broker: u64, count: u16, name: &'b str, filter: &'b str },
    AllMembers { broker: u64 },
    AskMembers { broker: u64 },
    Shared { broker: u64, hops: u8, name: &'b str, filter: &'b str, entry: &'b [u8] },
    Notices,
    Retained { place: Place, entry: &'b [u8] },
    Waiting { stream: u64 },
    Digest { version: u64, says: u8, digest: &'b [u8] },
    Added { version: u64, codes: &'b [u8] },
    AskDigest { broker: u64, known: u64 },
    NoBroker { broker: u64 },
    Heard { version: u64 },
    AskClients { number: u64, broker: u64, question: &'b [u8] },
    Clients { number: u64, answer: &'b [u8] },
    Traced { check: u64, trace_id: [u8; 16], span_id: [u8; 8], sent_ns: u64 },
}

impl<'b> Note<'b> {
    /// Sends the notice. The fabric counts a notice that cannot be sent, and announces the gap to its receivers.
    pub(super) fn send(&self, fabric: &Fabric, to: To) {
        self.send_each(fabric, std::iter::once(to));
    }

    /// Sends it to pods that have a broker.
    pub(super) fn send_at(&self, fabric: &Fabric, broker: u64, pods: &[PodId]) {
        self.send_each(fabric, pods.iter().map(|pod| To::At { pod: *pod, broker }));
    }

    fn send_each(&self, fabric: &Fabric, receivers: impl Iterator<Item = To>) {
        let mut head = Vec::with_capacity(64);
        let body = self.encode(&mut head);
        for to in receivers {
            let _ = fabric.send(to, &[&head, body]);
        }
    }

    /// Its head, and what comes after that.
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
            Self::Retained { place, entry } => {
                head.push(9);
                head.extend_from_slice(&place);
                entry
            }
            Self::Committed { place, sender, entry } => {
                head.push(16);
                head.extend_from_slice(&place);
                head.extend_from_slice(&sender.to_be_bytes());
                entry
            }
            Self::Waiting { stream } => {
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
            Self::Heard { version } => {
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
            Self::Traced { check, trace_id, span_id, sent_ns } => {
                head.push(19);
                head.extend_from_slice(&check.to_be_bytes());
                head.extend_from_slice(&trace_id);
                head.extend_from_slice(&span_id);
                head.extend_from_slice(&sent_ns.to_be_bytes());
                &[]
            }
        }
    }

    /// `None` for what is of another version.
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
            9 => Self::Retained { place: take(&mut rest)?, entry: rest },
            16 => {
                let (place, sender) = (take(&mut rest)?, u64::from_be_bytes(take(&mut rest)?));
                Self::Committed { place, sender, entry: rest }
            }
            10 => Self::Waiting { stream: u64::from_be_bytes(take(&mut rest)?) },
            11 => {
                let version = u64::from_be_bytes(take(&mut rest)?);
                let [says] = take(&mut rest)?;
                Self::Digest { version, says, digest: rest }
            }
            12 => Self::Added { version: u64::from_be_bytes(take(&mut rest)?), codes: rest },
            13 => {
                let broker = u64::from_be_bytes(take(&mut rest)?);
                Self::AskDigest { broker, known: u64::from_be_bytes(take(&mut rest)?) }
            }
            14 => Self::NoBroker { broker: u64::from_be_bytes(take(&mut rest)?) },
            15 => Self::Heard { version: u64::from_be_bytes(take(&mut rest)?) },
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
            _ => return None,
        })
    }
}

/// Tells a message that is followed from others: FNV-1a of its first bytes and its length. Pods of different builds agree.
pub(super) fn check(entry: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    entry.iter().take(CHECKED_BYTES).fold(0xcbf2_9ce4_8422_2325 ^ entry.len() as u64, fold)
}

/// A topic or filter of MQTT is no longer than its length can say.
fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
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
            Note::Message(b"entry"),
            Note::Run { is_v5: true, count: 3, topic: "a/b", bytes: b"packets" },
            Note::Grown("a/b"),
            Note::Members { broker: 1 << 40, count: 7, name: "g", filter: "a/#" },
            Note::AllMembers { broker: 3 },
            Note::AskMembers { broker: 4 },
            Note::Shared { broker: 5, hops: 2, name: "g", filter: "a/+", entry: b"entry" },
            Note::Notices,
            Note::Retained { place: [7; 12], entry: b"entry" },
            Note::Waiting { stream: 1 << 47 },
            Note::Committed { place: [7; 12], sender: 9, entry: b"entry" },
            Note::Digest { version: 1 << 40, says: 2, digest: b"digest" },
            Note::Added { version: 1 << 41, codes: b"codes" },
            Note::AskDigest { broker: 6, known: 7 },
            Note::NoBroker { broker: 8 },
            Note::Heard { version: 9 },
            Note::AskClients { number: 10, broker: 11, question: b"{}" },
            Note::Clients { number: 12, answer: b"{}" },
            Note::Traced { check: 9, trace_id: [7; 16], span_id: [8; 8], sent_ns: 13 },
        ];
        for note in notes {
            let mut bytes = Vec::new();
            let body = note.encode(&mut bytes);
            bytes.extend_from_slice(body);
            assert_eq!(Note::decode(&bytes), Some(note));
            for end in 0..bytes.len() {
                assert_ne!(Note::decode(&bytes[..end]), Some(note));
            }
        }
        assert_eq!((Note::decode(b""), Note::decode(&[99])), (None, None));
    }
}
