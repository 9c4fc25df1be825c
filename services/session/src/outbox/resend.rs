//! Chooses which packet of a resumed session is sent again next.

use millrace_mqtt::PacketId;

use super::{Outbox, SlotState};

impl Outbox {
    pub(crate) fn rewind(&mut self) {
        self.window = 0;
        self.resend = 0;
        self.release_again = 0;
        for slot in &mut self.slots {
            slot.sent = false;
        }
    }

    /// Returns the next slot to send and counts it as sent. The flag is true for a resend after a reconnect, false for the first
    /// transmission of a reserved id. Receive Maximum limits PUBLISH alone: while it leaves no room, the PUBRELs behind a PUBLISH
    /// are sent before it.
    //= [MQTT-4.4.0-1] [MQTT-4.9.0-3] v5
    pub(crate) fn next_resend(&mut self, window_max: usize) -> Option<(PacketId, &SlotState, bool)> {
        while let Some(slot) = self.slots.get(self.resend) {
            if slot.awaits_store {
                return None;
            }
            if matches!(slot.state, SlotState::Published(_)) && self.window >= window_max {
                return self.next_release();
            }
            self.resend += 1;
            if !slot.is_done() && !slot.sent {
                return Some(self.send_slot(self.resend - 1));
            }
        }
        None
    }

    fn next_release(&mut self) -> Option<(PacketId, &SlotState, bool)> {
        self.release_again = self.release_again.max(self.resend);
        while let Some(slot) = self.slots.get(self.release_again) {
            self.release_again += 1;
            if matches!(slot.state, SlotState::Releasing(_) | SlotState::Released(_)) && !slot.sent {
                return Some(self.send_slot(self.release_again - 1));
            }
        }
        None
    }

    fn send_slot(&mut self, index: usize) -> (PacketId, &SlotState, bool) {
        let slot = &mut self.slots[index];
        let again = !std::mem::replace(&mut slot.never_sent, false);
        slot.sent = true;
        // A PUBREL counts, too: its exchange is open until PUBCOMP.
        self.window += 1;
        (slot.id, &slot.state, again)
    }
}
