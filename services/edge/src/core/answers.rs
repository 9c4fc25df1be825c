//! Answers that a client does not read, such as PUBACK and PINGRESP: the server holds a bounded number of bytes of them.
//!
//! Answers are never dropped. Instead the server stops reading a client whose socket takes no more while more than
//! `answers_bytes_max` of them wait. It reads the client again when half of them are written, and closes it after
//! `answers_timeout_s`. A client that is not authenticated yet is closed at once.

use millrace_session::Seconds;

use super::connection::{ConnectionState, NONE, Paused};
use super::timers::DueTimer;
use super::{ConnectionEnd, Core};
use crate::clock::{TICKS_PER_S, ticks};
use crate::limits::UNAUTHENTICATED_REPLY_BYTES_MAX;

impl Core {
    pub(super) fn bound_answers(&mut self, slot: u32) {
        let limits = &self.process.limits;
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if !connection.busy || connection.state != ConnectionState::Open {
            return;
        }
        let Some(outbound) = &connection.outbound else { return };
        let is_stranger = connection.session == NONE;
        if outbound.len() > limits.outbound_hard_bytes as usize
            || is_stranger && outbound.answers() > UNAUTHENTICATED_REPLY_BYTES_MAX
        {
            return self.end(slot, ConnectionEnd::Slow, true);
        }
        if !is_stranger
            && connection.paused == Paused::No
            && outbound.answers() > limits.answers_bytes_max as usize
        {
            connection.paused = Paused::ForAnswers;
            // The deadline counts from here: nothing is read meanwhile, so nothing else sets it.
            connection.last_input = ticks(self.now_ms);
            let due = DueTimer::Answers { slot, generation: connection.generation };
            self.calendar.add(self.answers_deadline(self.now), due);
        }
    }

    pub(super) fn answers_were_read(&mut self, slot: u32) {
        let connection = &self.connections[slot as usize];
        if connection.state == ConnectionState::Open && connection.paused == Paused::ForAnswers {
            self.resume_in_turn(slot);
        }
    }

    pub(super) fn answers_due(&mut self, slot: u32, generation: u32) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        let is_paused = connection.generation == generation && connection.paused == Paused::ForAnswers;
        if is_paused
            && connection.state == ConnectionState::Open
            && self.now >= self.answers_deadline(connection.last_input / TICKS_PER_S)
        {
            self.end(slot, ConnectionEnd::Slow, true);
        }
    }

    /// Adds one second, because the second `since` has partly passed.
    fn answers_deadline(&self, since: Seconds) -> Seconds {
        since + Seconds::from(self.process.limits.answers_timeout_s) + 1
    }
}
