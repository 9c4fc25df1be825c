//! The traffic of one thread in a run, and the sum of several threads.

use crate::latency::Histogram;
use crate::receipts::Faults;

pub(crate) struct Tally {
    /// By publisher, including messages before the run.
    pub(crate) sent: Vec<u32>,
    pub(crate) acked: u64,
    pub(crate) delivered: u64,
    pub(crate) faults: Faults,
    pub(crate) latency: Option<Histogram>,
    pub(crate) ack_latency: Option<Histogram>,
    pub(crate) timed_out: bool,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        for (mine, theirs) in self.sent.iter_mut().zip(other.sent) {
            // Only one thread sends for a publisher; the other threads have the number from before
            // the run.
            *mine = theirs.max(*mine);
        }
        self.acked += other.acked;
        self.delivered += other.delivered;
        self.faults.add(other.faults);
        for (mine, theirs) in
            [(&mut self.latency, &other.latency), (&mut self.ack_latency, &other.ack_latency)]
        {
            if let (Some(mine), Some(theirs)) = (mine, theirs) {
                mine.add(theirs);
            }
        }
        self.timed_out |= other.timed_out;
    }
}
