//! Reads the usage of brokers, window by window.

use std::collections::BTreeMap;

use bytes::Buf;
use millrace_storage::{KeyRange, Read, Transaction};

use super::{
    Unit, WINDOW_MS,
    levels::{self, Level, LevelPart},
    window, window_of, windows,
};
use crate::{BrokerId, error::LayerResult, rows, tuple::Elements};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub from_ms: u64,
    pub connected_ms: u64,
    pub messages_in: u64,
    pub messages_delivered: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub stored_session_ms: u64,
    pub stored_byte_s: u64,
    pub retained_byte_s: u64,
}

type CountRows = BTreeMap<u64, i64>;

/// Reads in a snapshot the usage of a broker in each window from that of `from_ms` to before `to_ms`, without future
/// windows.
pub async fn used(
    tx: &Transaction,
    broker: BrokerId,
    from_ms: u64,
    to_ms: u64,
    now_ms: u64,
) -> LayerResult<Vec<Window>> {
    let from_ms = window_of(from_ms);
    let mut all = read(tx, broker, from_ms).await?;
    let mut before = [0; Level::ALL.len()];
    for (level, before) in Level::ALL.into_iter().zip(&mut before) {
        let now = rows::counter(tx, &levels::key(broker, level), Read::Snapshot).await?.cast_signed();
        let changes = all.values().filter_map(|rows| rows.get(&level.code(LevelPart::Change)));
        *before = changes.fold(now, |level, change| level.wrapping_sub(*change));
    }
    let mut used = Vec::new();
    let mut at_ms = from_ms;
    while at_ms < to_ms && at_ms <= now_ms {
        let rows = all.remove(&at_ms).unwrap_or_default();
        let mut window = of_units(at_ms, &rows);
        let mut integrals = [0; Level::ALL.len()];
        for ((level, before), sum) in Level::ALL.into_iter().zip(before).zip(&mut integrals) {
            *sum = integral(level, before, &rows, at_ms, now_ms);
        }
        let [sessions, bytes, retained] = integrals;
        window.stored_session_ms = window.stored_session_ms.saturating_add(sessions);
        window.stored_byte_s = window.stored_byte_s.saturating_add(bytes);
        window.retained_byte_s = window.retained_byte_s.saturating_add(retained);
        used.push(window);
        for (level, before) in Level::ALL.into_iter().zip(&mut before) {
            *before = before.wrapping_add(part(&rows, level, LevelPart::Change));
        }
        at_ms += WINDOW_MS;
    }
    Ok(used)
}

async fn read(tx: &Transaction, broker: BrokerId, from_ms: u64) -> LayerResult<BTreeMap<u64, CountRows>> {
    let prefix = windows(broker);
    let range = KeyRange::new(window(broker, from_ms).children().begin, prefix.end());
    let mut all: BTreeMap<u64, CountRows> = BTreeMap::new();
    for mut row in rows::all(tx, range, Read::Snapshot).await? {
        let mut elements = Elements::after(&prefix, &row.key)?;
        let (window_ms, code) = (elements.uint()?, elements.uint()?);
        all.entry(window_ms).or_default().insert(code, row.value.try_get_i64_le()?);
    }
    Ok(all)
}

fn of_units(from_ms: u64, rows: &CountRows) -> Window {
    // A negative sum takes back usage of an earlier window: a connection ended before the time up to which the last flush counted it.
    let unit = |unit: Unit| rows.get(&(unit as u64)).copied().unwrap_or(0).max(0).cast_unsigned();
    Window {
        from_ms,
        connected_ms: unit(Unit::ConnectedMs),
        messages_in: unit(Unit::MessagesIn),
        messages_delivered: unit(Unit::MessagesDelivered),
        bytes_in: unit(Unit::BytesIn),
        bytes_out: unit(Unit::BytesOut),
        stored_session_ms: unit(Unit::StoredSessionMs),
        stored_byte_s: unit(Unit::StoredByteS),
        retained_byte_s: unit(Unit::RetainedByteS),
    }
}

/// The integral over a window until its end, or until now.
fn integral(level: Level, before: i64, rows: &CountRows, from_ms: u64, now_ms: u64) -> u64 {
    let whole = level.ticks_left(from_ms);
    let left = if now_ms < from_ms + WINDOW_MS { level.ticks_left(now_ms) } else { 0 };
    let (change, rest) = (part(rows, level, LevelPart::Change), part(rows, level, LevelPart::Rest));
    let of_before = i128::from(before) * i128::from(whole - left);
    let of_changes = i128::from(rest) - i128::from(change) * i128::from(left);
    u64::try_from((of_before + of_changes).max(0)).unwrap_or(u64::MAX)
}

fn part(rows: &CountRows, level: Level, part: LevelPart) -> i64 {
    rows.get(&level.code(part)).copied().unwrap_or(0)
}
