//! Buffers of one event loop that are used again.

use std::sync::Arc;

use super::Outbound;

/// A run with more capacity is freed instead of reused, and so is a buffer.
pub(super) const KEEP_CAPACITY_MAX: usize = 256 * 1024;
const KEEP_CHUNKS_MAX: usize = 256;
/// Buffers, and runs (QoS 0 packets that are forwarded together), that a loop keeps for reuse.
const POOL_MAX: usize = 128;
pub(super) const RUNS_MAX: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Idle connections have no buffer.
    #[allow(
        clippy::vec_box,
        reason = "connections hold boxes: a buffer moves in and out without being copied"
    )]
    pub(super) buffers: Vec<Box<Outbound>>,
    /// The fewest buffers since the last [`Pool::shrink`].
    least: usize,
    /// The newest run is last: copying into memory that is still in the cache is faster.
    pub(super) runs: Vec<Arc<Vec<u8>>>,
    /// The first so many runs were not used since the last [`Pool::shrink`].
    unused_runs: usize,
}

impl Pool {
    pub(crate) fn take(&mut self) -> Box<Outbound> {
        let outbound = self.buffers.pop().unwrap_or_default();
        self.least = self.least.min(self.buffers.len());
        outbound
    }

    pub(crate) fn give(&mut self, mut outbound: Box<Outbound>) {
        let is_small = outbound.tail.capacity().max(outbound.control.capacity()) <= KEEP_CAPACITY_MAX
            && outbound.chunks.capacity() <= KEEP_CHUNKS_MAX;
        if self.buffers.len() < POOL_MAX && is_small {
            outbound.reset();
            self.buffers.push(outbound);
        }
    }

    /// Frees half of the buffers that were not needed since the last call, and all such runs: one run can keep 4 MiB of the
    /// allocator's memory, which it shares with freed buffers of its size.
    pub(crate) fn shrink(&mut self) {
        self.buffers.drain(..self.least.div_ceil(2));
        self.least = self.buffers.len();
        self.runs.drain(..self.unused_runs);
        self.unused_runs = self.runs.len();
    }

    fn take_run(&mut self, index: usize) -> Arc<Vec<u8>> {
        self.unused_runs -= usize::from(index < self.unused_runs);
        self.runs.remove(index)
    }

    /// Copies a run for several receivers, into the memory of the newest run that all its receivers have written and that
    /// has about its size: a buffer counts the bytes of a run, not its capacity.
    pub(crate) fn share(&mut self, bytes: &[u8]) -> Arc<Vec<u8>> {
        let fits = |capacity| (bytes.len()..=2 * bytes.len()).contains(&capacity);
        let written = self.runs.iter().rposition(|run| Arc::strong_count(run) == 1 && fits(run.capacity()));
        let mut run = written.map(|index| self.take_run(index)).unwrap_or_default();
        let copy = Arc::make_mut(&mut run);
        copy.clear();
        copy.extend_from_slice(bytes);
        if run.capacity() <= KEEP_CAPACITY_MAX {
            if self.runs.len() == RUNS_MAX {
                self.take_run(0);
            }
            self.runs.push(run.clone());
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_nobody_needs_are_freed_by_halves() {
        let mut pool = Pool::default();
        (0..7).for_each(|_| pool.give(Box::default()));
        let left: Vec<usize> = (0..6)
            .map(|_| {
                pool.shrink();
                pool.buffers.len()
            })
            .collect();
        assert_eq!(left, [7, 3, 1, 0, 0, 0]);
    }

    #[test]
    fn runs_that_nobody_needs_are_freed() {
        let mut pool = Pool::default();
        [1_000, 10_000, 100_000].into_iter().for_each(|bytes| drop(pool.share(&vec![0; bytes])));
        pool.shrink();
        assert_eq!(pool.runs.len(), 3);
        drop(pool.share(&[0; 10_000]));
        pool.shrink();
        assert_eq!(pool.runs.iter().map(|run| run.len()).collect::<Vec<_>>(), [10_000]);
        pool.shrink();
        assert!(pool.runs.is_empty());
    }
}
