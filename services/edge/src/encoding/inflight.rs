//! The stored form of a message in flight to a client, under its packet id.
//!
//! A message in a stream is referred to by its position, and is the session's alone, even if a shared subscription has given it
//! the message. A message in no stream (a retained message for a new subscription) is stored whole.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | 1: published, in a stream; 2: PUBREC received; 3: published, the message follows. 128 more: the packet ids of the session are not in the order of sending |
//! | 12 | position in the streams; zeros for none. With 2 the row ends here |
//! | 1 | QoS in bits 0 and 1, RETAIN in bit 2, never sent in bit 3 |
//! | 1 | number of subscription identifiers, then 4 bytes for each, little-endian |
//! | | with 3: the message as in a stream |

use std::sync::Arc;

use bytes::Bytes;
use millrace_mqtt::QoS;
use millrace_session::{InFlight, Message, OutboxEntry, StoredPosition};
use smallvec::SmallVec;

use super::record;
use crate::clock::Clock;

const IN_STREAM: u8 = 1;
const RELEASED: u8 = 2;
const WHOLE: u8 = 3;
const UNORDERED_IDS: u8 = 128;
const RETAIN: u8 = 4;
const UNSENT: u8 = 8;

#[derive(Clone, Debug)]
pub(crate) enum InFlightRow {
    InStream {
        position: StoredPosition,
        qos: QoS,
        retain: bool,
        identifiers: SmallVec<[u32; 1]>,
    },
    Released(Option<StoredPosition>),
    Whole(OutboxEntry),
    /// Whole, and never sent to the client: a retained message for a new subscription.
    Unsent(OutboxEntry),
}

/// `unordered_ids`: the messages were not sent in the order of their packet ids.
pub(crate) fn encode(in_flight: &InFlight, unordered_ids: bool, clock: &Clock) -> Vec<u8> {
    let flag = if unordered_ids { UNORDERED_IDS } else { 0 };
    let entry = match in_flight {
        InFlight::Released(position) => {
            let mut out = vec![RELEASED | flag];
            out.extend_from_slice(&position.unwrap_or_default());
            return out;
        }
        InFlight::Published(entry) | InFlight::Unsent(entry) => entry,
    };
    let unsent = if matches!(in_flight, InFlight::Unsent(_)) { UNSENT } else { 0 };
    // Replayed messages are stored whole, because the streams of the session need not have them.
    let position = entry.message.position().filter(|_| !entry.replay);
    let mut out = vec![flag | if position.is_some() { IN_STREAM } else { WHOLE }];
    out.extend_from_slice(&position.unwrap_or_default());
    out.push(entry.qos as u8 | unsent | if entry.retain { RETAIN } else { 0 });
    out.push(u8::try_from(entry.identifiers.len()).unwrap_or(u8::MAX));
    for identifier in entry.identifiers.iter().take(usize::from(u8::MAX)) {
        out.extend_from_slice(&identifier.to_le_bytes());
    }
    if position.is_none() {
        out.extend_from_slice(&record::encode_entry(&entry.message, record::NO_PUBLISHER, clock));
    }
    out
}

/// `None`: the row has another format.
pub(crate) fn decode(bytes: &[u8], clock: &Clock) -> Option<InFlightRow> {
    let (kind, rest) = bytes.split_first()?;
    let kind = kind & !UNORDERED_IDS;
    let (position, rest) = rest.split_first_chunk::<12>()?;
    if kind == RELEASED {
        return Some(InFlightRow::Released((*position != StoredPosition::default()).then_some(*position)));
    }
    let (head, mut rest) = rest.split_first_chunk::<2>()?;
    let [flags, count] = *head;
    let (qos, retain) = (QoS::from_bits(flags & 3)?, flags & RETAIN != 0);
    let mut identifiers = SmallVec::new();
    for _ in 0..count {
        let (identifier, after) = rest.split_first_chunk()?;
        identifiers.push(u32::from_le_bytes(*identifier));
        rest = after;
    }
    match kind {
        IN_STREAM => Some(InFlightRow::InStream { position: *position, qos, retain, identifiers }),
        WHOLE => {
            let (message, _) = record::decode_entry(rest, clock)?;
            if flags & UNSENT != 0 {
                let entry = in_flight_entry(Arc::new(message), qos, retain, identifiers);
                return Some(InFlightRow::Unsent(OutboxEntry { replay: true, ..entry }));
            }
            // No position follows later.
            message.set_position(None);
            Some(InFlightRow::Whole(in_flight_entry(Arc::new(message), qos, retain, identifiers)))
        }
        _ => None,
    }
}

pub(crate) fn in_flight_entry(
    message: Arc<Message>,
    qos: QoS,
    retain: bool,
    identifiers: SmallVec<[u32; 1]>,
) -> OutboxEntry {
    OutboxEntry { message, qos, retain, replay: false, maybe_sent: false, shared: 0, identifiers }
}

