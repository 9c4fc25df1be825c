//! The calendar's events of a connection or a session: keep alive, expired credentials, wills, and the end of a session.

use millrace_mqtt::ReasonCode;
use millrace_session::Seconds;

use super::LOOK_S;
use crate::clock::{TICKS_PER_S, Ticks, ticks_of};
use crate::core::connection::{Connected, ConnectionState, NONE, Paused};
use crate::core::timers::DueTimer;
use crate::core::{ConnectionEnd, Core, LINGER_S, LOOK_AT_SESSIONS_S};

const UNREAD_S: Seconds = 60;

impl Core {
    pub(super) fn schedule(&mut self, session: u32) {
        let local = &mut self.sessions[session as usize];
        let ends_at = local.term.div_ceil(TICKS_PER_S);
        let next = [local.will_at, ends_at].into_iter().filter(|at| *at != 0).min();
        // The calendar checks the session at least every `LOOK_AT_SESSIONS_S` (`looked_at`: when next), because entries for
        // distant dates would pile up with every session that comes and goes; each of these times is 0 for never.
        let Some(at) = next.map(|next| next.min(self.now + LOOK_AT_SESSIONS_S)) else { return };
        if local.looked_at == 0 || at < local.looked_at {
            local.looked_at = at;
            self.calendar.add(at, DueTimer::Session { slot: session, generation: local.generation });
        }
    }

    pub(in crate::core) fn session_due(&mut self, session: u32, generation: u32) {
        let now = self.now;
        let Some(local) = self.sessions.get_mut(session as usize) else { return };
        if local.generation != generation {
            return;
        }
        local.looked_at = 0;
        if local.connection != NONE {
            return;
        }
        let (will_at, ends_at) = (local.will_at, local.term);
        if will_at != 0 && will_at <= now {
            self.publish_will(session);
        }
        if ends_at != 0 && ends_at <= self.tick() {
            return self.end_session(session);
        }
        self.schedule(session);
    }

    pub(in crate::core) fn connection_due(&mut self, slot: u32, generation: u32) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        if connection.generation != generation {
            return;
        }
        if self.stopping && connection.state == ConnectionState::Draining {
            // While the server stops, its grace period bounds how long the output may take.
            return self.calendar.add(self.now + 1, DueTimer::Connection { slot, generation });
        }
        if connection.state != ConnectionState::Open {
            // The entry may be from before the close: the peer still gets `LINGER_S` to read the rest.
            match connection.state {
                _ if self.tick() < connection.last_input + ticks_of(LINGER_S) => {}
                ConnectionState::Leaving => self.close_after_output(slot, ConnectionEnd::Client),
                _ => self.remove_connection(slot),
            }
            return;
        }
        if connection.session == NONE {
            let awaited = match &connection.pending {
                Some(request) => request.awaits_client(),
                None => (!is_kept_waiting(connection, self.tick())).then_some(self.now),
            };
            if awaited.is_some_and(|until| until <= self.now) {
                self.counters().refused_silent.add(1);
                return self.remove_connection(slot);
            }
            // The CONNECT still has time, or the server keeps the client waiting: that is not the client's fault.
            return self.calendar.add(self.now + 1, DueTimer::Connection { slot, generation });
        }
        // While the server does not read it, its silence means nothing.
        let is_unread = connection.readable || connection.paused != Paused::No;
        let last_input = if is_unread { self.tick() } else { connection.last_input };
        let session = connection.session;
        let silent = keep_alive_deadline(last_input, connection.protocol.keep_alive_s());
        let ends = self.entry_ends(slot);
        if ends.is_some_and(|at| at <= self.now) {
            let (reason, what) = (ReasonCode::MAXIMUM_CONNECT_TIME, "the credentials have expired");
            return self.say_and_close(slot, reason, what, ConnectionEnd::Error(reason));
        }
        let Some(at) = silent.into_iter().chain(ends.map(ticks_of)).min() else { return };
        if at > self.tick() {
            let local = &mut self.sessions[session as usize];
            local.session.shrink();
            local.new_subscriptions.take_if(|new| new.is_over(self.now));
            let at = at.min(ticks_of(self.now + LOOK_S));
            return self.calendar.add_at(at, DueTimer::Connection { slot, generation });
        }
        //= [MQTT-3.1.2-22] v5
        //= [MQTT-3.1.2-24] v3.1.1
        self.say_and_close(
            slot,
            ReasonCode::KEEP_ALIVE_TIMEOUT,
            "keep alive timeout",
            ConnectionEnd::KeepAlive,
        );
    }
}

fn is_kept_waiting(connection: &Connected, now: Ticks) -> bool {
    // A flood of handshakes may keep the server from reading a CONNECT for long.
    let is_unread = connection.readable && now < connection.last_input + ticks_of(UNREAD_S);
    let paused = connection.paused;
    is_unread
        || matches!(paused, Paused::ForAdmission | Paused::ForBroker | Paused::ForMail | Paused::ForWork)
}

/// When a silent client is closed: one and a half times its keep alive after its last input, not before. One tick is added,
/// because the tick of the input has partly passed.
pub(super) fn keep_alive_deadline(last_input: Ticks, keep_alive_s: u16) -> Option<Ticks> {
    let keep_alive = TICKS_PER_S * Ticks::from(keep_alive_s);
    (keep_alive > 0).then(|| last_input + keep_alive + keep_alive / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Millis, tick_ms, ticks};
    use crate::core::testing::{Loops, stranger};

    #[test]
    fn a_client_that_the_server_keeps_waiting_is_not_closed_for_its_silence() {
        let kept = [Paused::ForAdmission, Paused::ForBroker, Paused::ForMail, Paused::ForWork];
        for (paused, stays) in kept.map(|paused| (paused, true)).into_iter().chain([(Paused::No, false)]) {
            let mut loops = Loops::start(1, |_| {});
            let now_ms = loops.cores[0].now_ms;
            loops.now_ms = Some(now_ms);
            let _client = stranger(&loops, [127, 0, 0, 1]);
            loops.until(|loops| loops.cores[0].connections.len() == 1);
            loops.cores[0].connections[0].paused = paused;
            loops.now_ms = Some(now_ms + 13_000);
            loops.turn(0);
            assert_eq!(loops.cores[0].connections.len() == 1, stays, "{paused:?}");
        }
    }

    #[test]
    fn a_silent_client_is_closed_a_quarter_of_a_second_after_its_time_at_most() {
        //= [MQTT-3.1.2-22] v5
        //= [MQTT-3.1.2-24] v3.1.1
        assert_eq!(keep_alive_deadline(9, 0), None);
        for keep_alive_s in [1, 2, 3, 5, 60, u16::MAX] {
            for input_ms in 0..2_000 {
                let allowed_ms = input_ms + 1_500 * Millis::from(keep_alive_s);
                let closed_ms = tick_ms(keep_alive_deadline(ticks(input_ms), keep_alive_s).unwrap());
                assert!((allowed_ms..=allowed_ms + 250).contains(&closed_ms), "{keep_alive_s} s, {input_ms}");
            }
        }
    }
}
