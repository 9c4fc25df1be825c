//! The state behind the outbox's lock: a stream for each receiver, the queue of finished frames, and the times of checks.
//! Messages are numbered by receiver ([`To`]), except those to groups: any one pod of a group gets a batch.
//!
//! A receiver without messages gets heartbeats, by which pods notice a lost last message. A probe asks the NATS server whether
//! anybody listens; if nobody does, the stream is quiet, and its messages are numbered without being sent.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::address::{PodId, To};
use crate::clock::Millis;
use crate::collections::HashMap;
use crate::counters::Counts;
use crate::frame::{HEAD, LENGTH, SenderPosition};
use crate::limits::FabricLimits;

use super::ready::Ready;
use super::stream::OutboxStream;
use super::{Destination, FabricDropReason, Outgoing, Sent};

/// Intervals between checks of a quiet receiver, in heartbeats. After the last interval the receiver is
/// forgotten.
const STAGES: [u64; 4] = [1, 3, 12, 48];
/// Receivers to check before the lock is released, so that sending threads wait for microseconds.
const CHECKS_MAX: usize = 1024;
/// Heartbeats per millisecond after an outage: all streams at once would fill the queue.
const REASSURED_PER_MS: u64 = 100;

pub(super) struct OutboxState {
    own: PodId,
    limits: FabricLimits,
    counts: Arc<Counts>,
    streams: HashMap<To, OutboxStream>,
    ready: Ready,
    /// Bytes that are queued for each broker; `None`: for pods as a whole, whose notices carry no tenant's messages.
    shares: HashMap<Option<u64>, BrokerShare>,
    /// Receivers with an open batch, and new ones.
    dirty: Vec<To>,
    /// Receivers by the time of their next check, one queue for each of [`STAGES`].
    due: [VecDeque<(Millis, To)>; STAGES.len()],
    bytes: usize,
    /// Bytes that have left since batches were closed.
    left_bytes: usize,
    /// The newest generation of a stream.
    generations: u64,
    probes: u64,
    is_connected: bool,
    /// Nothing is numbered before the first connection, because other pods must learn first that
    /// this pod begins.
    was_connected: bool,
    is_stopped: bool,
    /// The sending task waits, so the next thread that adds something wakes it.
    is_asleep: bool,
    /// The queue was full, and accepts messages again once a quarter of it has left.
    is_full: bool,
    /// Bytes of the largest frame to a group. It cannot be sent in parts, because each part would
    /// go to another pod.
    group_frame_bytes_max: usize,
}

impl OutboxState {
    pub(super) fn new(own: PodId, limits: &FabricLimits, counts: Arc<Counts>) -> Self {
        Self {
            own,
            group_frame_bytes_max: usize::MAX,
            limits: limits.clone(),
            counts,
            streams: HashMap::default(),
            ready: Ready::new(limits.part_bytes_max as usize),
            shares: HashMap::default(),
            dirty: Vec::new(),
            due: std::array::from_fn(|_| VecDeque::new()),
            bytes: 0,
            left_bytes: 0,
            generations: 0,
            probes: 0,
            is_connected: false,
            was_connected: false,
            is_stopped: false,
            is_asleep: false,
            is_full: false,
        }
    }

    pub(super) fn send(&mut self, to: To, pieces: &[&[u8]], length: usize, large: Option<Vec<u8>>) -> Sent {
        if self.is_stopped {
            return Sent::Dropped(FabricDropReason::Stopped);
        }
        if !self.was_connected {
            return Sent::Dropped(FabricDropReason::Outage);
        }
        let (bytes_max, dropped_full, dropped_share) = self.room();
        let Some(stream) = stream(&mut self.streams, to, &mut self.generations, &self.limits) else {
            return Sent::Dropped(FabricDropReason::TooManyStreams);
        };
        stream.is_active = true;
        if stream.is_quiet {
            stream.skip(1, to, self.own, &mut self.ready);
            return Sent::NoListener;
        }
        if !std::mem::replace(&mut stream.is_dirty, true) {
            self.dirty.push(to);
        }
        let bytes = LENGTH + length;
        let is_too_large = length > self.limits.message_bytes_max as usize
            || (!to.is_numbered() && HEAD + LENGTH + length > self.group_frame_bytes_max);
        let share = self.shares.entry(to.broker()).or_default();
        // No broker has more than is free, so there is always room for another one.
        let is_share_over =
            share.takes_too_much(bytes, bytes_max.saturating_sub(self.bytes)) && to.broker().is_some();
        let refused = match () {
            () if is_too_large => Some(FabricDropReason::TooLarge),
            () if self.is_full || self.bytes + bytes > bytes_max => {
                // Only a leaving frame ends the full state, so an empty queue must not enter it.
                self.is_full = self.bytes > 0;
                Some(dropped_full)
            }
            () if stream.has_no_room(bytes, self.limits.queue_bytes_per_receiver_max as usize) => {
                Some(FabricDropReason::ReceiverFull)
            }
            () if is_share_over => Some(dropped_share),
            () => None,
        };
        if let Some(reason) = refused {
            stream.skip(1, to, self.own, &mut self.ready);
            self.left(to, 0);
            return Sent::Dropped(reason);
        }
        match large {
            Some(batch) => stream.add_large(batch, to, self.own, &mut self.ready),
            None => {
                let batch_bytes_max = self.limits.batch_bytes_max as usize;
                let batch_bytes_max = match to.is_numbered() {
                    true => batch_bytes_max,
                    false => batch_bytes_max.min(self.group_frame_bytes_max),
                };
                stream.add(pieces, length, batch_bytes_max, (to, self.own), &mut self.ready);
            }
        }
        self.bytes += bytes;
        share.bytes += bytes;
        Sent::Queued
    }

