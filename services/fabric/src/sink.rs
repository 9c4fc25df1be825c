//! The interface that a pod implements to get messages of other pods, losses, and pods that come and go.

use bytes::Bytes;

use crate::address::{PodId, To};
use crate::frame::LENGTH;
use crate::health::Health;

/// Called on the fabric's thread, which receives nothing else meanwhile: pass the message to a
/// thread of yours and return. A sink may call the fabric.
pub trait Sink: Send + Sync + 'static {
    /// Messages of one pod, in the order in which it sent them to this receiver.
    fn receive(&self, batch: &MessageBatch);

    /// Messages are lost; earlier messages were passed before this call, later messages follow.
    fn gap(&self, gap: &Gap);

    /// A broker (as such, or at this pod) or a group is joined; also called for [`To::Pods`] and
    /// this pod itself. With `complete`, every message to it that a present pod sends from now on
    /// arrives, or a gap is reported. Otherwise NATS or some pod has not confirmed the join in
    /// time, and may do so later.
    fn joined(&self, to: To, complete: bool) {
        let _ = (to, complete);
    }

    /// Another pod has appeared or returned. Unless it `is_new`, earlier messages of it may be
    /// missing.
    fn pod_came(&self, pod: PodId, name: &str, is_new: bool) {
        let _ = (pod, name, is_new);
    }

    /// The pod is gone or unreachable; its last messages may be missing.
    fn pod_gone(&self, pod: PodId) {
        let _ = pod;
    }

    /// The connection to NATS was made or lost, or its problem has changed.
    fn health_changed(&self, health: &Health) {
        let _ = health;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The sender. `None` stands for any pod: this pod was disconnected for long. That gap is
    /// reported on reconnect, and again when all pods have confirmed this pod's joins; from then on
    /// messages arrive, or another gap is reported. In between, each batch follows a gap.
    pub from: Option<PodId>,
    pub to: To,
    /// `None`: the number is unknown and can be 0.
    pub missing: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct MessageBatch {
    pub(crate) from: PodId,
    pub(crate) to: To,
    pub(crate) count: u32,
    /// Messages with their lengths, as in a frame, and checked.
    pub(crate) body: Bytes,
}

impl MessageBatch {
    #[must_use]
    pub fn from(&self) -> PodId {
        self.from
    }

    #[must_use]
    pub fn to(&self) -> To {
        self.to
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[must_use]
    pub fn messages(&self) -> Messages<'_> {
        Messages { body: &self.body, left: self.count }
    }

    /// Keeps a message of [`MessageBatch::messages`] without a copy. The whole buffer of 64 KiB or more
    /// stays in memory, so copy a short message that lives long.
    #[must_use]
    pub fn share(&self, message: &[u8]) -> Bytes {
        self.body.slice_ref(message)
    }
}

#[derive(Clone, Debug)]
pub struct Messages<'b> {
    body: &'b [u8],
    left: u32,
}

impl<'b> Iterator for Messages<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (length, rest) = self.body.split_first_chunk::<LENGTH>()?;
        let (message, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        self.body = rest;
        Some(message)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Messages<'_> {}
