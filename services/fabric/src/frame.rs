//! Encodes and decodes the frames in NATS messages. All numbers are big-endian.
//!
//! | kind | purpose | after version (1 byte), kind (1) and sender (8) |
//! |---|---|---|
//! | 1 batch | messages, or a heartbeat without messages, which has the next number | numbers (20), then each message with its length (4) |
//! | 2 part | a piece of a batch that is too long for one frame | numbers (20), index (2), count of parts (2), piece of the batch after its numbers |
//! | 3 hello | the pod is alive | flags (1): 1 asks for a Hello, 2 begins an epoch; epoch (4); name |
//! | 4 bye | the pod leaves | |
//! | 5 joined | the pod listens to these receivers | number of the announcement (8), receivers |
//! | 6 answer | the sender's next message to each of these receivers | number of the announcement (8), positions: receiver, generation (8), next number (8) |
//!
//! Numbers are a generation (8), the number of the first message (8) and the count of messages (4). A receiver is a
//! kind (1) with its ids (8 each).

use bytes::{Buf, BufMut, Bytes, TryGetError};

use crate::address::{PodId, To};

const VERSION: u8 = 1;
pub(crate) const HEAD: usize = 30;
/// Bytes before the piece in a part.
const PART_HEAD: usize = HEAD + 4;
/// Bytes before each message.
pub(crate) const LENGTH: usize = 4;
/// Receivers in one announcement, so that the answer fits into any NATS message.
pub(crate) const ANNOUNCED_MAX: usize = 1000;

const BATCH: u8 = 1;
const PART: u8 = 2;
const HELLO: u8 = 3;
const BYE: u8 = 4;
const JOINED: u8 = 5;
const ANSWER: u8 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Each generation starts again with message 0, and a later generation is greater. It is 0 for groups, whose messages have
    /// no numbers.
    pub(crate) generation: u64,
    pub(crate) first: u64,
    pub(crate) count: u32,
}

impl Numbers {
    pub(crate) fn next(&self) -> u64 {
        self.first.saturating_add(u64::from(self.count))
    }
}

