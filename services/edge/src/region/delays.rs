//! Measures how long messages take to other pods. At most once in [`EVERY_MS`] a pod sends the time along with a message, on the same
//! way, so that measuring costs nothing for the other messages.

use std::sync::atomic::{AtomicBool, Ordering};

use millrace_fabric::{Fabric, PodId};

use super::PodNetwork;
use super::wire::PodNotice;
use crate::clock::Millis;
use crate::metrics::Histogram;

pub(super) const EVERY_MS: Millis = 100;

#[derive(Default)]
pub(super) struct Delays {
    /// The next message is measured.
    is_due: AtomicBool,
    /// Only the fabric's thread adds to it.
    taken: Histogram,
}

impl Delays {
    /// The digest thread calls it every [`EVERY_MS`].
    pub(super) fn measure_next(&self) {
        self.is_due.store(true, Ordering::Relaxed);
    }
}

impl PodNetwork {
    /// Called before a message is sent to these pods. Pods of older builds ignore the notice.
    #[inline]
    pub(super) fn measure_delay(&self, fabric: &Fabric, broker: u64, pods: &[PodId]) {
        let is_due = &self.delays.is_due;
        if is_due.load(Ordering::Relaxed) && !pods.is_empty() && is_due.swap(false, Ordering::Relaxed) {
            let sent_ns = self.clock.unix_ns(self.clock.micros());
            PodNotice::Sent { sent_ns }.send_at(fabric, broker, pods);
        }
    }

    /// The clocks of two machines differ, and a message cannot arrive before it was sent.
    pub(super) fn time_came(&self, sent_ns: u64) {
        let came_ns = self.clock.unix_ns(self.clock.micros());
        self.delays.taken.note(came_ns.saturating_sub(sent_ns) / 1_000);
    }

    pub(crate) fn write_delays(&self, out: &mut String) {
        Histogram::write(
            out,
            "millrace_fabric_delay_seconds",
            "Time of messages from another pod's event loop or writer to this pod, by the clocks of both. At most ten messages a second are measured.",
            std::slice::from_ref(&self.delays.taken),
        );
    }
}
