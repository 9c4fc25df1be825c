//! Sets of stream positions, as sorted ranges: the messages after a cursor that a session or a group has acknowledged. A
//! range may contain positions of other subscribers' messages, so acknowledgements that follow each other merge. There is
//! at most one range more than unacknowledged messages.
//!
//! The stored value is the cursor, 12 bytes, and then:
//!
//! | bytes | content |
//! |---|---|
//! | 1 | 1, the format |
//! | variable | for each range: the gap since the range before it (or the cursor), then its length; unsigned LEB128, at most 14 bytes each |
//! | 0 or 1 | padding 0, if these bytes would be a multiple of 12, which marks the older format |
//!
//! In the older format, the cursor is followed by single positions of 12 bytes.

use std::ops::Range;

use bytes::{Buf, BufMut, Bytes};

use crate::{
    error::{LayerError, LayerResult},
    limits::ACKNOWLEDGED_BYTES_MAX,
    position::{Position, position},
};

const FORMAT: u8 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Sorted, disjoint and not adjacent.
    ranges: Vec<Range<u128>>,
}

impl Positions {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    #[must_use]
    pub fn contains(&self, position: Position) -> bool {
        self.find(number(position)).is_some()
    }

    /// The end of the range that begins right after `at` or contains it, else `at`.
    #[must_use]
    pub fn skip(&self, at: Position) -> Position {
        let found = self.find(number(at).saturating_add(1));
        found.map_or(at, |index| from_number(self.ranges[index].end - 1).max(at))
    }

    pub fn add(&mut self, position: Position) {
        self.add_numbers(number(position)..number(position) + 1);
    }

    /// Adds the positions in `(after, through]`.
    pub fn add_range(&mut self, after: Position, through: Position) {
        if after < through {
            self.add_numbers(number(after) + 1..number(through) + 1);
        }
    }

    /// Removes everything up to and including `cursor`.
    pub fn cut(&mut self, cursor: Position) {
        let begin = number(cursor) + 1;
        let over = self.ranges.partition_point(|range| range.end <= begin);
        self.ranges.drain(..over);
        if let Some(first) = self.ranges.first_mut() {
            first.start = first.start.max(begin);
        }
    }

    /// This set without `open`, which must be sorted.
    #[must_use]
    pub fn without(&self, open: &[Position]) -> Self {
        let mut ranges = Vec::with_capacity(self.ranges.len() + open.len());
        let mut open = open.iter().map(|position| number(*position)).peekable();
        for range in &self.ranges {
            let mut start = range.start;
            while open.next_if(|open| *open < start).is_some() {}
            while let Some(open) = open.next_if(|open| *open < range.end) {
                if start < open {
                    ranges.push(start..open);
                }
                start = open + 1;
            }
            if start < range.end {
                ranges.push(start..range.end);
            }
        }
        Self { ranges }
    }

    /// The cursor of a subscriber, and what the subscriber has acknowledged after the cursor: it has got everything up
    /// to `base` and the messages of this set, and has not acknowledged `open`.
    #[must_use]
    pub fn progress(&self, base: Position, mut open: Vec<Position>) -> (Position, Self) {
        open.sort_unstable();
        let cursor = open.first().map_or(base, |first| base.min(first.before()));
        let mut all = self.clone();
        all.cut(cursor);
        all.add_range(cursor, base);
        (cursor, all.without(&open))
    }

    fn find(&self, number: u128) -> Option<usize> {
        let index = self.ranges.partition_point(|range| range.end <= number);
        self.ranges.get(index).is_some_and(|range| range.start <= number).then_some(index)
    }

    fn add_numbers(&mut self, mut new: Range<u128>) {
        if self.ranges.last().is_none_or(|last| last.end < new.start) {
            return self.ranges.push(new);
        }
        let from = self.ranges.partition_point(|range| range.end < new.start);
        let to = from + self.ranges[from..].partition_point(|range| range.start <= new.end);
        if let Some(touched) = self.ranges.get(from..to).filter(|touched| !touched.is_empty()) {
            new.start = new.start.min(touched[0].start);
            new.end = new.end.max(touched[touched.len() - 1].end);
        }
        self.ranges.splice(from..to, [new]);
    }

    /// A cursor and what is acknowledged after it. Ranges that a value cannot hold are left out from the end.
    pub(crate) fn encode(&self, cursor: Position) -> Vec<u8> {
        let mut value = cursor.0.to_vec();
        let mut last = number(cursor) + 1;
        for range in &self.ranges {
            if range.end <= last {
                continue;
            }
            if value.len() == Position::LEN {
                value.put_u8(FORMAT);
            }
            if value.len() + 2 * VARINT_BYTES_MAX > ACKNOWLEDGED_BYTES_MAX {
                break;
            }
            let start = range.start.max(last);
            put_varint(&mut value, start - last);
            put_varint(&mut value, range.end - start);
            last = range.end;
        }
        if value.len() > Position::LEN && value.len().is_multiple_of(Position::LEN) {
            value.put_u8(0);
        }
        value
    }

    pub(crate) fn decode(mut value: Bytes) -> LayerResult<(Position, Self)> {
        let cursor = position(&mut value)?;
        let mut acknowledged = Self::default();
        if value.len().is_multiple_of(Position::LEN) {
            while value.has_remaining() {
                acknowledged.add(position(&mut value)?);
            }
            return Ok((cursor, acknowledged));
        }
        if value.try_get_u8()? != FORMAT {
            return Err(LayerError::Corrupt("acknowledged messages"));
        }
        let mut last = number(cursor) + 1;
        while value.has_remaining() {
            let start = last.checked_add(take_varint(&mut value)?);
            if !value.has_remaining() {
                break;
            }
            let length = take_varint(&mut value)?;
            let end = start.and_then(|start| start.checked_add(length)).filter(|end| *end <= END);
            let (Some(start), Some(end)) = (start, end) else {
                return Err(LayerError::Corrupt("acknowledged messages"));
            };
            acknowledged.add_numbers(start..end);
            last = end;
        }
        Ok((cursor, acknowledged))
    }
}

impl FromIterator<Position> for Positions {
    fn from_iter<I: IntoIterator<Item = Position>>(positions: I) -> Self {
        let mut acknowledged = Self::default();
        positions.into_iter().for_each(|position| acknowledged.add(position));
        acknowledged
    }
}

const END: u128 = 1 << (8 * Position::LEN);
const VARINT_BYTES_MAX: usize = (8 * Position::LEN).div_ceil(7);

fn number(position: Position) -> u128 {
    position.0.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn from_number(number: u128) -> Position {
    let mut bytes = [0; Position::LEN];
    bytes.copy_from_slice(&number.to_be_bytes()[size_of::<u128>() - Position::LEN..]);
    Position(bytes)
}

fn put_varint(value: &mut Vec<u8>, mut number: u128) {
    while number > 0x7f {
        value.put_u8(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    value.put_u8(number.to_le_bytes()[0]);
}

fn take_varint(value: &mut Bytes) -> LayerResult<u128> {
    let mut number = 0;
    for at in 0..VARINT_BYTES_MAX {
        let byte = value.try_get_u8()?;
        number |= u128::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(LayerError::Corrupt("acknowledged messages"))
}

#[cfg(test)]
#[path = "positions_tests.rs"]
mod tests;
