//! Metrics of a broker over time. Each process writes a row of its own for each minute and each hour in which it had
//! something to count, and a reader adds up the rows of a window. A row is written whole, so that a repeated write
//! changes nothing, and the rows of a restarted process stay beside those of the new one.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction};

use super::levels::{self, Level};
use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    limits::{HISTORY_HOURS_KEPT, HISTORY_MINUTES_KEPT},
    rows, tags,
    tuple::{Elements, Key},
};

/// Upper bounds of the classes of latencies, microseconds: from a short turn of an event loop to a store that hardly
/// responds. They are part of the stored format and never change.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];

/// The order is part of the stored format: new reasons go to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropCause {
    BusySocket = 0,
    QueueFull = 1,
    QueueMemory = 2,
    Expired = 3,
    PacketTooLarge = 4,
    StoredLimit = 5,
}

pub const DROP_REASONS: usize = 6;
/// A row has room for more reasons, so that the numbers after them stay where they are when one is added.
const DROP_PLACES: usize = 16;

/// Counts of durations by [`LATENCY_BOUNDS_US`], then of longer ones.
pub type LatencyClasses = [u64; LATENCY_BOUNDS_US.len() + 1];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    Minute,
    Hour,
}

/// The counts of one process in a window, or the sum over all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// From its window's start until the process began to count, milliseconds.
    pub begin_ms: u64,
    /// From its window's start until the process wrote the row, milliseconds.
    pub end_ms: u64,
    /// Time of the window that [`Point::begin_ms`] and [`Point::end_ms`] of all rows cover. Not stored.
    pub measured_ms: u64,
    /// Time of connections, added up over the connections.
    pub connected_ms: u64,
    pub messages_in: u64,
    pub messages_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Messages in streams at the end.
    pub stored_messages: u64,
    pub stored_bytes: u64,
    /// Times from a message to its PUBACK or PUBREC.
    pub latencies: LatencyClasses,
    /// By [`DropCause`].
    pub drops: [u64; DROP_REASONS],
    /// Times from reading a PUBLISH to its delivery, of the messages that event loops time.
    pub deliveries: LatencyClasses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPoint {
    pub resolution: Resolution,
    /// Start of the window, unix milliseconds.
    pub from_ms: u64,
    pub point: Point,
}

impl Resolution {
    pub const ALL: [Self; 2] = [Self::Minute, Self::Hour];

    #[must_use]
    pub fn window_ms(self) -> u64 {
        match self {
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
        }
    }

    #[must_use]
    pub fn window_of(self, at_ms: u64) -> u64 {
        at_ms - at_ms % self.window_ms()
    }

    #[must_use]
    pub fn kept_ms(self) -> u64 {
        match self {
            Self::Minute => HISTORY_MINUTES_KEPT * self.window_ms(),
            Self::Hour => HISTORY_HOURS_KEPT * self.window_ms(),
        }
    }
}

impl Point {
    /// Adds the counts of another process or a later window, but takes the stored messages of `later`.
    pub fn add(&mut self, later: &Self) {
        let sums = [
            (&mut self.measured_ms, later.measured_ms),
            (&mut self.connected_ms, later.connected_ms),
            (&mut self.messages_in, later.messages_in),
            (&mut self.messages_out, later.messages_out),
            (&mut self.bytes_in, later.bytes_in),
            (&mut self.bytes_out, later.bytes_out),
        ];
        let classes = self.latencies.iter_mut().zip(later.latencies);
        let reasons = self.drops.iter_mut().zip(later.drops);
        let deliveries = self.deliveries.iter_mut().zip(later.deliveries);
        for (sum, added) in sums.into_iter().chain(classes).chain(reasons).chain(deliveries) {
            *sum = sum.saturating_add(added);
        }
        (self.stored_messages, self.stored_bytes) = (later.stored_messages, later.stored_bytes);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        // The first two numbers are times.
        self.numbers().skip(2).all(|number| number == 0)
    }

    fn numbers(&self) -> impl DoubleEndedIterator<Item = u64> + use<> {
        let Self { begin_ms, end_ms, connected_ms, messages_in, messages_out, bytes_in, bytes_out, .. } =
            *self;
        let first = [
            begin_ms,
            end_ms,
            connected_ms,
            messages_in,
            messages_out,
            bytes_in,
            bytes_out,
            self.stored_messages,
            self.stored_bytes,
        ];
        let free = [0; DROP_PLACES - DROP_REASONS];
        first.into_iter().chain(self.latencies).chain(self.drops).chain(free).chain(self.deliveries)
    }

    /// LEB128 numbers without the zeros at the end, so that a quiet point has a dozen bytes.
    fn encode(&self) -> Bytes {
        let mut numbers: Vec<u64> = self.numbers().collect();
        while numbers.pop_if(|last| *last == 0).is_some() {}
        let mut value = Vec::with_capacity(2 * numbers.len());
        for mut number in numbers {
            while number >= 0x80 {
                value.put_u8(number as u8 | 0x80);
                number >>= 7;
            }
            value.put_u8(number as u8);
        }
        value.into()
    }

