//! Corrects counts of brokers that an earlier build has written to without counting.
//!
//! A count and the rows that it counts are read at one version of the store, and the difference is added. Changes in between add to both,
//! so the count is right after the commit, without a conflict.

use bytes::Bytes;
use millrace_storage::{Read, Transaction};

use crate::{
    BrokerId,
    error::LayerResult,
    limits::{RECOUNTED_BYTES_MAX, RECOUNTED_RETAINED_MAX, RECOUNTED_STREAMS_MAX},
    metering::{self, Level},
    retained, rows, streams, tags,
    tuple::Key,
};

/// Number of the row that shows that a broker was recounted; levels have the other numbers.
const RECOUNTED: u64 = 101;
const PAGE: usize = 1_000;

/// Recounts the stored messages and the retained bytes of a broker, once, and returns whether this call did. Counts of more rows than one
/// transaction can read stay as they are.
pub async fn recount(tx: &Transaction, broker: BrokerId) -> LayerResult<bool> {
    let done = Key::new(broker, tags::USAGE_LEVEL).uint(RECOUNTED);
    // Conflicts with another server that counts.
    if tx.get(&done, Read::Serializable).await?.is_some() {
        return Ok(false);
    }
    if let Some(messages) = messages(tx, broker).await? {
        let counted = rows::counter(tx, &metering::messages_key(broker), Read::Snapshot).await?;
        metering::change_messages(tx, broker, messages.wrapping_sub(counted).cast_signed())?;
    }
    if let Some(bytes) = retained_bytes(tx, broker, RECOUNTED_RETAINED_MAX).await? {
        let counted =
            rows::counter(tx, &metering::level_key(broker, Level::Retained), Read::Snapshot).await?;
        let more = bytes.wrapping_sub(counted).cast_signed();
        metering::change(tx, broker, Level::Retained, more, tx.unix_ms())?;
    }
    tx.set(done, Bytes::new())?;
    Ok(true)
}

async fn messages(tx: &Transaction, broker: BrokerId) -> LayerResult<Option<u64>> {
    let (mut sum, mut streams, mut from) = (0_u64, 0, None);
    loop {
        let page = streams::all_totals(tx, broker, from, PAGE).await?;
        sum += page.iter().map(|(_, totals)| totals.entries).sum::<u64>();
        streams += page.len();
        if streams > RECOUNTED_STREAMS_MAX {
            return Ok(None);
        }
        match page.last().filter(|_| page.len() == PAGE) {
            Some((last, _)) => from = Some(*last),
            None => return Ok(Some(sum)),
        }
    }
}

async fn retained_bytes(tx: &Transaction, broker: BrokerId, messages_max: usize) -> LayerResult<Option<u64>> {
    let (mut sum, mut read, mut messages, mut from) = (0_u64, 0, 0, None);
    loop {
        let page = retained::all(tx, broker, from.as_ref(), PAGE, Read::Snapshot).await?;
        sum += page.items.iter().map(|row| row.body.len() as u64).sum::<u64>();
        read += page.bytes;
        messages += page.items.len();
        if read > RECOUNTED_BYTES_MAX || messages > messages_max {
            return Ok(None);
        }
        match page.next {
            Some(next) => from = Some(next),
            None => return Ok(Some(sum)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metering::{live, used};
    use crate::testing::{BROKER, database, run};

    #[test]
    fn missing_counts_are_added_once_and_later_changes_stay_right() {
        let database = database();
        let level = |number: u64| Key::new(BROKER, tags::USAGE_LEVEL).uint(number);
        // Rows as an earlier build has left them: totals of two streams, a retained message, and no counts.
        run(&database, async |tx| {
            for (stream, entries, bytes) in [(1, 3_u64, 30_u64), (2, 4, 50)] {
                let packed = (entries << 36) + bytes;
                tx.set(Key::new(BROKER, tags::TOTALS).uint(stream), packed.to_le_bytes().to_vec())?;
            }
            retained::set(tx, BROKER, b"t", &Bytes::from_static(b"12345")).await?;
            tx.clear(level(Level::Retained as u64))?;
            tx.clear_range(Key::new(BROKER, tags::USAGE_WINDOW).children())?;
            Ok(())
        });
        let messages = || run(&database, async |tx| live(tx, BROKER, 0).await).stored_messages;
        let retained = || run(&database, async |tx| rows::counter(tx, &level(4), Read::Snapshot).await);
        assert_eq!((messages(), retained()), (0, 0));
        // A message that this build has added before is not counted twice.
        run(&database, async |tx| {
            tx.atomic_add(Key::new(BROKER, tags::TOTALS).uint(1), (1 << 36) + 10)?;
            metering::change_messages(tx, BROKER, 1)
        });
        assert!(run(&database, async |tx| recount(tx, BROKER).await));
        assert_eq!((messages(), retained()), (8, 5));
        assert!(!run(&database, async |tx| recount(tx, BROKER).await));
        run(&database, async |tx| retained::clear(tx, BROKER, b"t").await);
        assert_eq!((messages(), retained()), (8, 0));
        let now_ms = database.begin_unretried().unix_ms();
        let window = run(&database, async |tx| used(tx, BROKER, now_ms, now_ms + 1, now_ms).await)[0];
        assert!(window.retained_byte_s <= 5 * 60, "nothing is charged for the time before: {window:?}");
    }
    #[test]
    fn more_retained_messages_than_one_transaction_can_read_are_not_counted() {
        let database = database();
        for topic in [b"a", b"b", b"c"] {
            run(&database, async |tx| retained::set(tx, BROKER, topic, &Bytes::from_static(b"12345")).await);
        }
        let bytes = |most| run(&database, async |tx| retained_bytes(tx, BROKER, most).await);
        assert_eq!((bytes(2), bytes(3)), (None, Some(15)));
    }
}
