//! A histogram of latencies with a fixed size and an error below 1 %.

/// Buckets in each power of two: the middle of a bucket is within 1 % of every value in it.
const BUCKETS_PER_OCTAVE: usize = 128;
const OCTAVE_BITS: u32 = BUCKETS_PER_OCTAVE.trailing_zeros();
/// The largest value is far above an hour.
const OCTAVES: usize = 40;

/// Latencies in nanoseconds.
#[derive(Clone)]
pub(crate) struct Histogram {
    counts: Vec<u32>,
    total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Percentiles {
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; OCTAVES * BUCKETS_PER_OCTAVE], total: 0 }
    }

    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        let last = self.counts.len() - 1;
        self.counts[bucket(ns).min(last)] += 1;
        self.total += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
    }

    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        Some(Percentiles {
            p50_ns: self.at_per_mille(500)?,
            p99_ns: self.at_per_mille(990)?,
            p999_ns: self.at_per_mille(999)?,
        })
    }

    /// The lowest bucket such that at least this share of the values is in it or below.
    fn at_per_mille(&self, per_mille: u64) -> Option<u64> {
        let rank = (self.total * per_mille).div_ceil(1000).max(1);
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += u64::from(*count);
            below >= rank
        });
        found.map(middle)
    }
}

fn bucket(ns: u64) -> usize {
    let octave = (u64::BITS - ns.leading_zeros()).saturating_sub(OCTAVE_BITS);
    if octave == 0 {
        return ns as usize;
    }
    // From the second octave on the top bit is always set, so only the upper half of an octave's
    // buckets is used.
    octave as usize * BUCKETS_PER_OCTAVE + (ns >> octave) as usize
}

fn middle(bucket: usize) -> u64 {
    let octave = bucket / BUCKETS_PER_OCTAVE;
    let base = (bucket % BUCKETS_PER_OCTAVE) as u64;
    (base << octave) + (1u64 << octave) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(Histogram::new().percentiles(), None);
    }

    #[test]
    fn every_value_lands_within_one_percent() {
        for exponent in 0..39 {
            for value in [1u64 << exponent, (1 << exponent) + (1 << exponent) / 3, (2 << exponent) - 1] {
                let near = middle(bucket(value));
                assert!(near.abs_diff(value) * 100 <= value, "{value} became {near}");
            }
        }
    }

    #[test]
    fn percentiles_of_a_known_series() {
        let mut histogram = Histogram::new();
        for us in 1..=1000u64 {
            histogram.record(us * 1000);
        }
        let found = histogram.percentiles().unwrap();
        for (got, exact) in [(found.p50_ns, 500_000), (found.p99_ns, 990_000), (found.p999_ns, 999_000)] {
            assert!(got.abs_diff(exact) * 100 <= exact, "{got} is not {exact}");
        }
    }

    #[test]
    fn one_slow_message_of_a_hundred_shows_only_above_p99() {
        let mut histogram = Histogram::new();
        for _ in 0..99 {
            histogram.record(100);
        }
        histogram.record(1_000_000);
        let found = histogram.percentiles().unwrap();
        assert_eq!((found.p50_ns, found.p99_ns), (100, 100));
        assert!(found.p999_ns > 990_000);
    }

    #[test]
    fn added_histograms_count_both() {
        let (mut left, mut right) = (Histogram::new(), Histogram::new());
        left.record(10);
        right.record(90);
        left.add(&right);
        assert_eq!(left.total, 2);
        assert_eq!(left.percentiles().unwrap().p99_ns, 90);
    }

    #[test]
    fn absurd_latencies_stay_in_the_last_bucket() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        assert!(histogram.percentiles().is_some());
    }
}
