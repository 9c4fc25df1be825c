//! Merges the partitions of streams, called lanes, into one sequence in commit order.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, RangePage, Transaction, after};

use super::{StreamRef, keys};
use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    position::Position,
};

const LANE_ROWS_MIN: usize = 4;
/// Values that the lanes of a merge keep together, if one row of each takes no more; rows beyond are read again.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Lanes whose first rows are in memory at once before some are left out.
const OPENED_AT_ONCE: usize = 128;

#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) lane: StreamRef,
    pub(super) after: Position,
}

pub(super) struct Raw {
    pub(super) position: Position,
    /// Index in the `starts` of [`Merge::open`].
    pub(super) lane: usize,
    pub(super) value: Bytes,
}

/// Uses snapshot reads: appends never disturb a reader, and the next read sees messages appended meanwhile.
pub(super) struct Merge<'t> {
    tx: &'t Transaction,
    lanes: Vec<MergeLane>,
    heads: BinaryHeap<Reverse<(Position, usize)>>,
    page: usize,
    kept_bytes: usize,
}

struct MergeLane {
    rest: KeyRange,
    read: VecDeque<(Position, Bytes)>,
    more: bool,
}

impl<'t> Merge<'t> {
    /// Opens all lanes at once; about `wanted` entries will be taken.
    pub(super) async fn open(
        tx: &'t Transaction,
        broker: BrokerId,
        starts: &[Start],
        wanted: usize,
    ) -> LayerResult<Self> {
        // About twice a lane's share of `wanted`, and not more: entries that are not taken are read again next time.
        let page = (wanted / starts.len().max(1) * 2).clamp(LANE_ROWS_MIN, wanted.max(LANE_ROWS_MIN));
        let kept_bytes = KEPT_BYTES_MAX / starts.len().max(1);
        let mut merge = Self { tx, lanes: Vec::new(), heads: BinaryHeap::new(), page, kept_bytes };
        for starts in starts.chunks(OPENED_AT_ONCE) {
            let ranges: Vec<KeyRange> = starts.iter().map(|start| range(broker, start)).collect();
            let replies: Vec<_> = ranges.iter().map(|range| tx.range(range.clone(), options(page))).collect();
            for (reply, rest) in replies.into_iter().zip(ranges) {
                let mut lane = MergeLane { rest, read: VecDeque::new(), more: true };
                lane.add(reply.await?, kept_bytes)?;
                merge.lanes.push(lane);
                merge.push_head(merge.lanes.len() - 1);
            }
        }
        Ok(merge)
    }

    pub(super) fn peek(&self) -> Option<Position> {
        self.heads.peek().map(|Reverse((position, _))| *position)
    }

    /// An entry that is in several lanes comes several times in a row.
    pub(super) async fn next(&mut self) -> LayerResult<Option<Raw>> {
        let Some(Reverse((position, number))) = self.heads.pop() else { return Ok(None) };
        let lane = &mut self.lanes[number];
        let (_, value) = lane.read.pop_front().ok_or(LayerError::Corrupt("entry"))?;
        if lane.read.is_empty() && lane.more {
            lane.add(self.tx.range(lane.rest.clone(), options(self.page)).await?, self.kept_bytes)?;
        }
        self.push_head(number);
        Ok(Some(Raw { position, lane: number, value }))
    }

    fn push_head(&mut self, number: usize) {
        if let Some((position, _)) = self.lanes[number].read.front() {
            self.heads.push(Reverse((*position, number)));
        }
    }
}

impl MergeLane {
    fn add(&mut self, page: RangePage, kept_bytes: usize) -> LayerResult<()> {
        self.more = page.more;
        let mut bytes = 0;
        for item in page.items {
            bytes += item.value.len();
            if bytes > kept_bytes && !self.read.is_empty() {
                self.more = true;
                break;
            }
            self.rest.begin = after(&item.key);
            let position = item.key.last_chunk().ok_or(LayerError::Corrupt("key"))?;
            self.read.push_back((Position(*position), item.value));
        }
        Ok(())
    }
}

fn options(limit: usize) -> RangeOptions {
    RangeOptions::first(limit).snapshot()
}

fn range(broker: BrokerId, start: &Start) -> KeyRange {
    let begin = after(keys::entry(broker, start.lane, start.after).as_ref());
    KeyRange::new(begin, keys::partition(broker, start.lane.stream, start.lane.partition).end())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{publish, with};
    use super::*;
    use crate::testing::{BROKER, run};

    #[test]
    fn many_lanes_of_long_rows_keep_few_bytes_and_give_all_rows() {
        const LANES: u64 = 200;
        let body = Bytes::from(vec![b'x'; 80_000]);
        let database = with((1..=LANES).map(|stream| (stream, 1)));
        for stream in (1..=LANES).chain(1..=LANES).chain(1..=LANES) {
            publish(&database, &[(stream, 0)], 1, &body);
        }
        let start = |stream| Start { lane: StreamRef { stream, partition: 0 }, after: Position::MIN };
        let starts: Vec<Start> = (1..=LANES).map(start).collect();
        run(&database, async |tx| {
            let mut merge = Merge::open(tx, BROKER, &starts, 500).await?;
            let rows = merge.lanes.iter().flat_map(|lane| &lane.read);
            let kept: usize = rows.map(|(_, value)| value.len()).sum();
            assert!(kept <= KEPT_BYTES_MAX + 200 * 81_000, "{kept} bytes");
            let mut all = Vec::new();
            while let Some(raw) = merge.next().await? {
                all.push(raw.position);
            }
            assert!(all.len() == 600 && all.is_sorted(), "{}", all.len());
            Ok(())
        });
    }
}