    /// Bytes that may be queued now, and why messages beyond them, or beyond their broker's share, are dropped.
    fn room(&self) -> (usize, FabricDropReason, FabricDropReason) {
        match self.is_connected {
            true => (
                self.limits.queue_bytes_max as usize,
                FabricDropReason::QueueFull,
                FabricDropReason::ShareFull,
            ),
            false => {
                (self.limits.outage_bytes_max as usize, FabricDropReason::Outage, FabricDropReason::Outage)
            }
        }
    }

    /// Numbers messages that no pod wants. False when the receiver is not known to be quiet: then they must be sent.
    pub(super) fn unwanted(&mut self, to: To, messages: u32) -> bool {
        match self.streams.get_mut(&to) {
            Some(stream) if stream.is_quiet => {
                stream.is_active = true;
                stream.skip(messages, to, self.own, &mut self.ready);
                true
            }
            _ => false,
        }
    }

    pub(super) fn push(&mut self, outgoing: Outgoing) {
        self.ready.push(outgoing);
    }

    /// True when there is nothing to send. The next thread that adds something must then wake the
    /// sender.
    pub(super) fn sleep_if_idle(&mut self) -> bool {
        self.is_asleep = !self.has_work();
        self.is_asleep
    }

    pub(super) fn must_wake(&mut self) -> bool {
        self.is_asleep && self.has_work() && std::mem::take(&mut self.is_asleep)
    }

    fn has_work(&self) -> bool {
        self.is_connected && !(self.ready.is_empty() && self.dirty.is_empty())
    }

