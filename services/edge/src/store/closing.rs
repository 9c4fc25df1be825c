//! Closes brokers that nobody uses: see [`crate::broker`]. The threads that open brokers close them, too.

use std::sync::atomic::Ordering;

use super::Shared;
use crate::clock::Millis;

/// Looks at the brokers within the time after which an idle one is closed.
const LOOKS: u32 = 10;

impl Shared {
    /// The time between two looks, `None` if no broker is closed.
    pub(super) fn look_every_ms(&self) -> Option<Millis> {
        let idle_s = Millis::from(self.limits.broker_idle_s);
        (idle_s > 0).then_some(idle_s * 1_000 / Millis::from(LOOKS))
    }

    pub(super) fn close_idle(&self) {
        let Some(every_ms) = self.look_every_ms() else { return };
        let (now, look_at) = (self.clock.now(), &self.openings.look_at);
        let at = look_at.load(Ordering::Relaxed);
        let next = now + every_ms;
        if now < at || look_at.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        for (id, name) in self.brokers.idle(LOOKS) {
            self.close(id, &name);
        }
    }

    /// The broker is not opened again before the pod has left it in the region.
    fn close(&self, id: u64, name: &str) {
        if !self.openings.begin(name) {
            return;
        }
        let version = self.brokers.peek(id).map_or(0, |broker| broker.elsewhere.own.lock().version);
        if self.brokers.close(id) {
            if let Some(region) = &self.region {
                region.leave_broker(id, version);
            }
            tracing::debug!(broker = name, "closed a broker that nobody uses");
        }
        let waiting = self.openings.end(name);
        waiting.into_iter().for_each(|core| self.ask_for_broker(core, name.into()));
    }
}
