//! The subscriptions and messages of an ended session. The caller takes them one after another, because a session can have
//! a hundred thousand of each.

use super::subscriptions::{RemainingFilters, Subscriptions};
use crate::StoredPosition;
use crate::outbox::{Outbox, RemainingMessage};

#[derive(Debug)]
pub struct Remains {
    filters: Option<RemainingFilters>,
    /// Filters that wait until the shared ones are taken.
    own: Vec<Box<str>>,
    outbox: Option<Box<Outbox>>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum NextFilter {
    /// A filter with its `$share/name/`.
    Taken(Box<str>),
    /// One more filter was looked at, and waits for the shared ones.
    Later,
}

impl Remains {
    pub(super) fn new(subscriptions: Option<Box<Subscriptions>>, outbox: Option<Box<Outbox>>) -> Self {
        let filters = subscriptions.map(|all| all.into_filters()).filter(|filters| filters.len() > 0);
        Self { filters, own: Vec::new(), outbox }
    }

    /// Takes a subscription. Shared ones come first, because other members wait for their messages.
    pub fn next_filter(&mut self) -> Option<NextFilter> {
        let Some(filters) = &mut self.filters else { return self.own.pop().map(NextFilter::Taken) };
        let next = filters.next();
        self.filters.take_if(|filters| filters.len() == 0);
        let next = next?;
        if next.starts_with("$share/") {
            return Some(NextFilter::Taken(next));
        }
        self.own.push(next);
        Some(NextFilter::Later)
    }

    /// Takes a message, in the order of sending.
    pub fn next_message(&mut self) -> Option<RemainingMessage> {
        self.outbox.as_mut()?.take_remaining()
    }

    /// The same as [`super::Session::take_settled`], for the messages taken so far.
    pub fn take_settled(&mut self) -> Vec<(u64, StoredPosition)> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_settled())
    }

    pub fn has_filters(&self) -> bool {
        self.filters.is_some() || !self.own.is_empty()
    }

    pub fn has_messages(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.has_remaining())
    }
}
