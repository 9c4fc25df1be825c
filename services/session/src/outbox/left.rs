//! Messages of an ended session, taken one after another.

use millrace_mqtt::QoS;

use super::{Outbox, OutboxEntry, SlotState};

#[derive(Debug)]
pub enum Left {
    /// Another member of the message's shared subscription must get it.
    Shared(OutboxEntry),
    Dropped,
}

impl Left {
    fn of(entry: OutboxEntry) -> Self {
        if entry.shared == 0 { Self::Dropped } else { Self::Shared(entry) }
    }
}

impl Outbox {
    /// A message that was sent with QoS 2 counts as settled, because no other client may get it.
    //= [MQTT-4.8.2-5] v5
    pub(crate) fn take_left(&mut self) -> Option<Left> {
        let Some(slot) = self.slots.pop_front() else {
            return Some(Left::of(self.queue.pop_front()?.entry));
        };
        Some(match slot.state {
            SlotState::Published(entry) if entry.qos == QoS::AtLeastOnce || slot.never_sent => {
                Left::of(entry)
            }
            SlotState::Published(entry) => {
                self.settled.extend(entry.settles());
                Left::Dropped
            }
            _ => Left::Dropped,
        })
    }

    pub(crate) fn has_left(&self) -> bool {
        !(self.slots.is_empty() && self.queue.is_empty())
    }
}
