//! The retained messages that a new subscription gets: which ones, and the pages in which the store has read them.

use std::sync::Arc;

use millrace_layers::Position;
use millrace_layers::retained::Bookmark;
use millrace_mqtt::{QoS, SubscribeOptions};
use millrace_router::TreeSnapshot;
use millrace_session::Message;

use super::filter_index::FilterIndex;
use crate::encoding::record;

pub(crate) struct Replay {
    pub(crate) filter: Box<str>,
    pub(crate) qos: QoS,
    pub(crate) identifier: u32,
    /// The publisher whose messages No Local leaves out; 0: none.
    pub(crate) left_out: u64,
    /// Insertions into the broker's retained messages before the SUBSCRIBE; 0: nothing was retained. `None`: they are in the store.
    pub(crate) before: Option<u64>,
    pub(crate) retained: Option<Arc<TreeSnapshot<Arc<Message>>>>,
    /// The pages in which the store has read them; none with a single pod.
    pub(crate) pages: Arc<RetainedPages>,
}

/// The publisher whose retained messages a subscription of this client does not get; 0: it gets all.
pub(crate) fn left_out(client_id: &str, options: SubscribeOptions) -> u64 {
    if options.no_local { record::publisher(client_id) } else { 0 }
}

/// The pages in which a SUBSCRIBE's retained messages were read. Each covers a range of a filter's topics, as of its
/// position. A topic that several filters match is read for the first filter only.
#[derive(Default)]
pub(crate) struct RetainedPages {
    broker: u64,
    index: FilterIndex,
    /// For each filter that is being read or was read.
    of: Vec<Pages>,
}

/// For each page, where the next one begins (`None` after the last) and the position as of which it was read.
type Pages = Vec<(Option<Bookmark>, Position)>;

impl RetainedPages {
    pub(crate) fn new(broker: u64, filters: Box<[Box<str>]>) -> Self {
        Self { broker, index: FilterIndex::new(filters), of: Vec::new() }
    }

    pub(crate) fn broker(&self) -> u64 {
        self.broker
    }

    pub(crate) fn filter(&self, at: usize) -> &str {
        &self.index.filters()[at]
    }

    pub(crate) fn has_filters(&self) -> bool {
        !self.index.filters().is_empty()
    }

    /// Whether the topic is read for an earlier filter than this one, and the work of finding out.
    pub(crate) fn is_of_earlier(&self, at: usize, topic: &str) -> (bool, usize) {
        let (first, work) = self.index.first(topic);
        (first.is_some_and(|first| first < at), work)
    }

    /// Adds a page of a filter that was read as of `through`; `next` is where the next page begins.
    pub(crate) fn push(&mut self, at: usize, next: Option<Bookmark>, through: Position) {
        self.of.resize_with(self.of.len().max(at + 1), Vec::new);
        let pages = &mut self.of[at];
        match pages.last_mut() {
            Some((end, last)) if *last == through => *end = next,
            _ => pages.push((next, through)),
        }
    }

    /// Whether the page that covers the topic was read as of this position or later, and the work of finding out.
    pub(crate) fn has(&self, topic: &str, position: Position) -> (bool, usize) {
        let at = Bookmark::at(self.broker, topic.as_bytes());
        let (first, work) = self.index.first(topic);
        let Some(pages) = first.and_then(|first| self.of.get(first)) else { return (false, work) };
        let page = pages.partition_point(|(end, _)| end.as_ref().is_some_and(|end| *end <= at));
        (pages.get(page).is_some_and(|(_, through)| position <= *through), work)
    }
}
