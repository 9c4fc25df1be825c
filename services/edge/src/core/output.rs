//! Writes the outbound buffers of a loop to their sockets, bounds what busy sockets may hold, and closes stalled receivers.
//!
//! Packets are appended to a connection's buffer during the turn. The end of the turn writes each buffer with one system call.
//! A connection whose socket is busy keeps its buffer; otherwise the buffer returns to the pool.

use std::collections::HashSet;
use std::io;

use millrace_session::PUMP_MAX;

use super::connection::{ConnectionState, NONE};
use super::write_sizer::FAST_WRITE_US;
use super::{ConnectionEnd, Core, work};
use crate::clock::Millis;
use crate::limits::EdgeLimits;
use crate::memory::Pressure;
use crate::outbound::{Outbound, Pool, SocketFlush};

/// Output of one socket above this is written at once instead of at the end of the turn: it is still in the cache. One flush
/// writes no more.
pub(super) const FLUSH_BYTES: usize = 256 * 1024;
/// Bytes that each busy socket may hold, however many are busy.
const MEMORY_SHARE_MIN: usize = 32 * 1024;
/// While memory is short, a client that has read nothing for this long is disconnected if more than [`STALLED_BYTES`] wait for it.
const STALLED_MS: Millis = 10_000;
const STALLED_BYTES: usize = 64 * 1024;
/// Most that one loop disconnects a second, because each costs work.
const STALLED_MAX: usize = 500;

/// The connections that have output, and the buffers for more.
pub(super) struct Output {
    pub(super) pool: Pool,
    pub(super) dirty: Vec<u32>,
    /// Connections with more than [`FLUSH_BYTES`] of output, which are written within the turn.
    pub(super) overfull: Vec<u32>,
    /// Connections whose socket is busy, or was at the last second.
    busy: HashSet<u32, foldhash::fast::FixedState>,
    /// Busy connections to end.
    stalled: Vec<u32>,
    /// Connections of `CoreWork::unwritten` whose sessions have more messages to send.
    pumping: HashSet<u32, foldhash::fast::FixedState>,
    /// Bytes waiting for a busy socket above which QoS 0 messages to it are dropped.
    pub(super) soft_bytes: usize,
    /// While the publishers wait for the receiver, QoS 0 messages to it are dropped above half of these bytes.
    pub(super) hard_bytes: usize,
}

impl Output {
    pub(super) fn new(limits: &EdgeLimits) -> Self {
        Self {
            pool: Pool::default(),
            dirty: Vec::new(),
            overfull: Vec::new(),
            busy: HashSet::default(),
            stalled: Vec::new(),
            pumping: HashSet::default(),
            soft_bytes: limits.outbound_soft_bytes as usize,
            hard_bytes: limits.outbound_hard_bytes as usize,
        }
    }
}

impl Core {
    /// Writes queued output to sockets until the turn has spent `end`; the rest is left to the next turn.
    pub(super) fn flush_dirty(&mut self, end: u64) {
        let mut dirty = std::mem::take(&mut self.output.dirty);
        let are_few = self.work.unwritten.is_empty() && dirty.len() <= work::FEW;
        for slot in dirty.drain(..) {
            if are_few && self.work.spent() < end {
                self.flush_counted(slot);
            } else {
                self.flush_later(slot);
            }
        }
        while self.work.spent() < end
            && let Some((_, slot)) = self.work.unwritten.pop()
        {
            self.output.pumping.remove(&slot);
            self.flush_counted(slot);
        }
        if self.output.dirty.is_empty() {
            self.output.dirty = dirty;
        }
    }

    fn flush_counted(&mut self, slot: u32) {
        let began = self.begin_work(|core| core.broker_of(slot));
        self.flush(slot);
        self.end_work(began);
    }

    /// Writes large outputs within the turn, before they reach the limit: as many as one share of work allows, because one
    /// message of 256 kB may have filled the outputs of many receivers.
    pub(super) fn flush_overfull(&mut self) {
        let end = self.work.spent() + work::SHARE;
        while let Some(slot) = self.output.overfull.pop() {
            // A connection may be listed more than once; the first flush leaves it empty.
            if self.connections.get(slot as usize).is_none_or(|connection| connection.outbound.is_none()) {
                continue;
            }
            if self.work.spent() < end {
                self.flush(slot);
            } else {
                self.flush_later(slot);
            }
        }
    }

