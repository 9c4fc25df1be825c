//! Levels: how much of something a broker holds, and for how long.
//!
//! A window's usage is the level integrated over time. Each change of the level writes two counters of its window:
//! [`LevelPart::Rest`] adds the change times the rest of the window, and [`LevelPart::Change`] the change itself, which
//! counts for the whole of each later window. A reader computes the level before a window as the present level less all
//! changes since. So a broker without changes writes nothing while it holds something.

use millrace_storage::{Read, Transaction};

use super::{WINDOW_MS, add_to, window_of};
use crate::{BrokerId, error::LayerResult, rows, tags, tuple::Key};

/// A quantity that a broker holds: sessions without a connection, bytes of messages in streams (as in the streams' totals),
/// bytes of retained messages. Its numbers are in keys and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Level {
    Sessions = 1,
    Bytes = 2,
    Retained = 4,
}

#[derive(Clone, Copy)]
pub(super) enum LevelPart {
    Change,
    Rest,
}

impl Level {
    pub(super) const ALL: [Self; 3] = [Self::Sessions, Self::Bytes, Self::Retained];

    /// The number of a counter in the rows of a window; [`super::Unit`] has the numbers below 16.
    pub(super) fn code(self, part: LevelPart) -> u64 {
        16 + 2 * self as u64 + part as u64
    }

    /// Resolution of time, milliseconds. Bytes are counted by seconds, because bytes times milliseconds would exceed 64 bits.
    pub(super) fn tick_ms(self) -> u64 {
        match self {
            Self::Sessions => 1,
            Self::Bytes | Self::Retained => 1_000,
        }
    }

    pub(super) fn ticks_left(self, at_ms: u64) -> i64 {
        ((window_of(at_ms) + WINDOW_MS - at_ms) / self.tick_ms()).cast_signed()
    }
}

/// `at_ms` is when the level changed, which may be in an earlier window than the present one.
pub fn change(tx: &Transaction, broker: BrokerId, level: Level, more: i64, at_ms: u64) -> LayerResult<()> {
    if more == 0 {
        return Ok(());
    }
    tx.atomic_add(key(broker, level), more)?;
    let window_ms = window_of(at_ms);
    add_to(tx, broker, window_ms, level.code(LevelPart::Change), more)?;
    add_to(tx, broker, window_ms, level.code(LevelPart::Rest), more.wrapping_mul(level.ticks_left(at_ms)))
}

/// Number of the row that counts messages in streams; a message counts once for each filter. It is not billed, so it
/// has no windows.
const MESSAGES: u64 = 100;

pub(crate) fn change_messages(tx: &Transaction, broker: BrokerId, more: i64) -> LayerResult<()> {
    Ok(tx.atomic_add(messages(broker), more)?)
}

pub(crate) fn messages(broker: BrokerId) -> Key {
    Key::new(broker, tags::USAGE_LEVEL).uint(MESSAGES)
}

pub(crate) fn key(broker: BrokerId, level: Level) -> Key {
    key_of(broker, level as u64)
}

/// The number of a level that limits read and bills do not; no [`Level`] has it.
const WILL_BYTES: u64 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldLevels {
    pub sessions: u64,
    /// Bytes of stored wills, those of connected clients too.
    pub will_bytes: u64,
}

/// Reads in a snapshot, so that the transaction does not conflict with other clients of the broker.
pub async fn held(tx: &Transaction, broker: BrokerId) -> LayerResult<HeldLevels> {
    let (sessions, wills) = (key(broker, Level::Sessions), key_of(broker, WILL_BYTES));
    let sessions = rows::counter(tx, &sessions, Read::Snapshot).await?;
    let will_bytes = rows::counter(tx, &wills, Read::Snapshot).await?;
    // Earlier builds did not count wills. When such a will is removed, the counter gets negative.
    let [sessions, will_bytes] = [sessions, will_bytes].map(|held| held.cast_signed().max(0).cast_unsigned());
    Ok(HeldLevels { sessions, will_bytes })
}

pub(crate) fn change_will_bytes(tx: &Transaction, broker: BrokerId, more: i64) -> LayerResult<()> {
    Ok(tx.atomic_add(key_of(broker, WILL_BYTES), more)?)
}

fn key_of(broker: BrokerId, number: u64) -> Key {
    Key::new(broker, tags::USAGE_LEVEL).uint(number)
}
