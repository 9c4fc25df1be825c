//! Checks a recorded history for strict serializability: that all transactions could have run one
//! after another, in an order that agrees with the time at which each began and ended.
//!
//! The versionstamps give the order, so the checker only replays it and compares.

use std::collections::BTreeMap;

use millrace_storage::{StoreVersion, Versionstamp};

pub(crate) type Value = u64;

/// The values of keys; 0 is absent.
pub(crate) type State = BTreeMap<u8, Value>;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Committed(Versionstamp),
    /// It wrote nothing.
    ReadOnly,
    /// It did not commit.
    Refused,
}

/// The reads and writes of one transaction.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// When it began and when its end was known; of one clock for all.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) read_version: StoreVersion,
    /// Values that it saw, not of its own writes.
    pub(crate) reads: Vec<(u8, Value)>,
    pub(crate) writes: Vec<(u8, Value)>,
    pub(crate) end: End,
}

impl Record {
    /// The first and the last version that it can be placed after.
    fn place(&self) -> Option<(StoreVersion, u32)> {
        match self.end {
            End::Committed(stamp) => Some((stamp.version(), u32::from(stamp.number()))),
            // After all commits of the version that it read.
            End::ReadOnly => Some((self.read_version, u32::MAX)),
            End::Refused => None,
        }
    }
}

/// Says what is wrong with a history, and with the state that is there at its end.
pub(crate) fn check(history: &[Record], end: &State) -> Result<(), String> {
    let mut placed: Vec<_> = history.iter().filter_map(|record| Some((record.place()?, record))).collect();
    placed.sort_by_key(|(place, record)| (*place, record.began));
    check_unique(&placed)?;
    check_time(&placed)?;
    let states = replay(&placed)?;
    for record in history {
        check_snapshot(record, &states)?;
    }
    let last = states.last_key_value().map(|(_, state)| state.clone()).unwrap_or_default();
    if last == *end { Ok(()) } else { Err(format!("the store ends with {end:?}, not with {last:?}")) }
}

type Placed<'a> = ((StoreVersion, u32), &'a Record);

fn check_unique(placed: &[Placed<'_>]) -> Result<(), String> {
    for pair in placed.windows(2) {
        if pair[0].0 == pair[1].0 && pair[0].0.1 != u32::MAX {
            return Err(format!("two commits have one stamp: {:?}", pair[0].0));
        }
    }
    Ok(())
}

/// None may stand before one that had ended when it began.
fn check_time(placed: &[Placed<'_>]) -> Result<(), String> {
    let mut latest_began = 0;
    let mut latest: Option<&Placed<'_>> = None;
    for this in placed {
        let same_place = latest.is_some_and(|latest| latest.0 == this.0);
        if this.1.ended < latest_began && !same_place {
            return Err(format!("{this:?} had ended before {latest:?} began, and stands behind it"));
        }
        if this.1.began >= latest_began {
            (latest_began, latest) = (this.1.began, Some(this));
        }
    }
    Ok(())
}

/// Runs the commits one after another: each must see just what the one before left. Gives the state
/// after each version.
fn replay(placed: &[Placed<'_>]) -> Result<BTreeMap<StoreVersion, State>, String> {
    let mut state = State::new();
    let mut states = BTreeMap::from([(0, State::new())]);
    for ((version, _), record) in placed {
        let End::Committed(_) = record.end else { continue };
        for (key, seen) in &record.reads {
            let is = state.get(key).copied().unwrap_or_default();
            if is != *seen {
                return Err(format!("{record:?} saw {seen} at {key} and committed where it is {is}"));
            }
        }
        for (key, value) in &record.writes {
            match value {
                0 => state.remove(key),
                value => state.insert(*key, *value),
            };
        }
        states.insert(*version, state.clone());
    }
    Ok(states)
}

/// A transaction's reads return the state at its read version, however it ended.
fn check_snapshot(record: &Record, states: &BTreeMap<StoreVersion, State>) -> Result<(), String> {
    let (_, state) = states.range(..=record.read_version).next_back().expect("there is one at version 0");
    for (key, seen) in &record.reads {
        let is = state.get(key).copied().unwrap_or_default();
        if is != *seen {
            return Err(format!("{record:?} saw {seen} at {key}; at its read version it was {is}"));
        }
    }
    match record.end {
        End::Committed(stamp) if stamp.version() <= record.read_version => {
            Err(format!("{record:?} committed before what it read"))
        }
        _ => Ok(()),
    }
}
