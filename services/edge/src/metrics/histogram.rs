//! Histograms of durations, each in cache lines of its own, because every core writes its own set.

use std::fmt::Write;

use millrace_layers::metering::LATENCY_BOUNDS_US as BOUNDS_US;

use super::Count;

#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Histogram {
    /// One bucket for each of [`BOUNDS_US`], of durations up to it and above the bound before, and one for longer durations.
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

    pub(crate) fn add_to(&self, counts: &mut [u64; BOUNDS_US.len() + 1]) {
        counts.iter_mut().zip(&self.buckets).for_each(|(sum, bucket)| *sum += bucket.get());
    }

    pub(crate) fn write<'h>(
        out: &mut String,
        name: &str,
        help: &str,
        parts: impl IntoIterator<Item = &'h Self, IntoIter: Clone>,
    ) {
        Self::write_head(out, name, help);
        Self::write_row(out, name, "", parts.into_iter());
    }

    pub(crate) fn write_head(out: &mut String, name: &str, help: &str) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
    }

    /// Writes the sum of `parts`. `label` (with quotes) distinguishes it from other rows; "" if there is one row.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn write_row<'h>(
        out: &mut String,
        name: &str,
        label: &str,
        parts: impl Iterator<Item = &'h Self> + Clone,
    ) {
        let comma = if label.is_empty() { "" } else { "," };
        let labels = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
        let mut count = 0;
        let bounds = BOUNDS_US.iter().map(|bound| (*bound as f64 / 1e6).to_string());
        for (index, bound) in bounds.chain(["+Inf".into()]).enumerate() {
            count += Count::sum(parts.clone().map(|part| &part.buckets[index]));
            let _ = writeln!(out, "{name}_bucket{{{label}{comma}le=\"{bound}\"}} {count}");
        }
        let sum = Count::sum(parts.map(|part| &part.sum_us)) as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}");
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
        text.clear();
        Histogram::write_row(&mut text, "x_seconds", "step=\"a\"", parts.iter());
        for line in [
            "x_seconds_bucket{step=\"a\",le=\"+Inf\"} 11",
            "x_seconds_sum{step=\"a\"} 70.001503",
            "x_seconds_count{step=\"a\"} 11",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }
}
