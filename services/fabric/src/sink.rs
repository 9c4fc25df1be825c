//! What a fabric hands to its user.

use bytes::Bytes;

use crate::address::{PodId, To};
use crate::frame::LENGTH;
use crate::health::Health;

/// Takes what arrives. It is called on the fabric's thread, which receives nothing else meanwhile: leave what came with the
/// thread that it is for, and return. It may call the fabric.
pub trait Sink: Send + Sync + 'static {
    /// Messages of one pod, in the order in which it sent them to this receiver.
    fn receive(&self, batch: &Batch);

    /// Messages are missing and will not come. What came before was handed over before; what was sent after them comes after.
    fn gap(&self, gap: &Gap);

    /// A broker (as such, or at this pod) or group is joined. `complete`: whatever a pod that has come sends to it from now on is received, or a gap is
    /// reported. Else NATS or a pod has not confirmed that in time, and it may become so later. Told for [`To::Pods`] and this
    /// pod itself, too.
    fn joined(&self, to: To, complete: bool) {
        let _ = (to, complete);
    }

    /// Another pod is there, or is heard again. Unless it `is_new`, what it sent before now may be missing.
    fn pod_came(&self, pod: PodId, name: &str, is_new: bool) {
        let _ = (pod, name, is_new);
    }

    /// Another pod is gone, or cannot be heard: the last of what it sent may be missing.
    fn pod_gone(&self, pod: PodId) {
        let _ = pod;
    }

    /// The connection to NATS came or went, or what is wrong with it has changed.
    fn health_changed(&self, health: &Health) {
        let _ = health;
    }
}

/// Missing messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Whose; `None`: of any pod. This pod was away from NATS for long; this is reported when it is back, and once more when all
    /// pods have confirmed what it has joined: what is sent from then on is received, or another gap is reported.
    pub from: Option<PodId>,
    /// To whom.
    pub to: To,
    /// How many; `None`: that is not known, perhaps none.
    pub missing: Option<u64>,
}

/// Messages that came together.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) from: PodId,
    pub(crate) to: To,
    pub(crate) count: u32,
    /// As in a frame, and checked.
    pub(crate) body: Bytes,
}

impl Batch {
    /// Who sent them.
    #[must_use]
    pub fn from(&self) -> PodId {
        self.from
    }

    /// To whom.
    #[must_use]
    pub fn to(&self) -> To {
        self.to
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each message, in order.
    #[must_use]
    pub fn messages(&self) -> Messages<'_> {
        Messages { body: &self.body, left: self.count }
    }

    /// A message of [`Batch::messages`] to keep, without a copy. It keeps the memory that it came in, 64 KiB or more: copy what
    /// is short and stays.
    #[must_use]
    pub fn share(&self, message: &[u8]) -> Bytes {
        self.body.slice_ref(message)
    }
}

/// The messages of a [`Batch`].
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
