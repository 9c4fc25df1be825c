//! Counts the memory of messages that the client has not acknowledged: those beyond [`UNCOUNTED_BYTES_MAX`] of a session, by a
//! [`Hold`] each.

use std::sync::Arc;

use millrace_mqtt::QoS;

use super::{Outbox, OutboxEntry, Slot, SlotState};
use crate::budget::{Hold, bytes_held};
use crate::settings::UNCOUNTED_BYTES_MAX;
use crate::{Budget, Message};

/// The message waits until the client acknowledges others.
#[derive(Debug)]
pub(crate) struct NoRoom;

impl OutboxEntry {
    pub(super) fn bytes_held(&self) -> u64 {
        bytes_held(&self.message, self.identifiers.len())
    }
}

impl Slot {
    pub(super) fn uncount(&mut self, uncounted: &mut u64) {
        if self.hold.take().is_none()
            && let SlotState::Published(entry) = &self.state
        {
            *uncounted -= entry.bytes_held();
        }
    }
}

impl Outbox {
    pub(super) fn count_without(&mut self, hold: Option<&Hold>, entry: &OutboxEntry) {
        if hold.is_none() {
            self.uncounted += entry.bytes_held();
        }
    }

    /// Begins to count a message that waited without a hold and is sent now. A session without
    /// unacknowledged messages may always send one: no acknowledgement would come that makes room.
    pub(crate) fn hold_to_send(
        &self,
        message: &Arc<Message>,
        identifiers: usize,
        budget: Option<&Arc<Budget>>,
    ) -> Result<Option<Hold>, NoRoom> {
        let open = self.slots.len() - self.done;
        let Some(budget) = budget else { return Ok(None) };
        if self.uncounted + bytes_held(message, identifiers) <= UNCOUNTED_BYTES_MAX {
            return Ok(None);
        }
        match Hold::new(message, budget, open, identifiers) {
            None if open > 0 => Err(NoRoom),
            hold => Ok(hold),
        }
    }

    pub(crate) fn dequeue_to_send(
        &mut self,
        budget: Option<&Arc<Budget>>,
    ) -> Option<(OutboxEntry, Option<Hold>)> {
        let front = self.queue.front()?;
        if front.entry.qos == QoS::AtMostOnce || front.hold.is_some() {
            return self.dequeue();
        }
        let identifiers = front.entry.identifiers.len();
        let hold = self.hold_to_send(&front.entry.message, identifiers, budget).ok()?;
        self.dequeue().map(|(entry, _)| (entry, hold))
    }
}
