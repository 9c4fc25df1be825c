//! When all sessions have ended, no row of them is left.

use std::collections::BTreeMap;

use millrace_layers::LayerResult;
use millrace_storage::{KeyRange, RangeOptions, after};

use crate::pod::Pod;

/// Kinds of keys that a broker keeps without sessions: the catalog, versions and changes of the
/// filter index, usage.
const STAYS: [&str; 9] = ["k", "ki", "kn", "xv", "xl", "xn", "y", "yw", "yl"];

pub(super) async fn check(checker: &Pod) -> LayerResult<()> {
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    let mut range = KeyRange::prefix([]);
    loop {
        let page = checker
            .read(async |tx| Ok(tx.range(range.clone(), RangeOptions::first(500).snapshot()).await?))
            .await?;
        for row in &page.items {
            let kind = kind(&row.key);
            if !STAYS.contains(&kind.as_str()) {
                *left.entry(kind).or_default() += 1;
            }
        }
        match page.items.last() {
            Some(last) if page.more => range.begin = after(&last.key),
            _ => break,
        }
    }
    if !left.is_empty() {
        checker.history.borrow_mut().violated(format!("leftovers: keys of these kinds are left: {left:?}"));
    }
    Ok(())
}

/// The kind of a key: the bytes after the broker's number, as the tuple layer writes them.
fn kind(key: &[u8]) -> String {
    const INTEGER_ZERO: u8 = 0x14;
    let number = key.first().map_or(0, |first| usize::from(first.saturating_sub(INTEGER_ZERO)));
    let tag = key.iter().skip(1 + number).skip(1).take_while(|byte| **byte != 0);
    tag.map(|byte| char::from(*byte)).collect()
}
