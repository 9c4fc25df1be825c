//! How much memory messages take while they wait for sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::Message;

/// Memory of a message beside topic, properties and payload, bytes.
const MESSAGE_BYTES: u64 = 128;
/// Beyond the limit, a session may still hold so many messages, as long as each is small: a session that hoards must not
/// cost the others of its broker every message.
const SPARED_MESSAGES_MAX: usize = 16;
const SPARED_BYTES_MAX: u64 = 4 * 1024;

/// Bytes that messages may take while sessions hold them: those that wait, and those that are sent and not acknowledged. A
/// message counts once, however many sessions hold it.
#[derive(Debug)]
pub struct Budget {
    used: AtomicU64,
    max: u64,
    /// That of all brokers together.
    of_all: Option<Arc<Self>>,
}

impl Budget {
    /// Memory that a session takes to hold a message, bytes.
    pub const HOLDER_BYTES: u64 = 96;

    /// A budget of `max` bytes, which are part of another one.
    pub fn new(max: u64, of_all: Option<Arc<Self>>) -> Self {
        Self { used: AtomicU64::new(0), max, of_all }
    }

    /// Bytes that are in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
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

/// How many sessions hold a message.
#[derive(Debug, Default)]
pub(crate) struct Holders(AtomicU32);

/// A message that a session holds. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    message: Arc<Message>,
    budget: Arc<Budget>,
}

impl Hold {
    /// Counts a message for a session that holds `held` others; `None` when there is no room. Several threads that ask at once
    /// may exceed the budget by a message each.
    pub(crate) fn new(message: &Arc<Message>, budget: &Arc<Budget>, held: usize) -> Option<Self> {
        let bytes = bytes_of(message);
        let is_spared = held < SPARED_MESSAGES_MAX && bytes <= SPARED_BYTES_MAX;
        let has_room = budget.of_all.as_ref().is_none_or(|of_all| of_all.has_room(bytes))
            && (is_spared || budget.has_room(bytes));
        if !has_room {
            return None;
        }
        let is_first = message.holders().0.fetch_add(1, Ordering::AcqRel) == 0;
        budget.add(Budget::HOLDER_BYTES + if is_first { bytes } else { 0 });
        Some(Self { message: message.clone(), budget: budget.clone() })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let is_last = self.message.holders().0.fetch_sub(1, Ordering::AcqRel) == 1;
        self.budget.sub(Budget::HOLDER_BYTES + if is_last { bytes_of(&self.message) } else { 0 });
    }
}

fn bytes_of(message: &Message) -> u64 {
    message.size() as u64 + MESSAGE_BYTES
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