    pub(super) fn close_batches(&mut self) {
        self.left_bytes = 0;
        for to in self.dirty.drain(..) {
            if let Some(stream) = self.streams.get_mut(&to) {
                stream.is_dirty = false;
                stream.close(to, self.own, &mut self.ready);
                if !std::mem::replace(&mut stream.is_scheduled, true) {
                    // Due at once: the next tick, which knows the time, checks at it.
                    self.due[0].push_front((0, to));
                }
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<Outgoing> {
        if !self.is_connected {
            return None;
        }
        // Under a flood the queue is never empty, and messages of others would wait in their open batches.
        if self.left_bytes >= self.limits.part_bytes_max as usize {
            self.close_batches();
        }
        let mut outgoing = self.ready.pop()?;
        self.left_bytes += outgoing.frame.len();
        if let (Destination::To(to), Some(_)) = (outgoing.destination, outgoing.numbers) {
            let bytes = outgoing.frame.len() - if outgoing.part.is_some() { 0 } else { HEAD };
            self.bytes -= bytes;
            self.left(to, bytes);
            self.is_full &= self.bytes > resume_bytes(self.limits.queue_bytes_max);
            if let Some(stream) = self.streams.get_mut(&to) {
                stream.sent(bytes);
                stream.is_full &= stream.waiting > resume_bytes(self.limits.queue_bytes_per_receiver_max);
                if std::mem::take(&mut stream.probes) {
                    self.probes += 1;
                    outgoing.probe = Some(self.probes);
                }
            }
        }
        Some(outgoing)
    }

    fn left(&mut self, to: To, bytes: usize) {
        let Some(share) = self.shares.get_mut(&to.broker()) else { return };
        share.bytes = share.bytes.saturating_sub(bytes);
        if share.bytes == 0 {
            self.shares.remove(&to.broker());
        }
    }

    pub(super) fn no_responders(&mut self, to: To, probe: u64) {
        if let Some(stream) = self.streams.get_mut(&to) {
            stream.no_listener(probe);
        }
    }

    pub(super) fn pod_joined(&mut self, to: To) -> Option<SenderPosition> {
        let stream = self.streams.get_mut(&to)?;
        let position = stream.pod_joined(to, self.probes)?;
        stream.heartbeat(to, self.own, &mut self.ready);
        Some(position)
    }

    /// Checks quiet receivers that are due; true if there are more, which the caller should check
    /// after releasing the lock.
    pub(super) fn tick(&mut self, now: Millis) -> bool {
        self.counts.streams.set(self.streams.len());
        self.counts.queue_bytes.set(self.bytes);
        if !self.is_connected {
            return false;
        }
        let mut checks = CHECKS_MAX;
        for stage in 0..STAGES.len() {
            while checks > 0 && self.due[stage].front().is_some_and(|(due, _)| *due <= now) {
                checks -= 1;
                if let Some((_, to)) = self.due[stage].pop_front() {
                    self.check_receiver(to, stage, now);
                }
            }
        }
        checks == 0
    }

    /// Sends a heartbeat or probe to a receiver without messages, and forgets it after the last stage.
    fn check_receiver(&mut self, to: To, stage: usize, now: Millis) {
        let Some(stream) = self.streams.get_mut(&to) else { return };
        let was_active = std::mem::take(&mut stream.is_active) || stream.waiting > 0;
        let next_stage = if was_active { 0 } else { stage + 1 };
        let Some(wait) = STAGES.get(next_stage) else {
            self.streams.remove(&to);
            return;
        };
        // A quiet group gets no probe, because the message that carries the probe would be lost.
        if to.is_numbered() {
            stream.probes = true;
            if !was_active || std::mem::take(&mut stream.is_quiet) {
                stream.is_quiet = false;
                stream.heartbeat(to, self.own, &mut self.ready);
            }
        } else if !stream.is_quiet {
            stream.probes = true;
        }
        let wait = wait * u64::from(self.limits.heartbeat_ms);
        self.due[next_stage].push_back((now + wait, to));
    }

    pub(super) fn disconnected(&mut self) {
        self.is_connected = false;
    }

    pub(super) fn connected(&mut self, now: Millis, is_reset: bool, payload_max: usize) {
        (self.is_connected, self.was_connected) = (true, true);
        self.group_frame_bytes_max = payload_max;
        self.ready.set_part_bytes(payload_max.min(self.limits.part_bytes_max as usize));
        if is_reset {
            self.reset();
        }
        // Messages in flight may be lost, so heartbeats say how many there were.
        self.due.iter_mut().for_each(VecDeque::clear);
        for (place, (to, stream)) in (0u64..).zip(&mut self.streams) {
            stream.is_scheduled = true;
            stream.is_active = false;
            self.due[0].push_back((now + place / REASSURED_PER_MS, *to));
        }
    }

    /// All other pods have dropped this pod's numbers.
    fn reset(&mut self) {
        self.close_batches();
        for outgoing in self.ready.clear() {
            let count = outgoing.numbers.map_or(0, |numbers| numbers.count);
            self.counts.dropped_outage.add(count as usize);
        }
        self.streams.clear();
        self.shares.clear();
        self.bytes = 0;
        self.is_full = false;
    }

    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }
}

#[derive(Default)]
struct BrokerShare {
    bytes: usize,
    /// Messages were dropped, and are until a quarter of what the broker may have is free.
    is_full: bool,
}

impl BrokerShare {
    fn takes_too_much(&mut self, bytes: usize, bytes_max: usize) -> bool {
        let bytes_max = if self.is_full { bytes_max - bytes_max / 4 } else { bytes_max };
        self.is_full = self.bytes + bytes > bytes_max;
        self.is_full
    }
}

/// Queued bytes below which the queue accepts messages again.
fn resume_bytes(bytes_max: u32) -> usize {
    (bytes_max - bytes_max / 4) as usize
}

/// `None` at the limit of streams.
fn stream<'s>(
    streams: &'s mut HashMap<To, OutboxStream>,
    to: To,
    generations: &mut u64,
    limits: &FabricLimits,
) -> Option<&'s mut OutboxStream> {
    if !streams.contains_key(&to) && streams.len() >= limits.streams_max as usize {
        return None;
    }
    Some(streams.entry(to).or_insert_with(|| {
        *generations += u64::from(to.is_numbered());
        OutboxStream::new(if to.is_numbered() { *generations } else { 0 })
    }))
}
