//! The messages to one receiver: their numbers, and the open batch.

use std::collections::VecDeque;

use crate::address::{PodId, To};
use crate::frame::{self, HEAD, LENGTH, Numbers, Position};

use super::{Destination, Outgoing};

pub(super) struct Stream {
    /// 0 for a receiver whose messages have no numbers.
    generation: u64,
    /// The server has reported that no pod listens: messages get numbers but are not sent.
    pub(super) is_quiet: bool,
    /// Messages were added since the last check.
    pub(super) is_active: bool,
    /// The next frame asks the server whether any pod listens.
    pub(super) probes: bool,
    pub(super) is_full: bool,
    pub(super) is_dirty: bool,
    pub(super) is_scheduled: bool,
    /// Answers to probes up to this number are out of date.
    wanted_at: u64,
    /// Messages in the open batch.
    open_count: u32,
    /// The number of the next batch's first message.
    next: u64,
    /// The batch that messages are added to; empty if there is none.
    open: Vec<u8>,
    /// Bytes that are queued and not sent yet.
    pub(super) waiting: usize,
}

impl Stream {
    pub(super) fn new(generation: u64) -> Self {
        Self {
            generation,
            is_quiet: false,
            is_active: true,
            probes: true,
            is_full: false,
            is_dirty: false,
            is_scheduled: false,
            wanted_at: 0,
            open_count: 0,
            next: 0,
            open: Vec::new(),
            waiting: 0,
        }
    }

    pub(super) fn skip(&mut self, messages: u32, to: To, own: PodId, ready: &mut VecDeque<Outgoing>) {
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
        ready: &mut VecDeque<Outgoing>,
    ) {
        if !self.open.is_empty() && self.open.len() + LENGTH + length > batch_bytes_max {
            self.close(to, own, ready);
        }
        if self.open.is_empty() {
            self.open = frame::open();
        }
        frame::add(&mut self.open, pieces, length);
        self.open_count += 1;
        self.took(LENGTH + length);
    }

    pub(super) fn add_large(&mut self, batch: Vec<u8>, to: To, own: PodId, ready: &mut VecDeque<Outgoing>) {
        self.close(to, own, ready);
        self.open_count = 1;
        self.took(batch.len() - HEAD);
        self.open = batch;
        self.close(to, own, ready);
    }

    fn took(&mut self, bytes: usize) {
        self.waiting += bytes;
        self.next += 1;
    }

    pub(super) fn close(&mut self, to: To, own: PodId, ready: &mut VecDeque<Outgoing>) {
        if self.open.is_empty() {
            return;
        }
        let count = std::mem::take(&mut self.open_count);
        let numbers = Numbers { generation: self.generation, first: self.next - u64::from(count), count };
        let frame = frame::close(std::mem::take(&mut self.open), own, numbers);
        ready.push_back(Outgoing {
            destination: Destination::To(to),
            frame,
            numbers: Some(numbers),
            probe: None,
        });
    }

    /// The heartbeat is queued after the messages that it counts.
    pub(super) fn heartbeat(&mut self, to: To, own: PodId, ready: &mut VecDeque<Outgoing>) {
        self.close(to, own, ready);
        let frame = frame::heartbeat(own, self.generation, self.next);
        let numbers = Numbers { generation: self.generation, first: self.next, count: 0 };
        ready.push_back(Outgoing {
            destination: Destination::To(to),
            frame,
            numbers: Some(numbers),
            probe: None,
        });
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.waiting = self.waiting.saturating_sub(bytes);
    }

    /// A pod listens, at least since this probe was sent.
    pub(super) fn pod_joined(&mut self, to: To, probe: u64) -> Option<Position> {
        self.is_quiet = false;
        self.wanted_at = probe;
        to.is_numbered().then_some(Position { to, generation: self.generation, next: self.next })
    }

    pub(super) fn unwanted(&mut self, probe: u64) {
        if probe > self.wanted_at {
            self.is_quiet = true;
        }
    }
}