/// The position of a sender at a receiver: every later message has this number or a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SenderPosition {
    pub(crate) to: To,
    pub(crate) generation: u64,
    pub(crate) next: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FabricFrame {
    pub(crate) from: PodId,
    pub(crate) content: FrameContent,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrameContent {
    Batch { numbers: Numbers, body: Bytes },
    Part { numbers: Numbers, index: u16, parts: u16, piece: Bytes },
    Hello { asks: bool, begins_epoch: bool, epoch: u32, name: String },
    Bye,
    Joined { announcement: u64, list: Vec<To> },
    Answer { announcement: u64, positions: Vec<SenderPosition> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    Version,
    Malformed,
}

impl From<TryGetError> for Bad {
    fn from(_: TryGetError) -> Self {
        Self::Malformed
    }
}

pub(crate) fn open() -> Vec<u8> {
    let mut batch = Vec::with_capacity(512);
    batch.resize(HEAD, 0);
    batch
}

pub(crate) fn add(batch: &mut Vec<u8>, pieces: &[&[u8]], length: usize) {
    batch.reserve(LENGTH + length);
    batch.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    for piece in pieces {
        batch.extend_from_slice(piece);
    }
}

/// Fills in the head of the batch, which was not known when the batch was opened.
pub(crate) fn close(mut batch: Vec<u8>, from: PodId, numbers: Numbers) -> Bytes {
    head(&mut &mut batch[..HEAD], BATCH, from, numbers);
    batch.into()
}

pub(crate) fn heartbeat(from: PodId, generation: u64, next: u64) -> Bytes {
    let mut frame = Vec::with_capacity(HEAD);
    head(&mut frame, BATCH, from, Numbers { generation, first: next, count: 0 });
    frame.into()
}

/// Cuts the body of a batch for frames of at most `bytes_max` bytes, or longer ones if there would be more than 65,535. Returns the
/// bytes of a piece and the number of pieces.
pub(crate) fn cut(batch: &[u8], bytes_max: usize) -> (usize, u16) {
    let body = batch.len() - HEAD;
    let room = bytes_max.saturating_sub(PART_HEAD).max(body / usize::from(u16::MAX) + 1);
    (room, u16::try_from(body.div_ceil(room)).unwrap_or(u16::MAX))
}

pub(crate) fn part(from: PodId, numbers: Numbers, (index, parts): (u16, u16), piece: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(PART_HEAD + piece.len());
    head(&mut frame, PART, from, numbers);
    frame.put_u16(index);
    frame.put_u16(parts);
    frame.extend_from_slice(piece);
    frame.into()
}

/// With `asks`, the others must answer with a Hello. With `begins_epoch`, the receivers forget what they know of this
/// sender's numbers.
pub(crate) fn hello(from: PodId, asks: bool, begins_epoch: bool, epoch: u32, name: &str) -> Bytes {
    let mut frame = start(HELLO, from, 5 + name.len());
    frame.put_u8(u8::from(asks) | u8::from(begins_epoch) << 1);
    frame.put_u32(epoch);
    frame.extend_from_slice(name.as_bytes());
    frame.into()
}

pub(crate) fn bye(from: PodId) -> Bytes {
    start(BYE, from, 0).into()
}

pub(crate) fn joined(from: PodId, announcement: u64, list: &[To]) -> Bytes {
    let mut frame = start(JOINED, from, 8 + 9 * list.len());
    frame.put_u64(announcement);
    list.iter().for_each(|to| put_to(&mut frame, *to));
    frame.into()
}

pub(crate) fn answer(from: PodId, announcement: u64, positions: &[SenderPosition]) -> Bytes {
    let mut frame = start(ANSWER, from, 8 + 25 * positions.len());
    frame.put_u64(announcement);
    for position in positions {
        put_to(&mut frame, position.to);
        frame.put_u64(position.generation);
        frame.put_u64(position.next);
    }
    frame.into()
}

pub(crate) fn decode(mut bytes: Bytes) -> Result<FabricFrame, Bad> {
    if bytes.try_get_u8()? != VERSION {
        return Err(Bad::Version);
    }
    let kind = bytes.try_get_u8()?;
    let from = PodId(bytes.try_get_u64()?);
    let content = match kind {
        BATCH => {
            let numbers = get_numbers(&mut bytes)?;
            check_body(&bytes, numbers.count)?;
            FrameContent::Batch { numbers, body: bytes }
        }
        PART => {
            let numbers = get_numbers(&mut bytes)?;
            let (index, parts) = (bytes.try_get_u16()?, bytes.try_get_u16()?);
            FrameContent::Part { numbers, index, parts, piece: bytes }
        }
        HELLO => {
            let (flags, epoch) = (bytes.try_get_u8()?, bytes.try_get_u32()?);
            let name = std::str::from_utf8(&bytes).map_err(|_| Bad::Malformed)?.to_owned();
            FrameContent::Hello { asks: flags & 1 != 0, begins_epoch: flags & 2 != 0, epoch, name }
        }
        BYE => FrameContent::Bye,
        JOINED => {
            let announcement = bytes.try_get_u64()?;
            FrameContent::Joined { announcement, list: get_all(&mut bytes, get_to)? }
        }
        ANSWER => {
            let announcement = bytes.try_get_u64()?;
            FrameContent::Answer { announcement, positions: get_all(&mut bytes, get_position)? }
        }
        _ => return Err(Bad::Malformed),
    };
    Ok(FabricFrame { from, content })
}

/// Checks that encoding a decoded frame and decoding it again gives the same frame.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn round_trip(bytes: &[u8]) {
    let Ok(frame) = decode(Bytes::copy_from_slice(bytes)) else { return };
    let from = frame.from;
    let written = match &frame.content {
        FrameContent::Batch { numbers, body } => {
            let mut batch = open();
            batch.extend_from_slice(body);
            close(batch, from, *numbers)
        }
        FrameContent::Part { numbers, index, parts, piece } => part(from, *numbers, (*index, *parts), piece),
        FrameContent::Hello { asks, begins_epoch, epoch, name } => {
            hello(from, *asks, *begins_epoch, *epoch, name)
        }
        FrameContent::Bye => bye(from),
        FrameContent::Joined { announcement, list } => joined(from, *announcement, list),
        FrameContent::Answer { announcement, positions } => answer(from, *announcement, positions),
    };
    assert_eq!(decode(written), Ok(frame));
}

pub(crate) fn check_body(mut body: &[u8], count: u32) -> Result<(), Bad> {
    for _ in 0..count {
        let length = usize::try_from(body.try_get_u32()?).map_err(|_| Bad::Malformed)?;
        body = body.get(length..).ok_or(Bad::Malformed)?;
    }
    if body.is_empty() { Ok(()) } else { Err(Bad::Malformed) }
}

fn start(kind: u8, from: PodId, room: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(10 + room);
    prefix(&mut frame, kind, from);
    frame
}

fn prefix(frame: &mut impl BufMut, kind: u8, from: PodId) {
    frame.put_u8(VERSION);
    frame.put_u8(kind);
    frame.put_u64(from.0);
}

fn head(frame: &mut impl BufMut, kind: u8, from: PodId, numbers: Numbers) {
    prefix(frame, kind, from);
    frame.put_u64(numbers.generation);
    frame.put_u64(numbers.first);
    frame.put_u32(numbers.count);
}

fn get_numbers(bytes: &mut Bytes) -> Result<Numbers, Bad> {
    Ok(Numbers { generation: bytes.try_get_u64()?, first: bytes.try_get_u64()?, count: bytes.try_get_u32()? })
}

fn put_to(frame: &mut Vec<u8>, to: To) {
    match to {
        To::Broker(broker) => {
            frame.put_u8(1);
            frame.put_u64(broker);
        }
        To::Group { broker, group } => {
            frame.put_u8(2);
            frame.put_u64(broker);
            frame.put_u64(group);
        }
        To::Pod(pod) => {
            frame.put_u8(3);
            frame.put_u64(pod.0);
        }
        To::Pods => frame.put_u8(4),
        To::BrokerOnPod { pod, broker } => {
            frame.put_u8(5);
            frame.put_u64(pod.0);
            frame.put_u64(broker);
        }
    }
}

fn get_to(bytes: &mut Bytes) -> Result<To, Bad> {
    Ok(match bytes.try_get_u8()? {
        1 => To::Broker(bytes.try_get_u64()?),
        2 => To::Group { broker: bytes.try_get_u64()?, group: bytes.try_get_u64()? },
        3 => To::Pod(PodId(bytes.try_get_u64()?)),
        4 => To::Pods,
        5 => To::BrokerOnPod { pod: PodId(bytes.try_get_u64()?), broker: bytes.try_get_u64()? },
        _ => return Err(Bad::Malformed),
    })
}

fn get_position(bytes: &mut Bytes) -> Result<SenderPosition, Bad> {
    Ok(SenderPosition { to: get_to(bytes)?, generation: bytes.try_get_u64()?, next: bytes.try_get_u64()? })
}

fn get_all<T>(bytes: &mut Bytes, get: fn(&mut Bytes) -> Result<T, Bad>) -> Result<Vec<T>, Bad> {
    let mut all = Vec::new();
    while bytes.has_remaining() {
        all.push(get(bytes)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: PodId = PodId(7);
    const NUMBERS: Numbers = Numbers { generation: 3, first: 100, count: 2 };

    fn batch() -> Bytes {
        let mut batch = open();
        add(&mut batch, &[b"he", b"llo"], 5);
        add(&mut batch, &[], 0);
        close(batch, POD, NUMBERS)
    }

    fn parts_of(batch: &Bytes, bytes_max: usize) -> impl Iterator<Item = Bytes> {
        let (room, parts) = cut(batch, bytes_max);
        let pieces = batch[HEAD..].chunks(room).zip(0..);
        pieces.map(move |(piece, index)| part(POD, NUMBERS, (index, parts), piece))
    }

    #[test]
    fn each_kind_of_frame_is_written_and_read_again() {
        let to = To::Broker(9);
        let frames = [
            batch(),
            heartbeat(POD, 1, 2),
            hello(POD, true, false, 3, "pod"),
            bye(POD),
            joined(POD, 4, &[to]),
        ];
        for frame in frames.into_iter().chain(parts_of(&batch(), PART_HEAD + 4)) {
            round_trip(&frame);
        }
    }

    #[test]
    fn a_batch_comes_back() {
        let frame = decode(batch()).unwrap();
        let body = Bytes::from_static(b"\0\0\0\x05hello\0\0\0\0");
        assert_eq!(frame, FabricFrame { from: POD, content: FrameContent::Batch { numbers: NUMBERS, body } });
    }

    #[test]
    fn parts_join_to_the_body_of_the_batch() {
        let batch = batch();
        for bytes_max in [1, PART_HEAD + 1, PART_HEAD + 4, 1000] {
            let mut joined = Vec::new();
            let mut count = 0;
            for (expected, frame) in parts_of(&batch, bytes_max).enumerate() {
                let FrameContent::Part { numbers, index, parts, piece } = decode(frame).unwrap().content
                else {
                    panic!("not a part");
                };
                assert_eq!((numbers, usize::from(index)), (NUMBERS, expected));
                count = parts;
                joined.extend_from_slice(&piece);
                assert!(index < parts);
            }
            assert_eq!(joined, batch[HEAD..], "{bytes_max} bytes, {count} parts");
        }
    }

    #[test]
    fn control_frames_decode_to_what_was_encoded() {
        let at = To::BrokerOnPod { pod: PodId(4), broker: 5 };
        let list = vec![To::Broker(1), To::Group { broker: 2, group: 3 }, To::Pod(PodId(4)), To::Pods, at];
        let positions: Vec<_> =
            list.iter().map(|to| SenderPosition { to: *to, generation: 5, next: u64::MAX }).collect();
        for (frame, content) in [
            (
                hello(POD, true, false, 8, "pod-é"),
                FrameContent::Hello { asks: true, begins_epoch: false, epoch: 8, name: "pod-é".into() },
            ),
            (bye(POD), FrameContent::Bye),
            (joined(POD, 9, &list), FrameContent::Joined { announcement: 9, list }),
            (answer(POD, 9, &positions), FrameContent::Answer { announcement: 9, positions }),
            (
                heartbeat(POD, 1, 50),
                FrameContent::Batch {
                    numbers: Numbers { generation: 1, first: 50, count: 0 },
                    body: Bytes::new(),
                },
            ),
        ] {
            assert_eq!(decode(frame), Ok(FabricFrame { from: POD, content }));
        }
    }

    #[test]
    fn nothing_that_is_cut_or_changed_panics() {
        let whole = [batch(), hello(POD, false, true, 0, "x"), joined(POD, 1, &[To::Broker(1), To::Pods])];
        for frame in whole {
            for end in 0..frame.len() {
                let _ = decode(frame.slice(..end));
                let mut changed = frame.to_vec();
                changed[end] ^= 0xff;
                let _ = decode(changed.into());
            }
        }
        assert_eq!(decode(Bytes::from_static(&[2, 1])), Err(Bad::Version));
        assert_eq!(decode(batch().slice(..HEAD + 3)), Err(Bad::Malformed));
    }
}