/// Sorts rows by the order in which their messages were sent: that of the packet ids. If ids were skipped, because one
/// message stayed unacknowledged while all ids were used, messages are sorted by their positions, so that those of one
/// topic stay in order.
pub(crate) fn in_order_of_sending(rows: &mut Vec<(u16, Bytes)>) {
    in_order(rows);
    if !rows.iter().any(|(_, row)| row.first().is_some_and(|kind| kind & UNORDERED_IDS != 0)) {
        return;
    }
    let mut last = StoredPosition::default();
    let mut placed: Vec<(StoredPosition, (u16, Bytes))> = Vec::with_capacity(rows.len());
    for (id, row) in rows.drain(..) {
        let position = row.get(1..).and_then(<[u8]>::first_chunk::<12>).copied().unwrap_or_default();
        last = if position == StoredPosition::default() { last } else { position };
        placed.push((last, (id, row)));
    }
    placed.sort_by_key(|(position, _)| *position);
    rows.extend(placed.into_iter().map(|(_, row)| row));
}

/// Packet ids count up and wrap to 1, so the widest gap is before the oldest one.
fn in_order<T>(rows: &mut [(u16, T)]) {
    rows.sort_by_key(|(id, _)| *id);
    let Some((last, _)) = rows.last() else { return };
    let mut previous = i32::from(*last) - i32::from(u16::MAX);
    let (mut widest, mut first) = (0, 0);
    for (index, (id, _)) in rows.iter().enumerate() {
        let gap = i32::from(*id) - previous;
        if gap > widest {
            (widest, first) = (gap, index);
        }
        previous = i32::from(*id);
    }
    rows.rotate_left(first);
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::Properties;

    use super::*;

    fn entry(position: Option<StoredPosition>) -> OutboxEntry {
        let message = Message::new("t".into(), QoS::ExactlyOnce, false, Properties::EMPTY, b"payload", 0);
        message.set_position(position);
        let identifiers = SmallVec::from_slice(&[5, 70_000]);
        in_flight_entry(Arc::new(message), QoS::ExactlyOnce, true, identifiers)
    }

    #[test]
    fn what_is_in_flight_comes_back_as_it_went() {
        let clock = Clock::start();
        let encoded = |in_flight: &InFlight| [false, true].map(|skipped| encode(in_flight, skipped, &clock));
        let read = |in_flight: &InFlight| {
            let [one, other] = encoded(in_flight).map(|row| decode(&row, &clock).unwrap());
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
            one
        };
        match read(&InFlight::Published(entry(Some([7; 12])))) {
            InFlightRow::InStream { position, qos: QoS::ExactlyOnce, retain: true, identifiers } => {
                assert_eq!((position, &identifiers[..]), ([7; 12], &[5, 70_000][..]));
            }
            other => panic!("{other:?}"),
        }
        match read(&InFlight::Published(entry(None))) {
            InFlightRow::Whole(read) => {
                assert_eq!(
                    (read.message.payload(), read.retain, read.identifiers.len()),
                    (&b"payload"[..], true, 2)
                );
            }
            other => panic!("{other:?}"),
        }
        // A message that was never sent is stored whole and without a position, so that it is sent as a new one.
        match read(&InFlight::Unsent(OutboxEntry { replay: true, ..entry(Some([7; 12])) })) {
            InFlightRow::Unsent(read) => assert!(read.replay && read.message.payload() == b"payload"),
            other => panic!("{other:?}"),
        }
        for position in [None, Some([9; 12])] {
            assert!(
                matches!(read(&InFlight::Released(position)), InFlightRow::Released(read) if read == position)
            );
        }
        for garbage in [&b""[..], b"\x01", &[9; 40]] {
            assert!(decode(garbage, &clock).is_none());
        }
    }

    #[test]
    fn packet_ids_are_put_in_the_order_in_which_they_were_given() {
        for (ids, ordered) in [
            (&[][..], &[][..]),
            (&[7], &[7]),
            (&[9, 5, 7], &[5, 7, 9]),
            (&[1, 2, 65_534, 65_535], &[65_534, 65_535, 1, 2]),
            (&[3, 65_530], &[65_530, 3]),
        ] {
            let mut rows: Vec<(u16, ())> = ids.iter().map(|id| (*id, ())).collect();
            in_order(&mut rows);
            assert_eq!(rows.iter().map(|(id, ())| *id).collect::<Vec<u16>>(), ordered);
        }
    }
    #[test]
    fn messages_stay_in_order_when_one_was_open_while_all_packet_ids_were_used() {
        let clock = Clock::start();
        let row = |skipped| {
            let clock = &clock;
            move |(id, position): (u16, u8)| {
                let position = (position > 0).then_some([position; 12]);
                (id, Bytes::from(encode(&InFlight::Published(entry(position)), skipped, clock)))
            }
        };
        let sorted = |skipped, first: (u16, u8), rest: &[(u16, u8)]| {
            let mut rows: Vec<(u16, Bytes)> = vec![row(false)(first)];
            rows.extend(rest.iter().copied().map(row(skipped)));
            in_order_of_sending(&mut rows);
            rows.into_iter().map(|(id, _)| id).collect::<Vec<u16>>()
        };
        assert_eq!(sorted(true, (5, 1), &[(3, 7), (4, 8), (6, 9)]), [5, 3, 4, 6]);
        assert_eq!(sorted(false, (5, 1), &[(3, 7), (4, 8), (6, 9)]), [3, 4, 5, 6]);
        assert_eq!(sorted(true, (5, 1), &[(3, 7), (4, 0), (6, 9)]), [5, 3, 4, 6], "in no stream");
    }
}
