//! Reads one batch of a journal in the form of fjall 3, which another version may change: a start
//! with the number of items, the items, and an end with their checksum. Integers are little-endian.

use std::io::{self, ErrorKind, Read};

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3Default;

use super::table::part;
use crate::{
    engine::{embedded::store::VERSION_KEY, local::KeyWrite},
    limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX},
    version::StoreVersion,
};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: &[u8] = b"FJL\x03";

/// Kinds of items: a value, a deletion, a weak deletion.
const VALUE: u8 = 0;
const KINDS: u8 = 3;

/// A start has its tag, the number of items and the sequence number, which no checksum covers.
const START_BYTES: usize = 1 + 4 + 8;

/// An item has its tag, kind, compression, keyspace, and the lengths of key, value and stored value
/// before them.
const ITEM_BYTES: usize = 1 + 1 + 1 + 8 + 2 + 4 + 4;

const END_BYTES: usize = 1 + 8 + TRAILER.len();

pub(super) struct JournalBatch {
    pub(super) sequence: u64,
    pub(super) version: Option<StoreVersion>,
    pub(super) length: u64,
}

/// Journal bytes of a batch with these writes; the store adds an item with the version.
pub(in super::super) fn bytes_of(writes: &[KeyWrite]) -> u64 {
    let value = |write: &KeyWrite| write.value.as_ref().map_or(0, Bytes::len);
    let items: usize = writes.iter().map(|write| ITEM_BYTES + write.key.len() + value(write)).sum();
    (START_BYTES + items + ITEM_BYTES + VERSION_KEY.len() + size_of::<StoreVersion>() + END_BYTES) as u64
}

/// `None`: no complete batch begins here.
pub(super) fn read(from: &mut impl Read, scratch: &mut Vec<u8>) -> io::Result<Option<JournalBatch>> {
    match parse(from, scratch) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        other => other,
    }
}

/// True if `bytes` contain a complete batch that is newer than `sequence_after`. A caller that finds one after an incomplete
/// batch reports damage, because a crash leaves only the last batch incomplete.
pub(super) fn find(bytes: &[u8], sequence_after: u64) -> bool {
    let mut scratch = Vec::new();
    let starts = bytes.windows(START_BYTES + 1).enumerate();
    let likely = starts.filter(|(_, bytes)| bytes[0] == START && bytes[START_BYTES] == ITEM);
    likely.into_iter().any(|(at, _)| {
        let found = parse(&mut &bytes[at..], &mut scratch);
        found.is_ok_and(|found| found.is_some_and(|batch| batch.sequence > sequence_after))
    })
}

/// The version that an incomplete batch would have produced, if that much of it can be read.
pub(super) fn version_in(bytes: &[u8]) -> Option<StoreVersion> {
    let at = bytes.windows(VERSION_KEY.len()).rposition(|window| window == VERSION_KEY)?;
    let version = bytes.get(at + VERSION_KEY.len()..)?.first_chunk()?;
    Some(StoreVersion::from_be_bytes(*version))
}

fn parse(from: &mut impl Read, scratch: &mut Vec<u8>) -> io::Result<Option<JournalBatch>> {
    let mut start = [0; START_BYTES];
    from.read_exact(&mut start)?;
    let items = u64::from(u32::from_le_bytes(part(&start, 1)));
    if start[0] != START || items == 0 {
        return Ok(None);
    }
    let sequence = u64::from_le_bytes(part(&start, 5));
    let mut batch = JournalBatch { sequence, version: None, length: (START_BYTES + END_BYTES) as u64 };
    let mut hasher = Xxh3Default::new();
    for _ in 0..items {
        let mut head = [0; ITEM_BYTES];
        from.read_exact(&mut head)?;
        let key = usize::from(u16::from_le_bytes(part(&head, 11)));
        let value = u32::from_le_bytes(part(&head, 13)) as usize;
        let stored = u32::from_le_bytes(part(&head, 17)) as usize;
        let possible = head[0] == ITEM && head[1] < KINDS && head[2] == 0 && value == stored;
        if !possible || key > KEY_BYTES_MAX || value > VALUE_BYTES_MAX {
            return Ok(None);
        }
        scratch.resize(key + value, 0);
        from.read_exact(scratch)?;
        hasher.update(&head);
        hasher.update(scratch);
        batch.length += (ITEM_BYTES + key + value) as u64;
        if head[1] == VALUE && scratch[..key] == *VERSION_KEY {
            batch.version = scratch[key..].try_into().ok().map(StoreVersion::from_be_bytes);
        }
    }
    let mut end = [0; END_BYTES];
    from.read_exact(&mut end)?;
    let whole = end[0] == END && end[9..] == *TRAILER && u64::from_le_bytes(part(&end, 1)) == hasher.digest();
    Ok(whole.then_some(batch))
}
