//! Moves the usage of a deleted broker to the ledger of its owner, before the broker's keys are erased.

use millrace_storage::{KeyRange, Transaction};

use super::{Unit, WINDOW_MS, add_to, used, window, window_of, windows};
use crate::{BrokerId, error::LayerResult, limits::USAGE_WINDOWS_KEPT};

/// Windows that one transaction moves: a month, with at most 14 rows in each window.
const WINDOWS_MAX: u64 = 31 * 24;

#[derive(Clone, Copy, Debug)]
pub struct Fold {
    pub broker: BrokerId,
    pub ledger: BrokerId,
    /// Time of the deletion, unix milliseconds: the broker holds nothing from then on.
    pub ended_ms: u64,
}

/// Moves the windows from `from_ms` on, at most a month of them, and returns the time to continue at, or `None` at the
/// end.
pub async fn fold(tx: &Transaction, fold: Fold, from_ms: u64) -> LayerResult<Option<u64>> {
    let Fold { broker, ledger, ended_ms } = fold;
    let from_ms = window_of(from_ms);
    let to_ms = from_ms + WINDOWS_MAX * WINDOW_MS;
    for used in used(tx, broker, from_ms, to_ms, ended_ms).await? {
        for (unit, added) in [
            (Unit::ConnectedMs, used.connected_ms),
            (Unit::MessagesIn, used.messages_in),
            (Unit::MessagesDelivered, used.messages_delivered),
            (Unit::BytesIn, used.bytes_in),
            (Unit::BytesOut, used.bytes_out),
            (Unit::StoredSessionMs, used.stored_session_ms),
            (Unit::StoredByteS, used.stored_byte_s),
            (Unit::RetainedByteS, used.retained_byte_s),
        ] {
            add_to(tx, ledger, used.from_ms, unit as u64, i64::try_from(added).unwrap_or(i64::MAX))?;
        }
    }
    let moved = KeyRange::new(windows(broker).children().begin, window(broker, to_ms).children().begin);
    tx.clear_range(moved)?;
    let oldest = window_of(ended_ms).saturating_sub(USAGE_WINDOWS_KEPT * WINDOW_MS);
    tx.clear_range(KeyRange::new(windows(ledger).children().begin, window(ledger, oldest).children().begin))?;
    Ok((to_ms <= ended_ms).then_some(to_ms))
}
