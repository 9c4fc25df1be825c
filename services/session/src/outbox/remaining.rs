//! The unacknowledged messages of an ended session, taken one after another, so that other members get the shared ones.

use millrace_mqtt::QoS;

use super::{Outbox, OutboxEntry, SlotState};

#[derive(Debug)]
pub enum RemainingMessage {
    /// Another member of the message's shared subscription must get it.
    Shared(OutboxEntry),
    Discarded,
}

impl RemainingMessage {
    fn of(entry: OutboxEntry) -> Self {
        if entry.shared == 0 { Self::Discarded } else { Self::Shared(entry) }
    }
}

impl Outbox {
    /// A message that was sent with QoS 2 counts as settled, because no other client may get it.
    //= [MQTT-4.8.2-5] v5
    pub(crate) fn take_remaining(&mut self) -> Option<RemainingMessage> {
        let Some(slot) = self.slots.pop_front() else {
            return Some(RemainingMessage::of(self.queue.pop_front()?.entry));
        };
        Some(match slot.state {
            SlotState::Published(entry) if entry.qos == QoS::AtLeastOnce || slot.never_sent => {
                RemainingMessage::of(entry)
            }
            SlotState::Published(entry) => {
                self.settled.extend(entry.settles());
                RemainingMessage::Discarded
            }
            _ => RemainingMessage::Discarded,
        })
    }

    pub(crate) fn has_remaining(&self) -> bool {
        !(self.slots.is_empty() && self.queue.is_empty())
    }
}
