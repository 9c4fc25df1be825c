//! Measures how long the messages of a broker take, for the metrics of the tenant.

use std::sync::atomic::{AtomicU64, Ordering};

use millrace_layers::metering::{LATENCY_BOUNDS_US as BOUNDS_US, LatencyClasses};

use super::Histogram;

#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// For each QoS 1 or 2 message, how old the oldest job of its batch was after the commit; the writer thread adds to it.
    pub(crate) acknowledged: Histogram,
    /// From reading a PUBLISH until one loop has passed it to its receivers. Every loop adds to it, so the additions are atomic;
    /// loops time few messages.
    delivered: [AtomicU64; BOUNDS_US.len() + 1],
}

impl Latencies {
    pub(crate) fn note_delivery(&self, micros: u64) {
        let class = BOUNDS_US.partition_point(|bound| *bound < micros);
        self.delivered[class].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn deliveries(&self) -> LatencyClasses {
        std::array::from_fn(|class| self.delivered[class].load(Ordering::Relaxed))
    }
}
