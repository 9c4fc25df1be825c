//! Counters of calls by result. Several threads write them, but none per message.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::Metric;

macro_rules! results {
    ($($result:literal)*) => { &[$(($result, concat!("result=\"", $result, "\""))),*] };
}

pub(super) use results;

pub(super) type Results = &'static [(&'static str, &'static str)];

pub(super) struct ResultCounters {
    name: &'static str,
    help: &'static str,
    results: Results,
    counts: Box<[AtomicU64]>,
}

impl ResultCounters {
    pub(super) fn new(name: &'static str, help: &'static str, results: Results) -> Self {
        Self { name, help, results, counts: results.iter().map(|_| AtomicU64::new(0)).collect() }
    }

    /// Unlisted results count as the last one.
    pub(super) fn add(&self, result: &str) {
        let place = self.results.iter().position(|(one, _)| *one == result);
        self.counts[place.unwrap_or(self.results.len() - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn metrics(&self) -> impl Iterator<Item = (Metric, u64)> {
        self.results.iter().zip(&self.counts).map(|((_, labels), count)| {
            let metric = Metric { kind: "counter", name: self.name, labels, help: self.help };
            (metric, count.load(Ordering::Relaxed))
        })
    }
}

pub(super) fn gauge(name: &'static str, help: &'static str, value: usize) -> (Metric, u64) {
    (Metric { kind: "gauge", name, labels: "", help }, value as u64)
}