    /// Writes the queued output of one socket, then what its session held back: up to [`FLUSH_BYTES`], because a client that reads
    /// fast would occupy the whole turn.
    pub(super) fn flush(&mut self, slot: u32) {
        let mut left = FLUSH_BYTES;
        loop {
            let Some(connection) = self.connections.get_mut(slot as usize) else { return };
            if connection.busy {
                return;
            }
            if let Some(mut outbound) = connection.outbound.take() {
                let (written, how, took_us) = match self.write(slot, &mut outbound, left) {
                    Ok(done) => done,
                    Err(error) => {
                        tracing::debug!(%error, "writing failed");
                        return self.end(slot, ConnectionEnd::Lost, true);
                    }
                };
                left = left.saturating_sub(written);
                let connection = &mut self.connections[slot as usize];
                match how {
                    SocketFlush::All => {
                        self.output.pool.give(outbound);
                        self.answers_were_read(slot);
                    }
                    SocketFlush::Enough => {
                        connection.outbound = Some(outbound);
                        if left == 0 || took_us > FAST_WRITE_US {
                            return self.flush_later(slot);
                        }
                        continue;
                    }
                    SocketFlush::Busy => {
                        connection.busy = true;
                        connection.outbound = Some(outbound);
                        self.note_busy(slot);
                        return self.after_busy_flush(slot);
                    }
                }
            }
            if self.connections[slot as usize].state == ConnectionState::Draining {
                return self.linger(slot);
            }
            if !self.continue_session(slot) {
                return;
            }
            if left < FLUSH_BYTES / 2 {
                return self.flush_later(slot);
            }
        }
    }

    /// Returns the number of written bytes, whether more waits, and the time of a long write in microseconds.
    fn write(
        &mut self,
        slot: u32,
        outbound: &mut Outbound,
        most: usize,
    ) -> io::Result<(usize, SocketFlush, u64)> {
        let connection = &mut self.connections[slot as usize];
        let most = connection.activity.as_ref().map_or(most, |activity| activity.write_sizer.bytes(most));
        let websocket = connection.is_websocket();
        let mut tapped = if connection.is_traced() { self.tracing.tapped.get_mut(&slot) } else { None };
        if let Some(tapped) = &mut tapped {
            tapped.look(outbound, &connection.protocol, self.process.clock.unix_now_ms());
        }
        let began_us = (outbound.len() > work::TIMED_BYTES).then(|| self.process.clock.micros());
        let flushed = outbound.flush(&mut connection.stream, websocket, most);
        let took_us = began_us.map_or(0, |began| self.process.clock.micros().saturating_sub(began));
        if let Some(tapped) = tapped {
            tapped.note_waiting(outbound.len_without_control());
        }
        let (written, how) = flushed?;
        if let Some(activity) = &mut connection.activity {
            activity.write_sizer.note(written, took_us);
        }
        self.work.spend_sent(written, took_us);
        self.process.core(self.index).counters.bytes_out.add(written);
        let encrypted = connection.stream.unsent_bytes();
        outbound.note_written(written, encrypted, self.output.soft_bytes, self.now_ms);
        if outbound.held() < self.output.soft_bytes / 2 {
            self.pauses.note_drained(slot);
        }
        Ok((written, how, took_us))
    }

    /// Continues with a session in a later turn, if its last pump has handled as many messages as it may.
    pub(super) fn pump_later(&mut self, slot: u32, count: usize) {
        if count == PUMP_MAX && self.output.pumping.insert(slot) {
            self.flush_later(slot);
        }
    }

    pub(super) fn flush_later(&mut self, slot: u32) {
        let broker = self.broker_of(slot);
        self.work.unwritten.push(broker, slot);
    }

    /// Closes a connection with too much queued for its full socket, and bounds its answers (as PUBACK), which are never
    /// dropped.
    fn after_busy_flush(&mut self, slot: u32) {
        let limits = &self.process.limits;
        let connection = &mut self.connections[slot as usize];
        let Some(outbound) = &mut connection.outbound else { return };
        if outbound.held() > limits.outbound_hard_bytes as usize {
            return self.end(slot, ConnectionEnd::Slow, true);
        }
        if outbound.answers() <= limits.answers_bytes_max as usize / 2 {
            self.answers_were_read(slot);
        }
        self.bound_answers(slot);
    }

