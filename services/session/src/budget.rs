//! Limits the memory of messages that sessions hold without a store: one [`Budget`] per broker, within one for all brokers. A
//! message counts once, in the budget of its first holder, so all holders of a message must share a budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::Message;
use crate::settings::UNCOUNTED_BYTES_MAX;

/// Estimated memory of a message beside topic, properties and payload, bytes.
const MESSAGE_BYTES: u64 = 128;
/// Beyond the budget, a session can still hold this many messages if each is small: a session that hoards must not cost the other
/// sessions of its broker every message.
const SPARED_MESSAGES_MAX: usize = 16;
const SPARED_BYTES_MAX: u64 = 4 * 1024;
/// A message counts at most so much besides its own bytes, with an identifier of each of 1,000 subscriptions.
const BESIDE_BYTES: u64 = 8 * 1024;

/// Bytes of messages that are queued or unacknowledged.
#[derive(Debug)]
pub struct Budget {
    used: AtomicU64,
    max: u64,
    /// The budget of all brokers together, which counts the same bytes.
    of_all: Option<Arc<Self>>,
}

impl Budget {
    /// Estimated memory per held message and session, bytes.
    pub const HOLDER_BYTES: u64 = 96;

    pub fn new(max: u64, of_all: Option<Arc<Self>>) -> Self {
        Self { used: AtomicU64::new(0), max, of_all }
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether `budget` is full for a message of a session for which `waiting` bytes wait already.
    pub fn is_short_of(budget: Option<&Arc<Self>>, waiting: u64, bytes: usize) -> bool {
        waiting + bytes as u64 > UNCOUNTED_BYTES_MAX
            && budget.is_some_and(|budget| budget.is_full_for(bytes as u64))
    }

    fn is_full_for(&self, bytes: u64) -> bool {
        !self.has_room(bytes + BESIDE_BYTES)
            || self.of_all.as_ref().is_some_and(|of_all| of_all.is_full_for(bytes))
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.max
    }

    fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(of_all) = &self.of_all {
            of_all.add(bytes);
        }
    }

    fn sub(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(of_all) = &self.of_all {
            of_all.sub(bytes);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Holders(AtomicU32);

/// Counts a message of a session until dropped.
#[derive(Debug)]
pub struct Hold {
    message: Arc<Message>,
    budget: Arc<Budget>,
    own_bytes: u64,
}

impl Hold {
    /// `None` when the budget has no room for a session that holds `held` others. Concurrent callers can exceed the budget by one
    /// message each.
    pub(crate) fn new(
        message: &Arc<Message>,
        budget: &Arc<Budget>,
        held: usize,
        identifiers: usize,
    ) -> Option<Self> {
        let bytes = bytes_of(message);
        let own_bytes = own_bytes(identifiers);
        let needed = bytes + own_bytes - Budget::HOLDER_BYTES;
        let is_spared = held < SPARED_MESSAGES_MAX && needed <= SPARED_BYTES_MAX;
        let has_room = budget.of_all.as_ref().is_none_or(|of_all| of_all.has_room(needed))
            && (is_spared || budget.has_room(needed));
        if !has_room {
            return None;
        }
        let is_first = message.holders().0.fetch_add(1, Ordering::AcqRel) == 0;
        budget.add(own_bytes + if is_first { bytes } else { 0 });
        Some(Self { message: message.clone(), budget: budget.clone(), own_bytes })
    }

    /// `waiting`: bytes that wait beside the message; those up to [`UNCOUNTED_BYTES_MAX`] do not count.
    pub fn of_waiting(
        message: &Arc<Message>,
        identifiers: usize,
        waiting: u64,
        budget: Option<&Arc<Budget>>,
    ) -> Option<Self> {
        let budget = budget.filter(|_| waiting + message.size() as u64 > UNCOUNTED_BYTES_MAX)?;
        Self::new(message, budget, SPARED_MESSAGES_MAX, identifiers)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let is_last = self.message.holders().0.fetch_sub(1, Ordering::AcqRel) == 1;
        self.budget.sub(self.own_bytes + if is_last { bytes_of(&self.message) } else { 0 });
    }
}

pub(crate) fn bytes_held(message: &Message, identifiers: usize) -> u64 {
    bytes_of(message) + own_bytes(identifiers)
}

fn own_bytes(identifiers: usize) -> u64 {
    Budget::HOLDER_BYTES + size_of_identifiers(identifiers)
}

/// One identifier stands in the entry itself.
fn size_of_identifiers(count: usize) -> u64 {
    if count > 1 { (count * size_of::<u32>()) as u64 } else { 0 }
}

fn bytes_of(message: &Message) -> u64 {
    message.size() as u64 + MESSAGE_BYTES
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
