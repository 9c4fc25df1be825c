//! Reading a socket: once a turn, into a buffer that all connections share. Only an incomplete packet is kept.

use std::io::{self, Read};
use std::ops::Range;

use super::connection::{Connected, Partial, State};
use super::pace::PACED_READ_BYTES;
use super::{Core, Ended, READ_BYTES};

/// Packets with more than this to come are gathered in a buffer of their own, bytes.
const SHARED_MAX: usize = READ_BYTES / 2;
/// Growth of such a buffer, bytes.
const GROW_BYTES: usize = 256 * 1024;

/// What of a buffer was not used up.
pub(super) struct Rest {
    /// MQTT bytes of an incomplete packet.
    pub(super) mqtt: Range<usize>,
    /// Bytes behind them that are not MQTT yet (frame headers, handshake, PROXY header).
    pub(super) raw: Range<usize>,
    /// Size of the incomplete packet as far as known, bytes.
    pub(super) needed: usize,
}

impl Core {
    /// Reads a socket once and carries out what came.
    pub(super) fn read(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if connection.state != State::Open {
            return self.discard(slot);
        }
        if !connection.is_reading() {
            // `readable` stays set: whoever lifts the pause lists the connection again.
            return;
        }
        if connection
            .partial
            .as_ref()
            .is_some_and(|partial| partial.needed.max(partial.bytes.len()) > SHARED_MAX)
        {
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
        let room = if connection.is_limited { room.min(PACED_READ_BYTES) } else { room };
        let result = connection.stream.read(&mut buffer[held..held + room]);
        if let Some(count) = self.after_read(slot, result, room) {
            self.connections[slot as usize].partial = None;
            let end = held + count;
            if let Some(rest) = self.digest(slot, &mut buffer[..end], held - raw) {
                self.hold(slot, &buffer, rest);
            }
        }
        self.read_buffer = buffer;
        self.after_digest(slot);
    }

    /// Notes what a read tells of the socket; the number of bytes that came, if any did.
    fn after_read(&mut self, slot: u32, result: io::Result<usize>, room: usize) -> Option<usize> {
        let now = self.now;
        let connection = &mut self.connections[slot as usize];
        match result {
            Ok(0) => {
                self.end(slot, Ended::Lost, true);
                None
            }
            Ok(count) => {
                connection.last_input = now;
                // A short read has emptied the socket (epoll(7)); but after the peer's end comes one more, of 0.
                connection.readable = count == room || connection.read_closed;
                self.counters().bytes_in.add(count);
                Some(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.readable = false;
                None
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(_) => {
                self.end(slot, Ended::Lost, true);
                None
            }
        }
    }

    /// Ends a client that asks and does not read the answers, which can wait nowhere else; lists others to be read again.
    fn after_digest(&mut self, slot: u32) {
        let hard_bytes = self.process.limits.outbound_hard_bytes as usize;
        let unread = |connection: &Connected| {
            connection.busy
                && connection.outbound.as_ref().is_some_and(|outbound| outbound.len() > hard_bytes)
        };
        if self.connections.get(slot as usize).is_some_and(unread) {
            return self.end(slot, Ended::Slow, true);
        }
        self.list_if_readable(slot);
    }

    fn list_if_readable(&mut self, slot: u32) {
        if self.connections.get(slot as usize).is_some_and(|connection| connection.readable) {
            self.make_readable(slot);
        }
    }

    /// Reads more of a large packet, into the buffer that holds it.
    fn read_large(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let Some(mut partial) = connection.partial.take() else { return };
        let held = partial.bytes.len();
        let missing = partial.needed.saturating_sub(held).clamp(READ_BYTES, GROW_BYTES);
        partial.bytes.resize(held + missing, 0);
        let result = connection.stream.read(&mut partial.bytes[held..]);
        let count = self.after_read(slot, result, missing);
        if !self.connections.contains(slot as usize) {
            return;
        }
        partial.bytes.truncate(held + count.unwrap_or(0));
        if count.is_none() {
            self.connections[slot as usize].partial = Some(partial);
        } else if let Some(rest) = self.digest(slot, &mut partial.bytes, held - partial.raw) {
            partial.bytes.drain(rest.raw.end..);
            partial.bytes.drain(rest.mqtt.end..rest.raw.start);
            partial.bytes.drain(..rest.mqtt.start);
            partial.raw = rest.raw.len();
            partial.needed = rest.needed;
            let done = partial.bytes.is_empty();
            self.connections[slot as usize].partial = (!done).then_some(partial);
        }
        self.after_digest(slot);
    }

    /// Carries out what was read before and could not be carried out then.
    pub(super) fn digest_held(&mut self, slot: u32) {
        let Some(mut partial) = self.connections[slot as usize].partial.take() else {
            // What came meanwhile is still in the socket, and is told only once.
            return self.list_if_readable(slot);
        };
        let raw_from = partial.bytes.len() - partial.raw;
        if let Some(rest) = self.digest(slot, &mut partial.bytes, raw_from) {
            self.hold(slot, &partial.bytes, rest);
        }
        self.after_digest(slot);
    }

    /// Keeps what was not used up.
    fn hold(&mut self, slot: u32, buffer: &[u8], rest: Rest) {
        if rest.mqtt.is_empty() && rest.raw.is_empty() {
            return;
        }
        let raw = rest.raw.len();
        let mut bytes = Vec::with_capacity(rest.mqtt.len() + raw);
        bytes.extend_from_slice(&buffer[rest.mqtt]);
        bytes.extend_from_slice(&buffer[rest.raw]);
        self.connections[slot as usize].partial = Some(Box::new(Partial { bytes, raw, needed: rest.needed }));
    }

    /// Throws away what a closing connection still sends, until its peer closes.
    fn discard(&mut self, slot: u32) {
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let connection = &mut self.connections[slot as usize];
        let gone = match connection.stream.read(&mut buffer) {
            Ok(0) => true,
            Ok(count) => {
                connection.readable = count == buffer.len() || connection.read_closed;
                false
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.readable = false;
                false
            }
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        };
        self.read_buffer = buffer;
        if gone { self.remove_connection(slot) } else { self.list_if_readable(slot) }
    }
}
