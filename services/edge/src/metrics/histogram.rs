//! Histograms of durations.

use std::fmt::Write;

use super::Count;

/// Upper bounds of the buckets, microseconds: from a short turn of an event loop to a store that hardly responds.
const BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];

/// Only one thread adds to it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Histogram {
    /// Counts of durations up to each of [`BOUNDS_US`] and above the one before; then the rest.
    buckets: [Count; BOUNDS_US.len() + 1],
    sum_us: Count,
}

impl Histogram {
    pub(crate) fn note(&self, micros: u64) {
        self.note_many(micros, 1);
    }

    pub(crate) fn note_many(&self, micros: u64, n: usize) {
        let bucket = BOUNDS_US.partition_point(|bound| *bound < micros);
        self.buckets[bucket].add(n);
        self.sum_us.add(usize::try_from(micros).unwrap_or(usize::MAX).saturating_mul(n));
    }

    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn write(out: &mut String, name: &str, help: &str, parts: &[Self]) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut count = 0;
        let bounds = BOUNDS_US.iter().map(|bound| (*bound as f64 / 1e6).to_string());
        for (index, bound) in bounds.chain(["+Inf".into()]).enumerate() {
            count += Count::sum(parts.iter().map(|part| &part.buckets[index]));
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let sum = Count::sum(parts.iter().map(|part| &part.sum_us)) as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum {sum}\n{name}_count {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_took_at_most_its_bound() {
        let parts = [Histogram::default(), Histogram::default()];
        for (micros, n) in [(0, 1), (500, 1), (501, 2), (9_999_999, 3), (10_000_001, 4)] {
            parts[n % 2].note_many(micros, n);
        }
        let mut text = String::new();
        Histogram::write(&mut text, "x_seconds", "Help.", &parts);
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
