//! Rows of a broker's history: the counts of each minute and each hour.
//!
//! A reading covers some seconds of one minute. While the store does not answer there is no reading, so the next reading
//! covers many minutes: its counts are spread evenly over them, because nobody knows when they were counted.

use std::collections::BTreeMap;

use millrace_layers::metering::{NewPoint, Point, Resolution};

/// Latest minutes of a long span that get rows of their own; earlier minutes have only the rows of their hours.
const MINUTES_MAX: u64 = 60;

#[derive(Default)]
pub(super) struct History {
    minute: Point,
    hour: Point,
    /// The last minute had a row. The next minute gets one even without counts, which shows that the broker is quiet.
    has_row: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadingSpan {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    /// The process ends, so this reading is its last.
    pub(super) is_leaving: bool,
}

impl ReadingSpan {
    fn ends(&self, resolution: Resolution) -> bool {
        self.is_leaving || resolution.window_of(self.from_ms) != resolution.window_of(self.to_ms)
    }

    /// Splits the span into minutes, and before the last [`MINUTES_MAX`] minutes into hours.
    fn parts(&self) -> Vec<Self> {
        let (minute, hour) = (Resolution::Minute, Resolution::Hour);
        let minutes_from_ms = minute.window_of(self.to_ms.saturating_sub(MINUTES_MAX * minute.window_ms()));
        let (mut parts, mut from_ms) = (Vec::new(), self.from_ms);
        loop {
            let (unit, bound_ms) = match from_ms < minutes_from_ms {
                true => (hour, minutes_from_ms),
                false => (minute, self.to_ms),
            };
            let to_ms = (unit.window_of(from_ms) + unit.window_ms()).min(bound_ms).min(self.to_ms);
            let is_last = to_ms >= self.to_ms;
            parts.push(Self { from_ms, to_ms, is_leaving: self.is_leaving && is_last });
            if is_last {
                return parts;
            }
            from_ms = to_ms;
        }
    }

    fn is_within_a_minute(&self) -> bool {
        self.to_ms - self.from_ms <= Resolution::Minute.window_ms()
    }
}

impl History {
    /// Whether the rows have all counts: without further ones no row follows.
    pub(super) fn is_written(&self) -> bool {
        self.hour.is_empty() && !self.has_row
    }

    /// Counts towards the present minute and hour, and returns the rows to write at their ends. `began_ms`: when this process
    /// began to count, which the first row shows.
    pub(super) fn points(&mut self, counted: &Point, span: ReadingSpan, began_ms: u64) -> Vec<NewPoint> {
        let (mut rows, mut left) = (BTreeMap::new(), *counted);
        let parts = span.parts();
        for (number, part) in parts.iter().enumerate() {
            let of_part = if number + 1 == parts.len() { left } else { share(&left, part, &span) };
            left = without(&left, &of_part);
            for row in self.count(&of_part, *part, began_ms) {
                // A later row of the same hour has the counts of the earlier ones.
                rows.insert((row.from_ms, row.resolution.window_ms()), row);
            }
        }
        rows.into_values().collect()
    }

