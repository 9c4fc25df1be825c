//! The subscriptions and messages of an ended session. The caller takes them one after another, because a session can have
//! a hundred thousand of each.

use hashbrown::hash_map::IntoKeys;

use super::ClientSubscription;
use crate::Place;
use crate::outbox::{Left, Outbox};

#[derive(Debug)]
pub struct Remains {
    pub(super) filters: Option<IntoKeys<Box<str>, ClientSubscription>>,
    pub(super) outbox: Option<Box<Outbox>>,
}

impl Remains {
    /// Takes a subscription: its filter with `$share/name/`.
    pub fn next_filter(&mut self) -> Option<Box<str>> {
        let next = self.filters.as_mut()?.next();
        self.filters.take_if(|filters| filters.len() == 0);
        next
    }

    /// Takes a message, in the order of sending.
    pub fn next_message(&mut self) -> Option<Left> {
        self.outbox.as_mut()?.take_left()
    }

    /// The same as [`super::Session::take_settled`], for the messages taken so far.
    pub fn take_settled(&mut self) -> Vec<(u64, Place)> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_settled())
    }

    pub fn has_filters(&self) -> bool {
        self.filters.is_some()
    }

    pub fn has_messages(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.has_left())
    }
}
