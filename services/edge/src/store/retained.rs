//! Retained messages in the store.
//!
//! Key: broker id (8 bytes, big-endian), `r`, topic, 0 (no topic has it), number of the chunk (2 bytes, big-endian). Value:
//! that part of the message's record. Written by [`super::writer`], read at the start.

use std::sync::Arc;

use millrace_storage::{Database, Error, KeyRange, RangeOptions, Transaction, after, block_on, limits};

use super::record;
use crate::broker::Broker;
use crate::clock::{Clock, seconds};

/// Bytes of a record in one value.
const CHUNK_BYTES: usize = limits::VALUE_BYTES_MAX;
/// Keys read at a time.
const PAGE: usize = 1000;
/// Bytes of the chunk's number and the 0 before it.
const TAIL: usize = 3;

fn prefix(broker: u64) -> Vec<u8> {
    let mut key = broker.to_be_bytes().to_vec();
    key.push(b'r');
    key
}

fn topic_prefix(broker: u64, topic: &str) -> Vec<u8> {
    let mut key = prefix(broker);
    key.extend_from_slice(topic.as_bytes());
    key.push(0);
    key
}

/// Makes `record` the retained message of `topic`.
pub(super) fn set(transaction: &Transaction, broker: u64, topic: &str, record: &[u8]) -> Result<(), Error> {
    clear(transaction, broker, topic)?;
    let prefix = topic_prefix(broker, topic);
    for (number, chunk) in (0u16..).zip(record.chunks(CHUNK_BYTES)) {
        let mut key = prefix.clone();
        key.extend_from_slice(&number.to_be_bytes());
        transaction.set(key, chunk.to_vec())?;
    }
    Ok(())
}

/// Leaves `topic` without a retained message.
pub(super) fn clear(transaction: &Transaction, broker: u64, topic: &str) -> Result<(), Error> {
    transaction.clear_range(KeyRange::prefix(topic_prefix(broker, topic)))
}

/// Reads all retained messages of a broker into its tree; what expired meanwhile is left out.
pub(super) fn load(database: &Database, clock: &Clock, broker: &Broker) -> Result<(), Error> {
    let now = seconds(clock.now());
    let mut range = KeyRange::prefix(prefix(broker.id));
    let head = range.begin.len();
    let mut topic: Vec<u8> = Vec::new();
    let mut record: Vec<u8> = Vec::new();
    loop {
        let page = block_on(database.run(async |transaction, _| {
            transaction.range(range.clone(), RangeOptions::first(PAGE).snapshot()).await
        }))?;
        for item in &page.items {
            let named = item.key.get(head..item.key.len().saturating_sub(TAIL)).unwrap_or_default();
            if named != topic {
                keep(broker, &topic, &record, clock, now)?;
                topic = named.to_vec();
                record.clear();
            }
            record.extend_from_slice(&item.value);
        }
        match page.items.last() {
            Some(last) if page.more => range.begin = after(&last.key),
            _ => break,
        }
    }
    keep(broker, &topic, &record, clock, now)
}

fn keep(broker: &Broker, topic: &[u8], record: &[u8], clock: &Clock, now: u32) -> Result<(), Error> {
    if record.is_empty() {
        return Ok(());
    }
    let unreadable = || Error::Corrupt(format!("the retained message of {}", String::from_utf8_lossy(topic)));
    let topic = std::str::from_utf8(topic).map_err(|_| unreadable())?;
    let message = record::decode(topic.into(), record, clock).ok_or_else(unreadable)?;
    if !message.is_expired(now) {
        broker.retained.insert(topic, Arc::new(message));
    }
    Ok(())
}
