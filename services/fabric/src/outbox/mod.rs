//! The outbox: any thread adds messages, and the fabric's thread sends them.
//!
//! A thread copies its message into the open batch of the receiver and numbers it, under one lock
//! that it holds for about as long as the copy takes. A dropped message has a number, too, so that
//! receivers notice the gap.

mod ready;
mod state;
mod stream;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::address::{PodId, To};
use crate::clock::Millis;
use crate::counters::Counts;
use crate::frame::{self, Numbers, SenderPosition};
use crate::limits::FabricLimits;
use state::OutboxState;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The next round of sending includes the message.
    Queued,
    /// Nothing was copied: within the last seconds the server reported that no other pod listens,
    /// and no pod has joined since.
    NoListener,
    /// The message is dropped, and receivers notice the gap, except those of a group.
    Dropped(FabricDropReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricDropReason {
    QueueFull,
    ReceiverFull,
    /// The broker has as much of the queue as is free.
    ShareFull,
    /// NATS is disconnected, and the queue for outages is full.
    Outage,
    /// The message is longer than `message_bytes_max`, or, to a group, longer than one NATS message.
    TooLarge,
    /// Too many receivers have messages at the same time.
    TooManyStreams,
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    To(To),
    /// Control messages to all pods: presence and joins.
    Control,
    ControlOf(PodId),
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) destination: Destination,
    /// If it is a part, a piece of the frame without a head.
    pub(crate) frame: Bytes,
    pub(crate) numbers: Option<Numbers>,
    /// Ask the server to report under this number when nobody listens.
    pub(crate) probe: Option<u64>,
    /// Index of this part, and number of parts.
    pub(crate) part: Option<(u16, u16)>,
}

impl Outgoing {
    pub(crate) fn payload(self, own: PodId) -> Bytes {
        match (self.numbers, self.part) {
            (Some(numbers), Some(part)) => frame::part(own, numbers, part, &self.frame),
            _ => self.frame,
        }
    }
}

pub(crate) struct FabricOutbox {
    own: PodId,
    limits: FabricLimits,
    counts: Arc<Counts>,
    state: Mutex<OutboxState>,
    filled: Notify,
}

impl FabricOutbox {
    pub(crate) fn new(own: PodId, limits: FabricLimits, counts: Arc<Counts>) -> Self {
        let state = OutboxState::new(own, &limits, counts.clone());
        Self { own, limits, counts, state: Mutex::new(state), filled: Notify::new() }
    }

    /// Waits only for other threads that are adding messages.
    pub(crate) fn send(&self, to: To, pieces: &[&[u8]]) -> Sent {
        if to.is_only(self.own) {
            self.counts.unwanted.add(1);
            return Sent::NoListener;
        }
        let length = pieces.iter().map(|piece| piece.len()).sum();
        let is_large = length > self.limits.batch_bytes_max as usize;
        // A long message is copied before the lock is taken.
        let large = (is_large && length <= self.limits.message_bytes_max as usize).then(|| {
            let mut batch = frame::open();
            frame::add(&mut batch, pieces, length);
            batch
        });
        let mut state = self.lock();
        let sent = state.send(to, pieces, length, large);
        self.filled(state);
        match sent {
            Sent::Queued => self.counts.sent.add(1),
            Sent::NoListener => self.counts.unwanted.add(1),
            Sent::Dropped(reason) => self.dropped(reason).add(1),
        }
        sent
    }

    /// True when nobody listens to `to`. `messages` then get numbers without being sent, so that a listening pod that was
    /// disconnected notices the gap.
    pub(crate) fn unwanted(&self, to: To, messages: u32) -> bool {
        let unwanted = to.is_only(self.own) || self.lock().unwanted(to, messages);
        if unwanted {
            self.counts.unwanted.add(messages as usize);
        }
        unwanted
    }

    /// Queues a frame after everything that was sent before.
    pub(crate) fn control(&self, destination: Destination, frame: Bytes) {
        let mut state = self.lock();
        state.push(Outgoing { destination, frame, numbers: None, probe: None, part: None });
        self.filled(state);
    }

    /// Waits for something to send and for a connection.
    pub(crate) async fn wait(&self) {
        while self.lock().sleep_if_idle() {
            self.filled.notified().await;
        }
    }

    pub(crate) fn close_batches(&self) {
        self.lock().close_batches();
    }

    /// `None` while NATS is disconnected.
    pub(crate) fn pop(&self) -> Option<Outgoing> {
        self.lock().pop()
    }

    pub(crate) fn no_responders(&self, to: To, probe: u64) {
        self.lock().no_responders(to, probe);
    }

    /// A pod has joined these receivers: returns the position of each, and announces it in order
    /// with the messages.
    pub(crate) fn pod_joined(&self, list: &[To]) -> Vec<SenderPosition> {
        let mut state = self.lock();
        let positions = list.iter().filter_map(|to| state.pod_joined(*to)).collect();
        self.filled(state);
        positions
    }

    /// Sends heartbeats to quiet receivers, and forgets receivers that were quiet for long.
    pub(crate) fn tick(&self, now: Millis) {
        loop {
            let mut state = self.lock();
            let is_more_due = state.tick(now);
            self.filled(state);
            if !is_more_due {
                return;
            }
        }
    }

    pub(crate) fn disconnected(&self) {
        self.lock().disconnected();
    }

    /// Connected to a server that accepts messages of `payload_max` bytes. With `is_reset`, the
    /// queued messages and their numbers are too old to be sent.
    pub(crate) fn connected(&self, now: Millis, is_reset: bool, payload_max: usize) {
        let mut state = self.lock();
        state.connected(now, is_reset, payload_max);
        self.filled(state);
    }

    pub(crate) fn stop(&self) {
        self.lock().stop();
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the sending task if it sleeps and has something to send.
    fn filled(&self, mut state: MutexGuard<'_, OutboxState>) {
        let wakes = state.must_wake();
        drop(state);
        if wakes {
            self.filled.notify_one();
        }
    }

    fn dropped(&self, reason: FabricDropReason) -> &crate::counters::FabricCount {
        match reason {
            FabricDropReason::QueueFull => &self.counts.dropped_queue,
            FabricDropReason::ReceiverFull => &self.counts.dropped_receiver,
            FabricDropReason::ShareFull => &self.counts.dropped_share,
            FabricDropReason::Outage => &self.counts.dropped_outage,
            FabricDropReason::TooLarge => &self.counts.dropped_too_large,
            FabricDropReason::TooManyStreams => &self.counts.dropped_streams,
            FabricDropReason::Stopped => &self.counts.dropped_stopped,
        }
    }
}

#[cfg(test)]
mod tests;
