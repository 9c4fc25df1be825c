//! Progress of shared subscriptions: the group is the one subscriber of its stream, and has a cursor of its own.

use bytes::{Buf, BufMut};
use millrace_storage::{Read, Transaction};

use super::{StreamId, keys, row};
use crate::{BrokerId, error::LayerResult, limits::ACKNOWLEDGED_MAX, position::Position};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The members have acknowledged everything up to here.
    pub cursor: Position,
    /// Acknowledged messages after the cursor.
    pub acknowledged: Vec<Position>,
}

/// Reads the progress of a stream's group in a snapshot, because only one pod writes it.
pub async fn progress(tx: &Transaction, broker: BrokerId, stream: StreamId) -> LayerResult<Progress> {
    let mut progress = Progress::default();
    if let Some(mut value) = tx.get(keys::group(broker, stream), Read::Snapshot).await? {
        progress.cursor = row::position(&mut value)?;
        while value.has_remaining() {
            progress.acknowledged.push(row::position(&mut value)?);
        }
    }
    Ok(progress)
}

/// Writes the progress of a group, unless its stream is gone.
pub async fn set_progress(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    progress: &Progress,
) -> LayerResult<()> {
    if row::stream(tx, broker, stream, Read::Serializable).await?.is_none() {
        return Ok(());
    }
    let kept = progress.acknowledged.len().min(ACKNOWLEDGED_MAX);
    let mut value = Vec::with_capacity((1 + kept) * Position::LEN);
    value.put_slice(&progress.cursor.0);
    for position in &progress.acknowledged[..kept] {
        value.put_slice(&position.0);
    }
    Ok(tx.set(keys::group(broker, stream), value)?)
}
