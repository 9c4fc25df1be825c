//! Reading a socket: once a turn, into a buffer that all connections share. Only an incomplete packet is kept.

use std::io::{self, Read};
use std::ops::Range;

use millrace_mqtt::ReasonCode;
use millrace_session::Seconds;

use super::connection::{ConnectionState, NONE, Partial, Paused};
use super::publish_rates::LIMITED_READ_BYTES;
use super::timers::DueTimer;
use super::{ConnectionEnd, Core, READ_BYTES, parts, work};
use crate::incomplete_packets::OverLimit;
use crate::memory::Pressure;
use crate::metrics::ConnectStep;
use crate::origin::Origin;
use crate::quota::Limit;

/// From this many bytes of an incomplete packet on, the rest is appended to them instead of being copied together with them.
const SHARED_MAX: usize = READ_BYTES / 2;
/// Fewest bytes that a read of such a large packet asks for.
const READ_BYTES_MIN: usize = 16 * 1024;
/// Progress of an incomplete packet that renews the keep alive, bytes. A client that sends a large packet over a slow
/// network cannot send a PINGREQ.
const PROGRESS_BYTES: usize = 1000;
/// Interval in which an incomplete packet must grow by [`crate::incomplete_packets::IncompletePackets::growth_min`].
const REST_S: Seconds = 60;

/// The input behind the last complete packet; `mqtt` begins at 0 if there was none.
pub(super) struct Rest {
    pub(super) mqtt: Range<usize>,
    /// Bytes behind them that are not MQTT yet (frame headers, handshake, PROXY header).
    pub(super) raw: Range<usize>,
    /// Size of the incomplete packet as far as known, bytes.
    pub(super) needed: usize,
}

impl Core {
    pub(super) fn read(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if connection.state != ConnectionState::Open {
            return self.discard(slot);
        }
        if !connection.is_reading() {
            // `readable` stays set: whoever lifts the pause lists the connection again.
            return self.stop_waiting_if_closed(slot);
        }
        if connection.stream.is_handshaking() {
            self.work.spend(work::HANDSHAKE);
        }
        if connection.partial.as_ref().is_some_and(|partial| partial.bytes.len() > SHARED_MAX) {
            return self.read_large(slot);
        }
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let connection = &mut self.connections[slot as usize];
        let (held, raw) = match &connection.partial {
            Some(partial) => {
                buffer[..partial.bytes.len()].copy_from_slice(&partial.bytes);
                (partial.bytes.len(), partial.raw)
            }
            None => (0, 0),
        };
        let room = buffer.len() - held;
        let room = if self.reads_little(slot) { room.min(LIMITED_READ_BYTES) } else { room };
        if let Some(count) = self.read_socket(slot, &mut buffer[held..held + room]) {
            self.connections[slot as usize].partial = None;
            // A client that sends byte by byte has its incomplete packet copied each time, here and back.
            self.spend_bytes(2 * held);
            let end = held + count;
            if let Some(rest) = self.digest(slot, &mut buffer[..end], held - raw) {
                self.note_incomplete(slot, held, &rest);
                self.hold(slot, &buffer, rest);
            }
        }
        self.read_buffer = buffer;
        self.after_digest(slot);
    }