    fn decode(mut value: &[u8]) -> LayerResult<Self> {
        let mut next = || -> LayerResult<u64> {
            let (mut number, mut shift) = (0, 0);
            while value.has_remaining() {
                let byte = value.get_u8();
                number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
                if byte < 0x80 {
                    break;
                }
                shift += 7;
            }
            Ok(number)
        };
        let mut point = Self {
            begin_ms: next()?,
            end_ms: next()?,
            measured_ms: 0,
            connected_ms: next()?,
            messages_in: next()?,
            messages_out: next()?,
            bytes_in: next()?,
            bytes_out: next()?,
            stored_messages: next()?,
            stored_bytes: next()?,
            ..Self::default()
        };
        for number in point.latencies.iter_mut().chain(&mut point.drops) {
            *number = next()?;
        }
        for _ in DROP_REASONS..DROP_PLACES {
            next()?;
        }
        for number in &mut point.deliveries {
            *number = next()?;
        }
        Ok(point)
    }
}

/// The duration in microseconds that this share of all durations does not exceed, interpolated within its class.
/// `None` without durations.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn latency_us(classes: &LatencyClasses, share: f64) -> Option<u64> {
    let total: u64 = classes.iter().sum();
    let rank = (total as f64 * share).max(1.0);
    let (mut below, mut from_us) = (0.0, 0);
    for (index, count) in classes.iter().enumerate() {
        let to_us = LATENCY_BOUNDS_US.get(index).copied().unwrap_or(from_us);
        let count = *count as f64;
        if count > 0.0 && below + count >= rank {
            return Some(from_us + ((to_us - from_us) as f64 * (rank - below) / count).round() as u64);
        }
        (below, from_us) = (below + count, to_us);
    }
    None
}

/// Reads in a snapshot the windows from that of `from_ms` to before `to_ms` that have rows, with the sum of each.
pub async fn history(
    tx: &Transaction,
    broker: BrokerId,
    resolution: Resolution,
    from_ms: u64,
    to_ms: u64,
) -> LayerResult<Vec<(u64, Point)>> {
    let prefix = all(broker, resolution);
    let from_ms = resolution.window_of(from_ms);
    let range = KeyRange::new(window(broker, resolution, from_ms), window(broker, resolution, to_ms));
    let mut found: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
    for row in rows::all(tx, range, Read::Snapshot).await? {
        let at_ms = Elements::after(&prefix, &row.key)?.uint()?;
        found.entry(at_ms).or_default().push(Point::decode(&row.value)?);
    }
    Ok(found.into_iter().map(|(at_ms, points)| (at_ms, of_all(points))).collect())
}

fn of_all(mut points: Vec<Point>) -> Point {
    points.sort_unstable_by_key(|point| point.end_ms);
    let mut sum = Point::default();
    for point in &points {
        sum.add(point);
    }
    points.sort_unstable_by_key(|point| point.begin_ms);
    let mut until = 0;
    for Point { begin_ms, end_ms, .. } in points {
        sum.measured_ms += end_ms.saturating_sub(begin_ms.max(until));
        until = until.max(end_ms);
    }
    sum
}

/// Writes a row of the process `writer`, with the present backlog of the broker.
pub(super) async fn write(
    tx: &Transaction,
    broker: BrokerId,
    writer: u64,
    new: &NewPoint,
) -> LayerResult<()> {
    let (stored_messages, stored_bytes) = stored(tx, broker).await?;
    let point = Point { stored_messages, stored_bytes, ..new.point };
    Ok(tx.set(window(broker, new.resolution, new.from_ms).uint(writer), point.encode())?)
}

/// Messages in the streams of a broker and their bytes; a message counts once for each filter. A snapshot read.
pub async fn stored(tx: &Transaction, broker: BrokerId) -> LayerResult<(u64, u64)> {
    let count = async |key| {
        let count = rows::counter(tx, &key, Read::Snapshot).await?;
        Ok::<_, LayerError>(count.cast_signed().max(0).cast_unsigned())
    };
    Ok((count(levels::messages(broker)).await?, count(levels::key(broker, Level::Bytes)).await?))
}

/// Removes points that are too old, and returns whether there were any. Reads first, so that a broker without old
/// points writes nothing.
pub async fn forget_history(tx: &Transaction, broker: BrokerId, now_ms: u64) -> LayerResult<bool> {
    let mut found = false;
    for resolution in Resolution::ALL {
        let oldest_ms = resolution.window_of(now_ms).saturating_sub(resolution.kept_ms());
        let old =
            KeyRange::new(all(broker, resolution).children().begin, window(broker, resolution, oldest_ms));
        let first = tx.range(old.clone(), RangeOptions::first(1).snapshot()).await?;
        if !first.items.is_empty() {
            found = true;
            tx.clear_range(old)?;
        }
    }
    Ok(found)
}

fn all(broker: BrokerId, resolution: Resolution) -> Key {
    Key::new(broker, tags::HISTORY).uint(resolution.window_ms())
}

fn window(broker: BrokerId, resolution: Resolution, from_ms: u64) -> Key {
    all(broker, resolution).uint(from_ms)
}
