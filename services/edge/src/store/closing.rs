//! Closes brokers that nobody uses: see [`crate::broker`]. The threads that open brokers close them, too.

use std::sync::atomic::Ordering;

use super::StoreContext;
use crate::clock::Millis;

/// Looks at the brokers within the time after which an idle one is closed.
const LOOKS: u32 = 10;

/// A closing in progress. When it ends, the broker is opened again for the event loops that asked for it meanwhile.
struct BrokerClosing<'s> {
    shared: &'s StoreContext,
    name: &'s str,
}

impl Drop for BrokerClosing<'_> {
    fn drop(&mut self) {
        let waiting = self.shared.openings.end(self.name);
        waiting.into_iter().for_each(|core| self.shared.ask_for_broker(core, self.name.into()));
        self.shared.open_if_due(self.name);
    }
}

impl StoreContext {
    /// The time between two looks; `None`: idle brokers stay open.
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
        for (id, name) in self.brokers.idle(LOOKS, every_ms) {
            self.close(id, &name);
        }
    }

    fn close(&self, id: u64, name: &str) {
        // An opening that still waits for other pods ends first.
        if self.region.as_ref().is_some_and(|region| region.is_opening(id)) || !self.openings.begin(name) {
            return;
        }
        let _closing = BrokerClosing { shared: self, name };
        if let Some(broker) = self.brokers.close(id) {
            if let Some(region) = &self.region {
                region.leave_broker(&broker);
            }
            tracing::debug!(broker = name, "closed a broker that nobody uses");
        }
    }
}
