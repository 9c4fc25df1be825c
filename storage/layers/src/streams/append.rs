//! Appends messages: one key for each matching stream, however many sessions read it.

use std::collections::HashMap;

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::Transaction;

use super::{StreamId, StreamRef, keys, totals, totals::Totals};
use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    limits::{CHUNK_BYTES, INLINE_SHARED_BYTES_MAX, STREAMS_PER_PUBLISH_MAX},
    metering::{self, Level},
    rows,
    tuple::Key,
};

#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// Number among the messages of the transaction; each number must be used once.
    pub number: u16,
    pub now_ms: u64,
    pub body: &'a Bytes,
}

/// Appends a message to each of `streams`, which must be distinct, without a read and so without conflicts.
/// [`crate::index`] must confirm in the same transaction that the streams are still all that match.
///
/// # Errors
/// [`LayerError::TooManyStreams`], [`LayerError::BodyTooLarge`], or the store's.
pub fn append(
    tx: &Transaction,
    broker: BrokerId,
    streams: &[StreamRef],
    publish: NewEntry<'_>,
) -> LayerResult<()> {
    let mut added = Added::default();
    append_of_many(tx, broker, streams, publish, &mut added)?;
    added.write(tx)
}

/// As [`append`], for one of many messages of a transaction: [`Added::write`] updates the totals once for all.
pub fn append_of_many(
    tx: &Transaction,
    broker: BrokerId,
    streams: &[StreamRef],
    publish: NewEntry<'_>,
    added: &mut Added,
) -> LayerResult<()> {
    if streams.len() > STREAMS_PER_PUBLISH_MAX {
        return Err(LayerError::TooManyStreams(streams.len()));
    }
    rows::check_body(publish.body)?;
    let value = if is_stored_apart(publish.body, streams.len()) {
        store_apart(tx, broker, streams, publish)?;
        EntryValue::Apart { bytes: publish.body.len() }
    } else {
        EntryValue::Inline(publish.body.clone())
    };
    let value = value.encode(publish.now_ms);
    for stream in streams {
        let prefix = keys::partition(broker, stream.stream, stream.partition).before_position();
        tx.set_versionstamped_key(prefix, publish.number.to_be_bytes(), [], value.clone())?;
        added.0.entry((broker, stream.stream)).or_default().add(publish.body.len());
    }
    Ok(())
}

/// Counts a shared body in each of its streams; written at the end of the transaction.
#[derive(Debug, Default)]
#[must_use = "streams would have more than their totals say"]
pub struct Added(HashMap<(BrokerId, StreamId), Totals>);

impl Added {
    pub fn write(&self, tx: &Transaction) -> LayerResult<()> {
        let mut brokers: HashMap<BrokerId, Totals> = HashMap::new();
        for ((broker, stream), added) in &self.0 {
            totals::add_unmetered(tx, *broker, *stream, *added)?;
            let sum = brokers.entry(*broker).or_default();
            sum.entries += added.entries;
            sum.bytes += added.bytes;
        }
        let now_ms = tx.unix_ms();
        brokers.into_iter().try_for_each(|(broker, Totals { entries, bytes })| {
            metering::change_messages(tx, broker, entries.cast_signed())?;
            metering::change(tx, broker, Level::Bytes, bytes.cast_signed(), now_ms)
        })
    }
}

fn is_stored_apart(body: &Bytes, streams: usize) -> bool {
    body.len() > CHUNK_BYTES || (streams > 1 && body.len() > INLINE_SHARED_BYTES_MAX)
}

/// Stores a body once, under the versionstamp that its entries have, too, so that an entry needs no pointer. The row of
/// holders lists the entries: [`super::sweep_bodies`] deletes the body when none of them is left.
fn store_apart(
    tx: &Transaction,
    broker: BrokerId,
    streams: &[StreamRef],
    publish: NewEntry<'_>,
) -> LayerResult<()> {
    let message_number = publish.number.to_be_bytes();
    let mut holders = Vec::with_capacity(streams.len() * 9);
    for stream in streams {
        holders.put_u64(stream.stream);
        holders.put_u8(stream.partition);
    }
    tx.set_versionstamped_key(keys::holders(broker).before_position(), message_number, [], holders)?;
    let prefix = keys::bodies(broker).before_position();
    for (number, chunk) in rows::chunks(publish.body).enumerate() {
        tx.set_versionstamped_key(&prefix, message_number, Key::element(number as u64), chunk)?;
    }
    Ok(())
}

pub(super) fn decode_holders(mut value: Bytes) -> LayerResult<Vec<StreamRef>> {
    let mut holders = Vec::with_capacity(value.len() / 9);
    while value.has_remaining() {
        holders.push(StreamRef { stream: value.try_get_u64()?, partition: value.try_get_u8()? });
    }
    Ok(holders)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryValue {
    Inline(Bytes),
    /// The body is shared by several streams, or exceeds a value.
    Apart {
        bytes: usize,
    },
}

const INLINE: u8 = 0;
const APART: u8 = 1;

impl EntryValue {
    pub(super) fn encode(&self, at_ms: u64) -> Bytes {
        let (kind, bytes) = match self {
            Self::Inline(body) => (INLINE, body.len()),
            Self::Apart { .. } => (APART, 4),
        };
        let mut value = Vec::with_capacity(9 + bytes);
        value.put_u8(kind);
        value.put_u64(at_ms);
        match self {
            Self::Inline(body) => value.put_slice(body),
            Self::Apart { bytes } => value.put_u32(u32::try_from(*bytes).unwrap_or(u32::MAX)),
        }
        value.into()
    }

    pub(super) fn decode(mut value: Bytes) -> LayerResult<(u64, Self)> {
        let kind = value.try_get_u8()?;
        let at_ms = value.try_get_u64()?;
        let value = match kind {
            INLINE => Self::Inline(value),
            APART => Self::Apart { bytes: value.try_get_u32()? as usize },
            _ => return Err(LayerError::Corrupt("entry")),
        };
        Ok((at_ms, value))
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Inline(body) => body.len(),
            Self::Apart { bytes } => *bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back() {
        for value in [
            EntryValue::Inline(Bytes::new()),
            EntryValue::Inline(Bytes::from_static(b"x")),
            EntryValue::Apart { bytes: 8_000_000 },
        ] {
            assert_eq!(EntryValue::decode(value.encode(77)), Ok((77, value)));
        }
        assert!(EntryValue::decode(Bytes::from_static(&[9; 12])).is_err());
    }

    #[test]
    fn long_bodies_are_stored_apart_when_they_are_shared_or_too_long() {
        for (bytes, streams, apart) in [
            (INLINE_SHARED_BYTES_MAX, 9, false),
            (INLINE_SHARED_BYTES_MAX + 1, 1, false),
            (INLINE_SHARED_BYTES_MAX + 1, 2, true),
            (CHUNK_BYTES, 1, false),
            (CHUNK_BYTES + 1, 1, true),
        ] {
            assert_eq!(is_stored_apart(&Bytes::from(vec![0; bytes]), streams), apart, "{bytes} {streams}");
        }
    }
}
