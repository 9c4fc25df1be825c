//! Progress of shared subscriptions: the group is the only subscriber of its stream, and has its own cursor.

use millrace_storage::{Read, Transaction};

use super::{StreamId, keys, row};
use crate::{BrokerId, error::LayerResult, position::Position, positions::Positions};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupProgress {
    /// The members have acknowledged everything up to here.
    pub cursor: Position,
    /// Messages after the cursor that are acknowledged too: members acknowledge in any order.
    pub acknowledged: Positions,
}

/// Reads the progress of a stream's group in a snapshot, because only one pod writes it.
pub async fn progress(tx: &Transaction, broker: BrokerId, stream: StreamId) -> LayerResult<GroupProgress> {
    let Some(value) = tx.get(keys::group(broker, stream), Read::Snapshot).await? else {
        return Ok(GroupProgress::default());
    };
    let (cursor, acknowledged) = Positions::decode(value)?;
    Ok(GroupProgress { cursor, acknowledged })
}

/// Writes the progress of a group, unless its stream is gone.
pub async fn set_progress(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    progress: &GroupProgress,
) -> LayerResult<()> {
    if row::stream(tx, broker, stream, Read::Serializable).await?.is_none() {
        return Ok(());
    }
    Ok(tx.set(keys::group(broker, stream), progress.acknowledged.encode(progress.cursor))?)
}
