//! Messages of a session that wait for a packet id or for the socket, and the points among them at which retained messages
//! are read.

use std::collections::VecDeque;

use millrace_mqtt::QoS;

use super::{Outbox, OutboxEntry};
use crate::budget::Hold;

#[derive(Debug)]
pub(super) struct QueuedEntry {
    pub(super) entry: OutboxEntry,
    /// Unset for retained messages and a few stored ones, which do not count before they are sent.
    pub(super) hold: Option<Hold>,
}

impl Outbox {
    pub(crate) fn replays(&self) -> usize {
        self.replays
    }

    pub(crate) fn has_queued_qos_0(&self) -> bool {
        self.queued_qos_0 > 0
    }

    pub(crate) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that the queue moved to new memory for its last entry: a full `VecDeque` doubles its memory.
    pub(crate) fn moved_bytes(&self) -> usize {
        let before = self.queue.len().saturating_sub(1);
        if self.queue.capacity() == 2 * before { before * size_of::<QueuedEntry>() } else { 0 }
    }

    pub(crate) fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    pub(crate) fn enqueue(&mut self, entry: OutboxEntry, hold: Option<Hold>) {
        self.queue_bytes += entry.message.size() as u64;
        self.replays += usize::from(entry.replay);
        self.queued_qos_0 += usize::from(entry.qos == QoS::AtMostOnce);
        self.queue.push_back(QueuedEntry { entry, hold });
    }

    /// Entries that are queued later wait until [`Outbox::close_replay`].
    pub(crate) fn open_replay(&mut self) {
        self.replay_points.push_back(self.taken + self.queue.len() as u64);
        self.replays += 1;
    }

    /// Nothing can leave the queue before [`Outbox::supply`] or [`Outbox::close_replay`].
    pub(crate) fn is_at_replay(&self) -> bool {
        self.replay_points.front() == Some(&self.taken)
    }

    pub(crate) fn supply(&mut self, entry: OutboxEntry) {
        debug_assert!(self.is_at_replay(), "the front of the queue is no replay point");
        self.queue_bytes += entry.message.size() as u64;
        self.replays += usize::from(entry.replay);
        self.queued_qos_0 += usize::from(entry.qos == QoS::AtMostOnce);
        self.queue.push_front(QueuedEntry { entry, hold: None });
        // The points stay behind the entry.
        self.taken -= 1;
    }

    pub(crate) fn close_replay(&mut self) {
        if self.is_at_replay() {
            self.replay_points.pop_front();
            self.replays -= 1;
        }
    }

    /// Takes back the last [`Outbox::open_replay`], unless it is the one that is read next.
    pub(crate) fn withdraw_replay(&mut self) {
        if self.replay_points.len() > 1 {
            self.replay_points.pop_back();
            self.replays -= 1;
        }
    }

    pub(crate) fn dequeue(&mut self) -> Option<(OutboxEntry, Option<Hold>)> {
        if self.is_at_replay() {
            return None;
        }
        let QueuedEntry { entry, hold } = self.queue.pop_front()?;
        self.taken += 1;
        self.queue_bytes -= entry.message.size() as u64;
        self.replays -= usize::from(entry.replay);
        self.queued_qos_0 -= usize::from(entry.qos == QoS::AtMostOnce);
        if self.queue.is_empty() && self.queue.capacity() > crate::EMPTY_CAPACITY_MAX {
            self.queue = VecDeque::new();
        }
        Some((entry, hold))
    }

    pub(crate) fn next_in_queue(&self) -> Option<&OutboxEntry> {
        self.queue.front().filter(|_| !self.is_at_replay()).map(|waiting| &waiting.entry)
    }

    pub(crate) fn queue(&self) -> impl Iterator<Item = &OutboxEntry> {
        self.queue.iter().map(|waiting| &waiting.entry)
    }

    pub(crate) fn cut_queue(&mut self, unwanted: impl Fn(&OutboxEntry) -> bool) {
        while let Some(QueuedEntry { entry, .. }) = self.queue.pop_back_if(|waiting| unwanted(&waiting.entry))
        {
            self.queue_bytes -= entry.message.size() as u64;
            self.replays -= usize::from(entry.replay);
            self.queued_qos_0 -= usize::from(entry.qos == QoS::AtMostOnce);
        }
        let end = self.taken + self.queue.len() as u64;
        self.replay_points.iter_mut().for_each(|point| *point = end.min(*point));
    }

    pub(crate) fn take_waiting(&mut self, wanted: impl Fn(&OutboxEntry) -> bool) -> Vec<OutboxEntry> {
        let mut taken = Vec::new();
        let mut points = std::mem::take(&mut self.replay_points).into_iter().peekable();
        for (position, waiting) in (self.taken..).zip(std::mem::take(&mut self.queue)) {
            while let Some(point) = points.next_if(|point| *point <= position) {
                self.replay_points.push_back(point - taken.len() as u64);
            }
            if wanted(&waiting.entry) {
                taken.push(waiting.entry);
            } else {
                self.queue.push_back(waiting);
            }
        }
        self.replay_points.extend(points.map(|point| point - taken.len() as u64));
        self.queue_bytes = self.queue().map(|entry| entry.message.size() as u64).sum();
        self.replays = self.queue().filter(|entry| entry.replay).count() + self.replay_points.len();
        self.queued_qos_0 = self.queue().filter(|entry| entry.qos == QoS::AtMostOnce).count();
        taken
    }
}
