//! Levels: how much of something a broker holds, and for how long.
//!
//! An integral of a sum is a sum of integrals, so each change is accounted by itself. In its own window it counts for what is left of
//! that ([`Part::Rest`]), and as a change ([`Part::Change`]) for all windows after it, which is found out when somebody reads: the level
//! before a window is what there is now, less all changes since. So a broker that nothing happens to writes nothing, and holds on.

use millrace_storage::Transaction;

use super::{WINDOW_MS, add_to, window_of};
use crate::{BrokerId, error::Result, tags, tuple::Key};

/// What a broker holds. The numbers are in keys: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Level {
    /// Sessions that wait for their client.
    Sessions = 1,
    /// Bytes of messages in streams, as their totals have them.
    Bytes = 2,
}

/// What a window has of a level.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Change,
    Rest,
}

impl Level {
    pub(super) const ALL: [Self; 2] = [Self::Sessions, Self::Bytes];

    /// The number of a row of a window: those below 16 are of units.
    pub(super) fn code(self, part: Part) -> u64 {
        16 + 2 * self as u64 + part as u64
    }

    /// How exactly time is taken, milliseconds: a byte for a millisecond is too small for eight bytes.
    pub(super) fn tick_ms(self) -> u64 {
        match self {
            Self::Sessions => 1,
            Self::Bytes => 1_000,
        }
    }

    /// Ticks from a time to the end of its window.
    pub(super) fn ticks_left(self, at_ms: u64) -> i64 {
        ((window_of(at_ms) + WINDOW_MS - at_ms) / self.tick_ms()).cast_signed()
    }
}

/// From `at_ms` on a broker holds so much more, or less.
///
/// # Errors
/// The store's.
pub fn change(tx: &Transaction, broker: BrokerId, level: Level, more: i64, at_ms: u64) -> Result<()> {
    if more == 0 {
        return Ok(());
    }
    tx.atomic_add(key(broker, level), more)?;
    let window_ms = window_of(at_ms);
    add_to(tx, broker, window_ms, level.code(Part::Change), more)?;
    add_to(tx, broker, window_ms, level.code(Part::Rest), more.wrapping_mul(level.ticks_left(at_ms)))
}

pub(super) fn key(broker: BrokerId, level: Level) -> Key {
    Key::new(broker, tags::USAGE_LEVEL).uint(level as u64)
}
