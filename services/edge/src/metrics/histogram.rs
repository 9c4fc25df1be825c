//! Durations counted by how long they took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets: microseconds, and seconds as `/metrics` writes them.
const BOUNDS: [(u64, &str); 17] = [
    (50, "0.00005"),
    (100, "0.0001"),
    (250, "0.00025"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (20_000, "0.02"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (10_000_000, "10"),
];

/// A histogram with a single writer or few writers. An event loop has one of its own and adds to it once a turn.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Durations up to each bound and above the one before it; the last is above all bounds.
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    /// Counts `n` things that took `took` each.
    pub(crate) fn observe(&self, took: Duration, n: usize) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < micros);
        self.counts[bucket].fetch_add(n as u64, Ordering::Relaxed);
        self.micros.fetch_add(micros.saturating_mul(n as u64), Ordering::Relaxed);
    }

    /// Appends the text format; `name` ends with `_seconds`.
    pub(crate) fn write(&self, out: &mut String, name: &str, help: &str) {
        Self::write_sum(out, name, help, std::slice::from_ref(self));
    }

    /// Appends the sum of `parts` as one histogram.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn write_sum(out: &mut String, name: &str, help: &str, parts: &[Self]) {
        use std::fmt::Write;

        let total = |of: &dyn Fn(&Self) -> &AtomicU64| -> u64 {
            parts.iter().map(|part| of(part).load(Ordering::Relaxed)).sum()
        };

        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut sum = 0;
        let bounds = BOUNDS.iter().map(|(_, seconds)| *seconds).chain(["+Inf"]);
        for (index, bound) in bounds.enumerate() {
            sum += total(&|part| &part.counts[index]);
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {sum}");
        }
        let seconds = total(&|part| &part.micros) as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum {seconds}\n{name}_count {sum}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_took_at_most_its_bound() {
        let histogram = Histogram::default();
        for (micros, n) in [(0, 1), (500, 1), (501, 2), (9_999_999, 3), (10_000_001, 4)] {
            histogram.observe(Duration::from_micros(micros), n);
        }
        let mut text = String::new();
        histogram.write(&mut text, "x_seconds", "Help.");
        for line in [
            "# TYPE x_seconds histogram",
            "x_seconds_bucket{le=\"0.0005\"} 2",
            "x_seconds_bucket{le=\"0.001\"} 4",
            "x_seconds_bucket{le=\"2.5\"} 4",
            "x_seconds_bucket{le=\"10\"} 7",
            "x_seconds_bucket{le=\"+Inf\"} 11",
            "x_seconds_sum 70.001503",
            "x_seconds_count 11",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }
}