    fn read_socket(&mut self, slot: u32, into: &mut [u8]) -> Option<usize> {
        let connection = &mut self.connections[slot as usize];
        let began_us = (connection.stream.is_tls() && !connection.stream.is_handshaking())
            .then(|| self.process.clock.micros());
        let result = connection.stream.read(into);
        self.after_tls(slot);
        if !self.charge_record(slot) {
            return None;
        }
        let connection = &mut self.connections[slot as usize];
        let overhead = connection.stream.take_record_overhead();
        self.work.spend(work::SYSTEM_CALL + work::records(overhead));
        // A KeyUpdate takes ten times as long as another record.
        if let Some(began_us) = began_us.filter(|_| overhead > work::OVERHEAD_TIMED) {
            let took_us = self.process.clock.micros().saturating_sub(began_us);
            self.work.spend_overtime(took_us, work::records(overhead));
        }
        match result {
            Ok(0) => {
                self.end(slot, ConnectionEnd::Lost, true);
                None
            }
            Ok(count) => {
                // A short read has emptied the socket (epoll(7)), but after the peer has closed, one more read returns 0.
                connection.readable =
                    count == into.len() || connection.read_closed || connection.stream.has_unread();
                self.counters().bytes_in.add(count);
                Some(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.readable = connection.stream.has_unread();
                None
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) if connection.stream.is_handshaking() && connection.session == NONE => {
                tracing::debug!(%error, "a TLS handshake failed");
                self.counters().refused_tls.add(1);
                self.remove_connection(slot);
                None
            }
            Err(_) => {
                self.end(slot, ConnectionEnd::Lost, true);
                None
            }
        }
    }

    /// Takes the client's identity from a finished TLS handshake, and lists the connection if handshake packets are
    /// unsent.
    fn after_tls(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if connection.stream.has_unsent() {
            // An outbound buffer, even an empty one, is flushed at the end of the turn.
            let (_, mut out, _) = parts!(self, slot);
            out.outbound();
        }
        let connection = &mut self.connections[slot as usize];
        let Some(peer) = connection.stream.take_peer() else { return };
        let is_resumed = peer.is_resumed;
        let address = connection.stream.peer_addr().ok();
        connection.origin = Some(Box::new(Origin::of_peer(peer, address)));
        let counters = self.counters();
        let counter = if is_resumed { &counters.tls_resumed } else { &counters.tls_full };
        counter.add(1);
        self.end_connect_step(slot, ConnectStep::Tls);
    }

    /// Whether one read takes few bytes: the broker has a limit, memory is short, or nobody knows the client yet, whose bytes
    /// behind the CONNECT would be held until it is accepted.
    fn reads_little(&self, slot: u32) -> bool {
        let connection = &self.connections[slot as usize];
        connection.is_limited
            || connection.session == NONE
            || self.process.memory.pressure() == Pressure::Publishers
    }

    fn after_digest(&mut self, slot: u32) {
        if self.connections.get(slot as usize).is_some_and(|connection| connection.partial.is_some()) {
            // A large packet pauses its client before it is whole.
            self.pause_for_memory(self.id_of(slot));
        }
        self.bound_answers(slot);
        self.list_if_readable(slot);
    }

    fn list_if_readable(&mut self, slot: u32) {
        if self.connections.get(slot as usize).is_some_and(|connection| connection.readable) {
            self.make_readable(slot);
        }
    }

    /// Reads more of a large packet and appends it, so that a read costs what has arrived and not what the packet has or misses.
    fn read_large(&mut self, slot: u32) {
        let is_limited = self.reads_little(slot);
        let Some(mut partial) = self.connections[slot as usize].partial.take() else { return };
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let held = partial.bytes.len();
        let most = if is_limited { LIMITED_READ_BYTES } else { buffer.len() };
        let room = partial.needed.saturating_sub(held).clamp(READ_BYTES_MIN, most);
        let count = self.read_socket(slot, &mut buffer[..room]);
        partial.append(&buffer[..count.unwrap_or(0)]);
        self.read_buffer = buffer;
        self.spend_bytes(count.unwrap_or(0));
        if !self.connections.contains(slot as usize) {
            return;
        }
        if count.is_none() {
            self.connections[slot as usize].partial = Some(partial);
        } else if let Some(rest) = self.digest(slot, &mut partial.bytes, held - partial.raw) {
            self.note_incomplete(slot, held, &rest);
            if rest.mqtt.start == 0 {
                partial.bytes.truncate(rest.raw.end);
                partial.bytes.drain(rest.mqtt.end..rest.raw.start);
                (partial.raw, partial.needed) = (rest.raw.len(), rest.needed);
                self.keep(slot, partial);
            } else {
                // Copied, so that the large buffer is freed.
                self.hold(slot, &partial.bytes, rest);
            }
        }
        self.after_digest(slot);
    }

    /// Renews the keep alive for the progress of an incomplete packet; `held` bytes of it were there before.
    fn note_incomplete(&mut self, slot: u32, held: usize, rest: &Rest) {
        if rest.mqtt.start == 0 && rest.mqtt.len() >= held + PROGRESS_BYTES {
            self.connections[slot as usize].last_input = self.tick();
        }
    }

    pub(super) fn digest_held(&mut self, slot: u32) {
        let Some(mut partial) = self.connections[slot as usize].partial.take() else {
            // There may be input in the socket, and the poll reports it only once.
            return self.list_if_readable(slot);
        };
        let raw_from = partial.bytes.len() - partial.raw;
        if let Some(rest) = self.digest(slot, &mut partial.bytes, raw_from) {
            self.hold(slot, &partial.bytes, rest);
        }
        self.after_digest(slot);
    }

    fn hold(&mut self, slot: u32, buffer: &[u8], rest: Rest) {
        if rest.mqtt.start > 0
            && let Some((_, before)) = self.unfinished.packets.get_mut(&slot)
        {
            // The packet that was measured is whole, so the next one is new at the next look.
            *before = 0;
        }
        if rest.mqtt.is_empty() && rest.raw.is_empty() {
            return;
        }
        let raw = rest.raw.len();
        let mut bytes = Vec::with_capacity(rest.mqtt.len() + raw);
        bytes.extend_from_slice(&buffer[rest.mqtt]);
        bytes.extend_from_slice(&buffer[rest.raw]);
        self.keep(slot, Box::new(Partial { bytes, raw, needed: rest.needed, charge: None }));
    }

    /// Holds an incomplete packet until the rest of it comes, or closes the connection if the packet takes more memory than
    /// it may. The input of a paused client does not count, because the server has stopped reading it, unless a large packet waits for
    /// its rate, which may take long.
    fn keep(&mut self, slot: u32, mut partial: Box<Partial>) {
        let connection = &self.connections[slot as usize];
        partial.charge = None;
        let waits_long = connection.paused == Paused::ForRate && partial.bytes.len() > LIMITED_READ_BYTES;
        if connection.is_reading() || connection.session == NONE || waits_long {
            let broker = self.sessions.get(connection.session as usize).map(|local| &local.broker);
            match self.process.memory.input.charge(broker, partial.bytes.capacity()) {
                Ok(charge) => {
                    if charge.is_some() {
                        self.expect_rest(slot, partial.bytes.len());
                    }
                    partial.charge = charge;
                }
                Err(OverLimit) => return self.refuse_to_hold(slot),
            }
        }
        self.connections[slot as usize].partial = Some(partial);
    }

    /// Charges an incomplete TLS record like an incomplete packet; returns false when it takes more memory than it may, and the
    /// connection was closed.
    fn charge_record(&mut self, slot: u32) -> bool {
        let connection = &self.connections[slot as usize];
        let held = connection.stream.incomplete_bytes();
        if held == 0 && self.unfinished.records.is_empty() {
            return true;
        }
        self.unfinished.records.remove(&slot);
        let broker = self.sessions.get(connection.session as usize).map(|local| &local.broker);
        match self.process.memory.input.charge(broker, held) {
            Ok(charge) => {
                self.unfinished.records.extend(charge.map(|charge| (slot, charge)));
                true
            }
            Err(OverLimit) => {
                self.refuse_to_hold(slot);
                false
            }
        }
    }

    /// Looks again later whether more of a packet has come.
    fn expect_rest(&mut self, slot: u32, held: usize) {
        let generation = self.connections[slot as usize].generation;
        if self.unfinished.packets.get(&slot).is_none_or(|(of, _)| *of != generation) {
            self.unfinished.packets.insert(slot, (generation, held));
            self.calendar.add(self.now + REST_S, DueTimer::Packet { slot, generation });
        }
    }

    /// Closes a connection whose packet has hardly grown: it holds memory that others need.
    pub(super) fn packet_due(&mut self, slot: u32, generation: u32) {
        let Some((of, before)) = self.unfinished.packets.get(&slot).copied() else { return };
        if of != generation {
            return;
        }
        self.unfinished.packets.remove(&slot);
        let connection = self.connections.get(slot as usize);
        let Some(connection) = connection.filter(|connection| connection.generation == generation) else {
            return;
        };
        let partial = connection.partial.as_ref().filter(|partial| partial.charge.is_some());
        let Some(held) = partial.map(|partial| partial.bytes.len()) else { return };
        // Fewer bytes are of another packet.
        if !connection.is_reading()
            || held < before
            || held - before >= self.process.memory.input.growth_min()
        {
            return self.expect_rest(slot, held);
        }
        let (reason, what) = (ReasonCode::KEEP_ALIVE_TIMEOUT, "the rest of a packet did not come");
        self.say_and_close(slot, reason, what, ConnectionEnd::KeepAlive);
    }

    pub(super) fn refuse_to_hold(&mut self, slot: u32) {
        let (reason, what) = (
            ReasonCode::QUOTA_EXCEEDED,
            "packets that are incomplete, or have very many filters, exceed their memory limit",
        );
        if self.connections[slot as usize].session == NONE {
            self.counters().refused_input.add(1);
            return self.end(slot, ConnectionEnd::Error(reason), true);
        }
        self.reached(slot, Limit::Input);
        self.say_and_close(slot, reason, what, ConnectionEnd::Error(reason));
    }

    /// Reads and drops input of a closing connection until its peer closes.
    fn discard(&mut self, slot: u32) {
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let connection = &mut self.connections[slot as usize];
        let result = connection.stream.read(&mut buffer[..LIMITED_READ_BYTES]);
        self.work.spend(work::SYSTEM_CALL + work::records(connection.stream.take_record_overhead()));
        self.spend_bytes(*result.as_ref().unwrap_or(&0));
        let connection = &mut self.connections[slot as usize];
        let gone = match result {
            // The peer may still read the queued output.
            Ok(0)
                if connection.state == ConnectionState::Leaving
                    || connection.state == ConnectionState::Draining && connection.outbound.is_some() =>
            {
                (connection.readable, connection.read_closed) = (false, true);
                false
            }
            Ok(0) => true,
            Ok(count) => {
                connection.readable =
                    count == LIMITED_READ_BYTES || connection.read_closed || connection.stream.has_unread();
                false
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.readable = connection.stream.has_unread();
                false
            }
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        };
        self.read_buffer = buffer;
        if gone { self.remove_connection(slot) } else { self.list_if_readable(slot) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Loops, TestClient, publish};

    const PUBACK: u8 = 0x40;

    fn held(loops: &Loops, client: &TestClient) -> usize {
        loops.connection(0, client).partial.as_ref().map_or(0, |partial| partial.bytes.len())
    }

    #[test]
    fn a_client_is_closed_when_its_packet_stands_still_and_not_when_another_is_as_long() {
        let mut loops = Loops::start(1, |_| {});
        loops.now_ms = Some(1_000);
        let mut client = loops.connect(0, "stream");
        let large = publish(1, "large", &[0; 60_000]);
        let (first, second) = large.split_at(30_000);
        let minute = |loops: &mut Loops| {
            *loops.now_ms.as_mut().unwrap() += 61_000;
            (0..10).for_each(|_| loops.turn(0));
        };
        client.send_all(first);
        for _ in 0..3 {
            loops.until(|loops| held(loops, &client) == first.len());
            client.send_all(&[second, first].concat());
            loops.answer(&mut client, PUBACK);
            loops.until(|loops| held(loops, &client) == first.len());
            minute(&mut loops);
            assert_eq!(held(&loops, &client), first.len(), "the connection is open");
        }
        minute(&mut loops);
        let core = &loops.cores[0];
        assert!(core.session_of(&loops.broker(), &client.id).is_none(), "it held memory and did not grow");
    }
}
