//! Removes filters that still have a stream although all subscribers have left: many left at the same time, and each
//! saw the others as remaining subscribers (see `members.rs`).

use bytes::Buf;
use millrace_storage::{RangeOptions, Read, Transaction, after};

use super::members;
use crate::{
    BrokerId,
    error::LayerResult,
    name::GroupedFilter,
    rows,
    streams::{self, StreamId},
    tuple::Elements,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweptFilters {
    pub removed: usize,
    /// The last stream that was checked, for `from` of the next [`sweep`]; `None` when no stream is left to check.
    pub next: Option<StreamId>,
}

/// Checks up to `limit` streams with ids after `from` in a snapshot, which conflicts with no join or leave, and removes
/// those whose number of subscribers is still 0 in a serializable read.
pub async fn sweep(
    tx: &Transaction,
    broker: BrokerId,
    from: Option<StreamId>,
    limit: usize,
) -> LayerResult<SweptFilters> {
    let prefix = members::counts(broker);
    let mut range = prefix.children();
    if let Some(from) = from {
        range.begin = after(members::count_key(broker, from).as_ref());
    }
    let page = tx.range(range, RangeOptions::first(limit).snapshot()).await?;
    let mut swept = SweptFilters::default();
    for mut row in page.items {
        let stream = Elements::after(&prefix, &row.key)?.uint()?;
        if row.value.try_get_i64_le()? <= 0 && remove_if_unused(tx, broker, stream).await? {
            swept.removed += 1;
        }
        swept.next = page.more.then_some(stream);
    }
    Ok(swept)
}

async fn remove_if_unused(tx: &Transaction, broker: BrokerId, stream: StreamId) -> LayerResult<bool> {
    let key = members::count_key(broker, stream);
    if rows::counter(tx, &key, Read::Serializable).await?.cast_signed() > 0 {
        return Ok(false);
    }
    let Some(row) = streams::stream(tx, broker, stream, Read::Serializable).await? else {
        tx.clear(key)?;
        return Ok(false);
    };
    members::remove(tx, broker, GroupedFilter::parse(&row.name), stream).await?;
    Ok(true)
}
