//! The retained messages that a new subscription gets: which ones, and the pages in which the store has read them.

use std::sync::Arc;

use millrace_layers::Position;
use millrace_layers::retained::Bookmark;
use millrace_mqtt::{QoS, topic};
use millrace_router::TreeSnapshot;
use millrace_session::Message;

/// The retained messages of one new subscription.
pub(crate) struct Replay {
    pub(crate) filter: Box<str>,
    pub(crate) qos: QoS,
    pub(crate) identifier: u32,
    /// `None` until the store has read them.
    pub(crate) retained: Option<Arc<TreeSnapshot<Arc<Message>>>>,
    /// The pages in which the store has read them; none with a single pod.
    pub(crate) pages: Arc<RetainedPages>,
}

/// The pages in which a SUBSCRIBE's retained messages were read. Each covers a range of a filter's topics, as of its
/// position. A topic that several filters match is read for the first filter only.
#[derive(Default)]
pub(crate) struct RetainedPages {
    broker: u64,
    filters: Vec<(Box<str>, Pages)>,
}

/// Where the next page begins, `None` after the last one.
type Pages = Vec<(Option<Bookmark>, Position)>;

impl RetainedPages {
    pub(crate) fn new(broker: u64) -> Self {
        Self { broker, filters: Vec::new() }
    }

    pub(crate) fn broker(&self) -> u64 {
        self.broker
    }

    pub(crate) fn begin(&mut self, filter: &str) {
        if self.filters.last().is_none_or(|(last, _)| **last != *filter) {
            self.filters.push((filter.into(), Vec::new()));
        }
    }

    pub(crate) fn earlier(&self) -> usize {
        self.filters.len().saturating_sub(1)
    }

    pub(crate) fn is_read(&self, topic: &str) -> bool {
        self.filters[..self.earlier()].iter().any(|(filter, _)| topic::matches(filter, topic))
    }

    /// Adds a page that was read as of `through`. `next` is where the next page begins.
    pub(crate) fn push(&mut self, next: Option<Bookmark>, through: Position) {
        let Some((_, pages)) = self.filters.last_mut() else { return };
        match pages.last_mut() {
            Some((end, last)) if *last == through => *end = next,
            _ => pages.push((next, through)),
        }
    }

    /// Whether the page that covers the topic was read as of this position or later.
    pub(crate) fn has(&self, topic: &str, place: Position) -> bool {
        let at = Bookmark::at(self.broker, topic.as_bytes());
        let mut filters = self.filters.iter();
        let Some((_, pages)) = filters.find(|(filter, _)| topic::matches(filter, topic)) else {
            return false;
        };
        let page = pages.partition_point(|(end, _)| end.as_ref().is_some_and(|end| *end <= at));
        pages.get(page).is_some_and(|(_, through)| place <= *through)
    }
}
