//! Numbers the messages to one receiver and packs them into batches. The outbox's state owns a
//! stream for each receiver, and calls it under its lock; finished frames go into its queue `ready`.

use crate::address::{PodId, To};
use crate::frame::{self, HEAD, LENGTH, Numbers, SenderPosition};

use super::ready::Ready;
use super::{Destination, Outgoing};

pub(super) struct OutboxStream {
    /// Changes when the numbers begin anew; 0 for a group, whose messages have no numbers.
    generation: u64,
    /// The server has reported that no pod listens: messages get numbers but are not sent.
    pub(super) is_quiet: bool,
    /// Messages were added since the last check.
    pub(super) is_active: bool,
    /// The next frame asks the server whether any pod listens. True at first, because that is not known.
    pub(super) probes: bool,
    /// The receiver's queue is at its limit: messages are dropped until a quarter has left.
    pub(super) is_full: bool,
    /// In the list of open batches, which the next round of sending closes.
    pub(super) is_dirty: bool,
    /// In a queue of checks, which send heartbeats and probes.
    pub(super) is_scheduled: bool,
    /// The last probe sent before a pod joined: a reply to it, "nobody listens", is out of date.
    joined_at_probe: u64,
    open_count: u32,
    /// The number of the next batch's first message.
    next: u64,
    /// The batch that messages are added to; empty if there is none.
    open: Vec<u8>,
    /// Bytes that are queued and not sent yet.
    pub(super) waiting: usize,
}

impl OutboxStream {
    pub(super) fn new(generation: u64) -> Self {
        Self {
            generation,
            is_quiet: false,
            is_active: true,
            probes: true,
            is_full: false,
            is_dirty: false,
            is_scheduled: false,
            joined_at_probe: 0,
            open_count: 0,
            next: 0,
            open: Vec::new(),
            waiting: 0,
        }
    }

    /// The receiver's queue is full, or would be more than full with so many bytes.
    pub(super) fn has_no_room(&mut self, bytes: usize, bytes_max: usize) -> bool {
        self.is_full |= self.waiting > 0 && self.waiting + bytes > bytes_max;
        self.is_full
    }

    pub(super) fn skip(&mut self, messages: u32, to: To, own: PodId, ready: &mut Ready) {
        // A batch must have consecutive numbers, so the open one ends here.
        self.close(to, own, ready);
        self.next += u64::from(messages);
    }

    pub(super) fn add(
        &mut self,
        pieces: &[&[u8]],
        length: usize,
        batch_bytes_max: usize,
        (to, own): (To, PodId),
        ready: &mut Ready,
    ) {
        if !self.open.is_empty() && self.open.len() + LENGTH + length > batch_bytes_max {
            self.close(to, own, ready);
        }
        if self.open.is_empty() {
            self.open = frame::open();
        }
        frame::add(&mut self.open, pieces, length);
        self.open_count += 1;
        self.note_added(LENGTH + length);
    }

    pub(super) fn add_large(&mut self, batch: Vec<u8>, to: To, own: PodId, ready: &mut Ready) {
        self.close(to, own, ready);
        self.open_count = 1;
        self.note_added(batch.len() - HEAD);
        self.open = batch;
        self.close(to, own, ready);
    }

    fn note_added(&mut self, bytes: usize) {
        self.waiting += bytes;
        self.next += 1;
    }

    pub(super) fn close(&mut self, to: To, own: PodId, ready: &mut Ready) {
        if self.open.is_empty() {
            return;
        }
        let count = std::mem::take(&mut self.open_count);
        let numbers = Numbers { generation: self.generation, first: self.next - u64::from(count), count };
        let frame = frame::close(std::mem::take(&mut self.open), own, numbers);
        ready.push(Outgoing {
            destination: Destination::To(to),
            frame,
            numbers: Some(numbers),
            probe: None,
            part: None,
        });
    }

    /// The heartbeat is queued after the messages that it counts.
    pub(super) fn heartbeat(&mut self, to: To, own: PodId, ready: &mut Ready) {
        self.close(to, own, ready);
        let frame = frame::heartbeat(own, self.generation, self.next);
        let numbers = Numbers { generation: self.generation, first: self.next, count: 0 };
        ready.push(Outgoing {
            destination: Destination::To(to),
            frame,
            numbers: Some(numbers),
            probe: None,
            part: None,
        });
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.waiting = self.waiting.saturating_sub(bytes);
    }

    /// A pod has joined after the probe of this number was sent. Returns where it begins to listen.
    pub(super) fn pod_joined(&mut self, to: To, probe: u64) -> Option<SenderPosition> {
        self.is_quiet = false;
        self.joined_at_probe = probe;
        to.is_numbered().then_some(SenderPosition { to, generation: self.generation, next: self.next })
    }

    pub(super) fn no_listener(&mut self, probe: u64) {
        if probe > self.joined_at_probe {
            self.is_quiet = true;
        }
    }
}
