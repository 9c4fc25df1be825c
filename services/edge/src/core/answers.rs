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
        let Some(connection) = self.connections.get(slot as usize) else { return };
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
        if !is_stranger && connection.paused == Paused::No {
            self.pause_for_answers(slot);
        }
    }

    /// Pauses a client that nothing else keeps from being read, if more answers wait for it than may. Returns whether it is paused.
    pub(super) fn pause_for_answers(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.get_mut(slot as usize).filter(|connection| connection.busy)
        else {
            return false;
        };
        let answers = connection.outbound.as_ref().map_or(0, |outbound| outbound.answers());
        if connection.state != ConnectionState::Open
            || answers <= self.process.limits.answers_bytes_max as usize
        {
            return false;
        }
        connection.paused = Paused::ForAnswers;
        // The deadline counts from here: nothing is read meanwhile, so nothing else sets it.
        connection.last_input = ticks(self.now_ms);
        let due = DueTimer::Answers { slot, generation: connection.generation };
        self.calendar.add(self.answers_deadline(self.now), due);
        true
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{Loops, publish};
    use crate::outbound::Outbound;

    #[test]
    fn a_client_that_uses_its_share_of_each_turn_gets_no_more_answers_than_it_may() {
        let mut loops = Loops::start(1, |_| {});
        let mut client = loops.connect_v5("floods");
        // Refused: the answer is much longer than the message.
        let packet = [b"\x32\x0b\x00\x06$SYS/a".as_slice(), &[0, 1, 0]].concat();
        assert_eq!(packet.len(), publish(1, "$SYS/a", b"").len() + 1);
        let most = loops.cores[0].process.limits.answers_bytes_max as usize;
        while loops.connection(0, &client).paused != Paused::ForAnswers {
            loops.send_to(0, &mut client, &packet.repeat(10_000));
        }
        let answers = loops.connection(0, &client).outbound.as_deref().map_or(0, Outbound::answers);
        assert!(answers > most && answers < most + 80_000, "{answers}");
    }
}
