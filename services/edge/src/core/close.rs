//! Closes a connection: queued output leaves for at most [`LINGER_S`], and after a DISCONNECT that discards a stored will,
//! the close first waits as long for the store.

use millrace_mqtt::ReasonCode;

use super::connection::ConnectionState;
use super::timers::DueTimer;
use super::{ConnectionEnd, Core, LINGER_S, parts};
use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::ws::frames;

impl Core {
    /// True if the close should wait until the store has deleted the will, so that a client that sees the close can expect
    /// no will.
    pub(super) fn has_will_to_delete(&self, session: u32) -> bool {
        self.sessions.get(session as usize).is_some_and(|local| local.has_stored_will() && !local.is_lost)
    }

    /// The writer has finished the detach job of a leaving connection.
    pub(super) fn left(&mut self, connection: ConnectionId) {
        if self
            .connection_of(connection)
            .is_some_and(|connection| connection.state == ConnectionState::Leaving)
        {
            self.close_after_output(connection.slot, ConnectionEnd::Client);
        }
    }

    /// Closes the connection at the latest after [`LINGER_S`]: `Leaving` waits for the store, `Draining` for the output,
    /// `Lingering` for the peer.
    pub(super) fn close_later(&mut self, slot: u32, state: ConnectionState) {
        let now = self.tick();
        let connection = &mut self.connections[slot as usize];
        (connection.state, connection.last_input) = (state, now);
        let due = DueTimer::Connection { slot, generation: connection.generation };
        self.calendar.add(self.now + LINGER_S, due);
    }

    pub(super) fn close_after_output(&mut self, slot: u32, ended: ConnectionEnd) {
        let connection = &self.connections[slot as usize];
        let is_websocket = connection.is_websocket();
        let nothing_to_say = match ended {
            ConnectionEnd::Lost | ConnectionEnd::Slow => true,
            ConnectionEnd::Client => !is_websocket && connection.outbound.is_none(),
            _ => false,
        };
        if nothing_to_say {
            return self.remove_connection(slot);
        }
        self.close_later(slot, ConnectionState::Draining);
        let (_, mut out, _) = parts!(self, slot);
        // An outbound buffer, even an empty one, lists the connection for the flush that closes it.
        let outbound = out.outbound();
        if is_websocket {
            let code = match ended {
                ConnectionEnd::WebSocketClosed(code) | ConnectionEnd::Frame(code) => code,
                _ => frames::NORMAL_CLOSE,
            };
            let mut frame = Vec::new();
            frames::close(code, "", &mut frame);
            outbound.push_close(frame);
        }
    }

    pub(super) fn count_ended(&self, broker: &Broker, ended: ConnectionEnd) {
        let counters = self.broker_counters(broker);
        counters.connected.sub(1);
        broker.meters[usize::from(self.index)].went(self.now_ms);
        let counter = match ended {
            ConnectionEnd::Client => &counters.ended_client,
            ConnectionEnd::Lost | ConnectionEnd::WebSocketClosed(_) => &counters.ended_lost,
            ConnectionEnd::Frame(_) => &counters.ended_frame,
            ConnectionEnd::TakenOver => &counters.ended_taken_over,
            ConnectionEnd::KeepAlive => &counters.ended_keep_alive,
            ConnectionEnd::Shutdown => &counters.ended_shutdown,
            ConnectionEnd::Drained => &counters.ended_drained,
            ConnectionEnd::Slow => &counters.ended_slow,
            ConnectionEnd::Kicked => &counters.ended_kicked,
            ConnectionEnd::Banned => &counters.ended_banned,
            ConnectionEnd::Error(ReasonCode::MALFORMED_PACKET) => &counters.ended_malformed,
            ConnectionEnd::Error(ReasonCode::PACKET_TOO_LARGE) => &counters.ended_too_large,
            ConnectionEnd::Error(ReasonCode::PROTOCOL_ERROR) => &counters.ended_protocol,
            ConnectionEnd::Error(ReasonCode::TOPIC_NAME_INVALID | ReasonCode::TOPIC_FILTER_INVALID) => {
                &counters.ended_topic
            }
            ConnectionEnd::Error(ReasonCode::TOPIC_ALIAS_INVALID) => &counters.ended_alias,
            ConnectionEnd::Error(ReasonCode::RECEIVE_MAXIMUM_EXCEEDED) => &counters.ended_receive_maximum,
            ConnectionEnd::Error(_) => &counters.ended_other,
        };
        counter.add(1);
    }
}
