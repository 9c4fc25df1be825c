//! Helpers for rows: read a whole range, take values apart, store bodies that exceed a value.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use millrace_storage::{KeyRange, KeyValue, RangeOptions, RangePage, Read, Reply, Transaction, after};

use crate::{
    error::{LayerError, LayerResult},
    limits::{BODY_BYTES_MAX, CHUNK_BYTES},
    tuple::Key,
};

const PAGE: usize = 1_000;

/// A limit must bound the range.
pub(crate) async fn all(tx: &Transaction, range: KeyRange, read: Read) -> LayerResult<Vec<KeyValue>> {
    let first = first(tx, &range, read).await?;
    rest(tx, range, read, first).await
}

/// Asks for the first page of a range, for [`rest`], so that the pages of several ranges come together.
pub(crate) fn first<'t>(tx: &'t Transaction, range: &KeyRange, read: Read) -> Reply<'t, RangePage> {
    tx.range(range.clone(), RangeOptions { limit: PAGE, reverse: false, read })
}

/// The rows of the first page of a range, and all after it.
pub(crate) async fn rest(
    tx: &Transaction,
    mut range: KeyRange,
    read: Read,
    mut page: RangePage,
) -> LayerResult<Vec<KeyValue>> {
    let mut rows = std::mem::take(&mut page.items);
    while let Some(last) = rows.last().filter(|_| page.more) {
        range.begin = after(&last.key);
        page = first(tx, &range, read).await?;
        rows.append(&mut page.items);
    }
    Ok(rows)
}

pub(crate) async fn counter(tx: &Transaction, key: &Key, read: Read) -> LayerResult<u64> {
    match tx.get(key, read).await? {
        Some(value) => decode_counter(&value),
        None => Ok(0),
    }
}

pub(crate) fn decode_counter(mut value: &[u8]) -> LayerResult<u64> {
    Ok(value.try_get_u64_le()?)
}

pub(crate) fn take(value: &mut Bytes, length: usize) -> LayerResult<Bytes> {
    if length > value.len() {
        return Err(LayerError::Corrupt("value"));
    }
    Ok(value.split_to(length))
}

pub(crate) fn take_sized(value: &mut Bytes) -> LayerResult<Bytes> {
    let length = value.try_get_u16()?;
    take(value, length.into())
}

/// Writes the length in two bytes, which suffice for every name, then the bytes.
pub(crate) fn put_sized(value: &mut Vec<u8>, bytes: &[u8]) {
    value.put_u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX));
    value.put_slice(bytes);
}

pub(crate) fn check_body(body: &Bytes) -> LayerResult<()> {
    if body.len() <= BODY_BYTES_MAX { Ok(()) } else { Err(LayerError::BodyTooLarge(body.len())) }
}

pub(crate) fn chunks(body: &Bytes) -> impl Iterator<Item = Bytes> {
    (0..body.len()).step_by(CHUNK_BYTES).map(|from| body.slice(from..body.len().min(from + CHUNK_BYTES)))
}

pub(crate) fn join(chunks: impl IntoIterator<Item = KeyValue>) -> Bytes {
    let mut joined = BytesMut::new();
    for chunk in chunks {
        joined.put_slice(&chunk.value);
    }
    joined.freeze()
}

/// A body of any length: its row has the number of further chunks, which are below another key.
///
/// It is written without a serializable read, so that writers of one body do not conflict; the last commit wins as a
/// whole, because it writes row and chunks together. A leftover chunk of an earlier, longer body is never read.
pub(crate) struct Blob {
    pub(crate) row: Key,
    pub(crate) chunks: Key,
}

impl Blob {
    pub(crate) async fn set(&self, tx: &Transaction, body: &Bytes) -> LayerResult<()> {
        self.replace(tx, Some(body)).await.map(drop)
    }

    /// Writes the body, or clears it, and returns the bytes of the body before, of a snapshot.
    pub(crate) async fn replace(&self, tx: &Transaction, body: Option<&Bytes>) -> LayerResult<usize> {
        if let Some(body) = body {
            check_body(body)?;
        }
        let before = self.clear_chunks(tx).await?;
        match body {
            Some(body) => self.write(tx, body)?,
            None => tx.clear(&self.row)?,
        }
        Ok(before)
    }

    fn write(&self, tx: &Transaction, body: &Bytes) -> LayerResult<()> {
        let mut parts = chunks(body);
        let first = parts.next().unwrap_or_default();
        let mut count: u16 = 0;
        for part in parts {
            count += 1;
            tx.set(self.chunks.clone().uint(count.into()), part)?;
        }
        let mut value = Vec::with_capacity(2 + first.len());
        value.put_u16(count);
        value.put_slice(&first);
        Ok(tx.set(&self.row, value)?)
    }

    pub(crate) async fn get(&self, tx: &Transaction, read: Read) -> LayerResult<Option<Bytes>> {
        match tx.get(&self.row, read).await? {
            Some(row) => Ok(Some(self.rest(tx, row).await?)),
            None => Ok(None),
        }
    }

    pub(crate) async fn rest(&self, tx: &Transaction, mut row: Bytes) -> LayerResult<Bytes> {
        let count = row.try_get_u16()?;
        if count == 0 {
            return Ok(row);
        }
        let mut body = BytesMut::from(row);
        body.put_slice(&join(all(tx, self.range(count), Read::Snapshot).await?));
        Ok(body.freeze())
    }

    pub(crate) async fn clear(&self, tx: &Transaction) -> LayerResult<()> {
        self.replace(tx, None).await.map(drop)
    }

    /// The first chunks. Other keys below theirs belong to other bodies: a topic has topics below it.
    fn range(&self, count: u16) -> KeyRange {
        let chunk = |number: u64| self.chunks.clone().uint(number);
        KeyRange::new(chunk(1).as_ref(), chunk(u64::from(count) + 1).as_ref())
    }

    /// Returns the length of the removed body.
    async fn clear_chunks(&self, tx: &Transaction) -> LayerResult<usize> {
        let Some(mut row) = tx.get(&self.row, Read::Snapshot).await? else { return Ok(0) };
        let count = row.try_get_u16()?;
        if count == 0 {
            return Ok(row.len());
        }
        let last = tx.get(self.chunks.clone().uint(count.into()), Read::Snapshot).await?;
        tx.clear_range(self.range(count))?;
        // All chunks but the last are full.
        Ok(row.len() + usize::from(count - 1) * CHUNK_BYTES + last.map_or(0, |last| last.len()))
    }
}
