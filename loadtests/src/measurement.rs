//! Measures a part of a run: wall time, CPU time of both sides, bytes written to disk, memory.

use crate::broker::Broker;
use crate::clock;
use crate::failure::Outcome;
use crate::procfs::{self, Memory};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) wall_seconds: f64,
    pub(crate) server_cpu_seconds: f64,
    pub(crate) driver_cpu_seconds: f64,
    /// Bytes that the broker made the kernel write to disks, in whole pages: a page written twice
    /// counts twice.
    pub(crate) written_bytes: u64,
    pub(crate) memory_before: Memory,
    pub(crate) memory_after: Memory,
}

pub(crate) struct Measurement<'a> {
    broker: &'a Broker,
    start_ns: u64,
    before: Cost,
}

impl<'a> Measurement<'a> {
    pub(crate) fn start(broker: &'a Broker) -> Outcome<Self> {
        Self::start_with(broker, broker.memory())
    }

    pub(crate) fn start_with(broker: &'a Broker, memory_before: Memory) -> Outcome<Self> {
        let before = Cost {
            server_cpu_seconds: broker.cpu_seconds()?,
            driver_cpu_seconds: procfs::own_cpu_seconds(),
            written_bytes: broker.written_bytes(),
            memory_before,
            ..Cost::default()
        };
        Ok(Self { broker, start_ns: clock::now_ns(), before })
    }

    pub(crate) fn stop(&self) -> Outcome<Cost> {
        Ok(Cost {
            wall_seconds: clock::ns_seconds(clock::now_ns() - self.start_ns),
            server_cpu_seconds: self.broker.cpu_seconds()? - self.before.server_cpu_seconds,
            driver_cpu_seconds: procfs::own_cpu_seconds() - self.before.driver_cpu_seconds,
            written_bytes: self.broker.written_bytes().saturating_sub(self.before.written_bytes),
            memory_before: self.before.memory_before,
            memory_after: self.broker.memory(),
        })
    }

    /// Waits until the broker uses no more CPU, so that its work after the last answer counts, too.
    /// Wall time and the driver's CPU time do not include the wait.
    pub(crate) fn stop_at_rest(&self) -> Outcome<Cost> {
        let now = self.stop()?;
        self.broker.wait_for_rest()?;
        let rested = self.stop()?;
        Ok(Cost { wall_seconds: now.wall_seconds, driver_cpu_seconds: now.driver_cpu_seconds, ..rested })
    }
}

impl Cost {
    pub(crate) fn server_us_each(&self, count: u64) -> f64 {
        self.server_cpu_seconds * 1e6 / count.max(1) as f64
    }

    /// Microseconds of the driver's CPU for each item. Well below the broker's, or the driver is
    /// the bottleneck.
    pub(crate) fn driver_us_each(&self, count: u64) -> f64 {
        self.driver_cpu_seconds * 1e6 / count.max(1) as f64
    }

    pub(crate) fn written_bytes_each(&self, count: u64) -> f64 {
        self.written_bytes as f64 / count.max(1) as f64
    }

    pub(crate) fn rss_bytes_each(&self, count: u64) -> f64 {
        let grown_kb = self.memory_after.rss_kb.saturating_sub(self.memory_before.rss_kb);
        grown_kb as f64 * 1024.0 / count.max(1) as f64
    }

    pub(crate) fn per_server_cpu_second(&self, count: u64) -> f64 {
        count as f64 / self.server_cpu_seconds.max(procfs::TICK_SECONDS)
    }
}
