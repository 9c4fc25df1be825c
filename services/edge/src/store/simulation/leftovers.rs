//! When all sessions have ended, no row of them is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_storage::{Database, KeyRange, RangeOptions, StoreError, after, block_on};

use super::engine::SimulatedHost;
use super::world::World;

/// Kinds of keys that stay without sessions: the catalog (`k`, `ki`, `kn`), versions and changes of the filter index
/// (`xv`, `xl`, `xn`), usage (`y`, `yw`, `yl`), and commit markers (`pm`), which go after a day.
const STAYS: [&str; 10] = ["k", "ki", "kn", "xv", "xl", "xn", "y", "yw", "yl", "pm"];

pub(super) fn empty_store() -> Database {
    Database::memory_on(Arc::new(SimulatedHost))
}

/// The number of keys of each kind that should be gone.
pub(super) fn left(world: &World) -> BTreeMap<String, usize> {
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    let keys = keys(world.store()).unwrap();
    // A killed pod that was replaced by one with another name. It may only have been stalled, so that notices to it stay
    // as long as its marker: a day.
    let gone: BTreeSet<&[u8]> = keys.iter().filter(|key| kind(key) == "pm").map(|key| pod(key)).collect();
    for key in &keys {
        let kind = kind(key);
        let waits = kind == "pn" && gone.contains(pod(key));
        if !waits && !STAYS.contains(&kind.as_str()) {
            *left.entry(kind).or_default() += 1;
        }
    }
    left
}

fn keys(store: &Database) -> Result<Vec<Vec<u8>>, StoreError> {
    let (mut keys, mut range) = (Vec::new(), KeyRange::prefix([]));
    loop {
        let read = store.run(|tx, _| {
            let range = range.clone();
            async move { tx.range(range, RangeOptions::first(500).snapshot()).await }
        });
        let page = block_on(read)?;
        keys.extend(page.items.iter().map(|row| row.key.to_vec()));
        match page.items.last() {
            Some(last) if page.more => range.begin = after(&last.key),
            _ => return Ok(keys),
        }
    }
}

/// The name of a pod, the first element of such keys.
fn pod(key: &[u8]) -> &[u8] {
    let mut parts = key.split(|byte| *byte == 0);
    let (_kind, pod) = (parts.next(), parts.next());
    pod.unwrap_or_default()
}

/// The bytes after the broker's number, as the tuple layer writes them.
fn kind(key: &[u8]) -> String {
    const INTEGER_ZERO: u8 = 0x14;
    let number = key.first().map_or(0, |first| usize::from(first.saturating_sub(INTEGER_ZERO)));
    let tag = key.iter().skip(1 + number).skip(1).take_while(|byte| **byte != 0);
    tag.map(|byte| char::from(*byte)).collect()
}