    fn count(&mut self, counted: &Point, span: ReadingSpan, began_ms: u64) -> Vec<NewPoint> {
        let mut points = Vec::new();
        self.hour.add(counted);
        let has_minute = span.is_within_a_minute();
        if has_minute {
            self.minute.add(counted);
        }
        if !span.ends(Resolution::Minute) {
            return points;
        }
        let has_more = !self.minute.is_empty();
        if has_minute && (has_more || self.has_row) {
            points.push(row(Resolution::Minute, self.minute, span, began_ms));
        }
        // The hour's row is written with each row of a minute, and once more when the hour is over.
        let is_over = span.ends(Resolution::Hour);
        if !self.hour.is_empty() && (!points.is_empty() || is_over) {
            points.push(row(Resolution::Hour, self.hour, span, began_ms));
        }
        self.has_row = has_more;
        self.minute = Point::default();
        if is_over {
            self.hour = Point::default();
        }
        points
    }
}

/// The part's share, by its time, of the counts that are left for it and all later parts.
fn share(left: &Point, part: &ReadingSpan, all: &ReadingSpan) -> Point {
    let (of_part, of_left) = (part.to_ms - part.from_ms, (all.to_ms - part.from_ms).max(1));
    each(left, |count| {
        u64::try_from(u128::from(count) * u128::from(of_part) / u128::from(of_left)).unwrap_or(u64::MAX)
    })
}

fn without(all: &Point, some: &Point) -> Point {
    let mut left = *all;
    let fields = [
        (&mut left.connected_ms, some.connected_ms),
        (&mut left.messages_in, some.messages_in),
        (&mut left.messages_out, some.messages_out),
        (&mut left.bytes_in, some.bytes_in),
        (&mut left.bytes_out, some.bytes_out),
    ];
    let latencies = left.latencies.iter_mut().zip(some.latencies);
    let deliveries = left.deliveries.iter_mut().zip(some.deliveries);
    let lists = latencies.chain(left.drops.iter_mut().zip(some.drops)).chain(deliveries);
    for (count, some) in fields.into_iter().chain(lists) {
        *count -= some.min(*count);
    }
    left
}

fn each(point: &Point, of: impl Fn(u64) -> u64) -> Point {
    Point {
        connected_ms: of(point.connected_ms),
        messages_in: of(point.messages_in),
        messages_out: of(point.messages_out),
        bytes_in: of(point.bytes_in),
        bytes_out: of(point.bytes_out),
        latencies: point.latencies.map(&of),
        drops: point.drops.map(&of),
        deliveries: point.deliveries.map(&of),
        ..Point::default()
    }
}

fn row(resolution: Resolution, point: Point, span: ReadingSpan, began_ms: u64) -> NewPoint {
    let from_ms = resolution.window_of(span.from_ms);
    let begin_ms = began_ms.saturating_sub(from_ms);
    let end_ms = span.to_ms.saturating_sub(from_ms).min(resolution.window_ms());
    NewPoint { resolution, from_ms, point: Point { begin_ms, end_ms, ..point } }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;
    const BEGAN_MS: u64 = 1_000 * HOUR_MS;

    fn span(from_ms: u64, to_ms: u64) -> ReadingSpan {
        ReadingSpan { from_ms: BEGAN_MS + from_ms, to_ms: BEGAN_MS + to_ms, is_leaving: false }
    }

    /// Three clients that were connected all the time, and a message each second.
    fn counted(span: ReadingSpan) -> Point {
        let ms = span.to_ms - span.from_ms;
        Point { connected_ms: 3 * ms, messages_in: ms / 1_000, ..Point::default() }
    }

    fn of(points: &[NewPoint], resolution: Resolution) -> Vec<&NewPoint> {
        points.iter().filter(|point| point.resolution == resolution).collect()
    }

    #[test]
    fn readings_of_one_minute_make_its_row_when_it_is_over() {
        let mut history = History::default();
        for (from, to, rows) in [(0, 20_000, 0), (20_000, 40_000, 0), (40_000, MINUTE_MS, 2)] {
            let span = span(from, to);
            assert_eq!(history.points(&counted(span), span, BEGAN_MS).len(), rows);
        }
    }

    #[test]
    fn a_reading_after_an_outage_of_the_store_does_not_raise_the_average_of_one_minute() {
        for minutes in [2, 30, 200, 3_000] {
            let mut history = History::default();
            let whole = span(50_000, minutes * MINUTE_MS + 3);
            let points = history.points(&counted(whole), whole, BEGAN_MS);
            let rows = of(&points, Resolution::Minute);
            assert!(rows.len() as u64 >= minutes.min(MINUTES_MAX), "{minutes}: {}", rows.len());
            for row in &rows {
                // The first minute began before the reading.
                let (point, is_first) = (row.point, row.from_ms == BEGAN_MS);
                let measured = if is_first { 10_000 } else { point.end_ms - point.begin_ms };
                let average = point.connected_ms as f64 / measured as f64;
                assert!((2.9..=3.1).contains(&average), "{minutes}: {row:?}");
            }
            let hours = of(&points, Resolution::Hour);
            let starts: std::collections::BTreeSet<_> = hours.iter().map(|row| row.from_ms).collect();
            assert_eq!((hours.len(), hours.len() as u64), (starts.len(), minutes.div_ceil(60)), "{minutes}");
            // Three milliseconds of three clients are in the minute that has begun.
            let all: u64 = hours.iter().map(|row| row.point.connected_ms).sum();
            assert_eq!(all + 9, counted(whole).connected_ms, "{minutes}");
        }
    }
}
