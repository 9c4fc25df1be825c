//! A fair queue of streams that wait for work, such as a trim: brokers take turns.

use std::collections::HashSet;

use millrace_layers::streams::StreamId;

use super::StreamKey;
use crate::fair_queue::FairQueue;

/// Has each stream once.
#[derive(Default)]
pub(super) struct StreamTurns {
    queue: FairQueue<StreamId>,
    waiting: HashSet<StreamKey>,
}

impl StreamTurns {
    pub(super) fn add(&mut self, stream: StreamKey) {
        if self.waiting.insert(stream) {
            self.queue.push(stream.0, stream.1);
        }
    }

    pub(super) fn pop(&mut self) -> Option<StreamKey> {
        let stream = self.queue.pop()?;
        self.waiting.remove(&stream);
        Some(stream)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> &HashSet<StreamKey> {
        &self.waiting
    }
}