    /// Lets a session send what it held back while the socket was busy; true when there is more to write.
    fn continue_session(&mut self, slot: u32) -> bool {
        let connection = &self.connections[slot as usize];
        if connection.session == NONE || !self.sessions[connection.session as usize].session.has_backlog() {
            return false;
        }
        self.pump(slot);
        // The pump noted the connection as dirty, but it is being flushed now.
        if self.output.dirty.last() == Some(&slot) {
            self.output.dirty.pop();
        }
        !self.output.pumping.contains(&slot) && self.connections[slot as usize].outbound.is_some()
    }

    pub(super) fn note_busy(&mut self, slot: u32) {
        if self.output.busy.insert(slot) {
            self.share_outbound_memory();
        }
    }

    /// Divides this loop's part of `outbound_memory_max` among its busy sockets equally, whatever their broker.
    pub(super) fn share_outbound_memory(&mut self) {
        let limits = &self.process.limits;
        let part = limits.outbound_memory_max / self.process.cores.len() as u64;
        let share = part / self.output.busy.len().max(1) as u64;
        let share = usize::try_from(share).unwrap_or(usize::MAX).max(MEMORY_SHARE_MIN);
        let (soft, hard) = (limits.outbound_soft_bytes as usize, limits.outbound_hard_bytes as usize);
        let is_short = self.process.memory.pressure() >= Pressure::QosZero;
        self.output.soft_bytes = (if is_short { soft / 8 } else { soft }).min(share / 2);
        self.output.hard_bytes =
            if is_short { self.output.soft_bytes } else { hard.min(share.saturating_mul(2)) };
    }

    /// Once a second: computes the shares, shrinks the pool, and disconnects stalled receivers while memory is short.
    pub(super) fn maintain_outbound(&mut self) {
        self.count_outbound();
        self.share_outbound_memory();
        self.pauses.note_all_drained();
        self.pauses.watched.forget_old(self.now_ms);
        self.output.pool.shrink();
        if self.process.memory.pressure() < Pressure::Connections {
            return;
        }
        let stalled = self.output.busy.iter().filter(|slot| self.is_stalled(**slot)).take(STALLED_MAX);
        self.output.stalled = stalled.copied().collect();
    }

    fn is_stalled(&self, slot: u32) -> bool {
        let connection = self.connections.get(slot as usize).filter(|connection| connection.busy);
        let outbound = connection.and_then(|connection| connection.outbound.as_deref());
        outbound.is_some_and(|outbound| {
            outbound.held() > STALLED_BYTES && outbound.waits_since() + STALLED_MS < self.now_ms
        })
    }

    pub(super) fn end_stalled(&mut self) {
        let end = self.work.spent() + work::SLICE;
        while self.work.spent() < end
            && let Some(slot) = self.output.stalled.pop()
        {
            if self.is_stalled(slot) {
                self.end(slot, ConnectionEnd::Slow, true);
            }
        }
    }

    fn count_outbound(&mut self) {
        let (connections, mut bytes) = (&self.connections, 0);
        self.output.busy.retain(|slot| {
            let waiting = connections.get(*slot as usize).filter(|connection| connection.busy);
            let outbound = waiting.and_then(|connection| connection.outbound.as_deref());
            bytes += outbound.map_or(0, |outbound| outbound.held() as u64);
            outbound.is_some()
        });
        self.counters().outbound_bytes.set(bytes);
    }
}

/// Borrows the parts of a core that one connection and its session need, side by side.
macro_rules! parts {
    ($core:expr, $slot:expr) => {{
        let connection = &mut $core.connections[$slot as usize];
        let soft_bytes = $core.output.soft_bytes;
        // A flush that wrote all it may leaves the rest although the socket takes more.
        let full_bytes = soft_bytes.max($crate::core::output::FLUSH_BYTES);
        let has_enough = connection.outbound.as_ref().is_some_and(|outbound| outbound.len() >= full_bytes);
        let out = $crate::outbound::OutboundSlot {
            slot: &mut connection.outbound,
            pool: &mut $core.output.pool,
            dirty: &mut $core.output.dirty,
            connection: $slot,
            busy: connection.busy || has_enough,
            soft_bytes,
        };
        (&mut connection.protocol, out, connection.session)
    }};
}
pub(super) use parts;
