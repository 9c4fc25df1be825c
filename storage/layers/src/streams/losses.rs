//! The latest losses of a stream, with time and reason: entries that a limit or an operator removed before each subscriber
//! had read them.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{Read, Transaction};

use super::{StreamId, keys};
use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    limits::{LOSSES_JOINED_MS, LOSSES_MAX},
};

/// The numbers are stored, so they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    Age = 1,
    Size = 2,
    /// All streams of the broker together had more bytes than their limit.
    AllStreams = 3,
    /// By an operator.
    Purged = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossCause {
    pub reason: LossReason,
    /// Unix milliseconds.
    pub at_ms: u64,
}

/// Entries that trims within [`LOSSES_JOINED_MS`] removed for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLoss {
    pub reason: LossReason,
    pub first_at_ms: u64,
    pub last_at_ms: u64,
    pub published_from_ms: u64,
    pub published_to_ms: u64,
    pub entries: u64,
}

const ROW_BYTES: usize = 1 + 5 * 8;

impl StreamLoss {
    fn takes(&self, later: &Self) -> bool {
        self.reason == later.reason && later.last_at_ms.saturating_sub(self.first_at_ms) < LOSSES_JOINED_MS
    }

    fn join(&mut self, later: &Self) {
        self.last_at_ms = self.last_at_ms.max(later.last_at_ms);
        self.published_from_ms = self.published_from_ms.min(later.published_from_ms);
        self.published_to_ms = self.published_to_ms.max(later.published_to_ms);
        self.entries += later.entries;
    }
}

/// The oldest first, as a snapshot read.
pub async fn losses(tx: &Transaction, broker: BrokerId, stream: StreamId) -> LayerResult<Vec<StreamLoss>> {
    let row = tx.get(keys::losses(broker, stream), Read::Snapshot).await?;
    row.map_or(Ok(Vec::new()), decode)
}

/// The trim that calls this has read the row of the stream serializably, so two trims of one stream conflict although
/// the losses are read as a snapshot.
pub(super) async fn note(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    new: StreamLoss,
) -> LayerResult<()> {
    let mut all = losses(tx, broker, stream).await?;
    match all.last_mut().filter(|last| last.takes(&new)) {
        Some(last) => last.join(&new),
        None => all.push(new),
    }
    let from = all.len().saturating_sub(LOSSES_MAX);
    Ok(tx.set(keys::losses(broker, stream), encode(&all[from..]))?)
}

fn encode(losses: &[StreamLoss]) -> Bytes {
    let mut value = Vec::with_capacity(losses.len() * ROW_BYTES);
    for loss in losses {
        value.put_u8(loss.reason as u8);
        let StreamLoss { first_at_ms, last_at_ms, published_from_ms, published_to_ms, entries, .. } = *loss;
        for number in [first_at_ms, last_at_ms, published_from_ms, published_to_ms, entries] {
            value.put_u64(number);
        }
    }
    value.into()
}

fn decode(mut value: Bytes) -> LayerResult<Vec<StreamLoss>> {
    let mut losses = Vec::with_capacity(value.len() / ROW_BYTES);
    while value.has_remaining() {
        let reason = match value.try_get_u8()? {
            1 => LossReason::Age,
            2 => LossReason::Size,
            3 => LossReason::AllStreams,
            4 => LossReason::Purged,
            _ => return Err(LayerError::Corrupt("loss of a stream")),
        };
        losses.push(StreamLoss {
            reason,
            first_at_ms: value.try_get_u64()?,
            last_at_ms: value.try_get_u64()?,
            published_from_ms: value.try_get_u64()?,
            published_to_ms: value.try_get_u64()?,
            entries: value.try_get_u64()?,
        });
    }
    Ok(losses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BROKER, database, run};

    fn loss(reason: LossReason, at_ms: u64) -> StreamLoss {
        let (published_from_ms, published_to_ms) = (at_ms - 20, at_ms - 10);
        StreamLoss {
            reason,
            first_at_ms: at_ms,
            last_at_ms: at_ms,
            published_from_ms,
            published_to_ms,
            entries: 3,
        }
    }

    #[test]
    fn equal_losses_within_a_minute_are_joined_and_the_latest_stay() {
        let database = database();
        let add = |new| run(&database, async move |tx| note(tx, BROKER, 1, new).await);
        let all = || run(&database, async |tx| losses(tx, BROKER, 1).await);
        assert_eq!(all(), []);
        add(loss(LossReason::Size, 1_000));
        add(loss(LossReason::Size, 2_000));
        let joined = StreamLoss {
            last_at_ms: 2_000,
            published_to_ms: 1_990,
            entries: 6,
            ..loss(LossReason::Size, 1_000)
        };
        assert_eq!(all(), [joined]);
        add(loss(LossReason::Age, 2_000));
        let minute = loss(LossReason::Age, 2_000 + LOSSES_JOINED_MS);
        add(minute);
        assert_eq!(all(), [joined, loss(LossReason::Age, 2_000), minute]);
        for number in 0..LOSSES_MAX as u64 {
            add(loss(LossReason::Purged, (2 + number) * LOSSES_JOINED_MS));
        }
        assert_eq!(all().len(), LOSSES_MAX);
        assert!(all().iter().all(|loss| loss.reason == LossReason::Purged));
    }
}
