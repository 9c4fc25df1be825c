//! The subscriptions of a session whose messages the store does not keep (QoS 0). A message that the session reads from the store for
//! another subscription carries their identifiers, too, as a live copy does.

use std::collections::HashSet;

use millrace_mqtt::{QoS, topic};
use millrace_session::ClientSubscription;

use crate::core::work;

#[derive(Default)]
pub(super) struct UnstoredFilters {
    filters: Vec<(Box<str>, ClientSubscription)>,
    levels: usize,
}

impl UnstoredFilters {
    /// `read`: the filters whose messages the session reads from the store.
    pub(super) fn new<'s>(
        subscriptions: impl Iterator<Item = (&'s str, ClientSubscription)>,
        read: impl Iterator<Item = &'s str>,
    ) -> Self {
        let changes_copies = |subscription: &ClientSubscription| {
            let ClientSubscription { options, identifier } = subscription;
            options.qos == QoS::AtMostOnce && (*identifier != 0 || options.retain_as_published)
        };
        let mut filters: Vec<(Box<str>, ClientSubscription)> = subscriptions
            .filter(|(filter, subscription)| changes_copies(subscription) && !filter.starts_with("$share/"))
            .map(|(filter, subscription)| (filter.into(), subscription))
            .collect();
        if !filters.is_empty() {
            let read: HashSet<&str, foldhash::fast::RandomState> = read.collect();
            filters.retain(|(filter, _)| !read.contains(&**filter));
        }
        let levels = filters.iter().map(|(filter, _)| topic::levels(filter.as_bytes())).sum();
        Self { filters, levels }
    }

    //= [MQTT-3.3.4-4] v5
    pub(super) fn matching<'f>(
        &'f self,
        topic: &'f str,
    ) -> impl Iterator<Item = (&'f str, &'f ClientSubscription)> {
        let matching = self.filters.iter().filter(move |(filter, _)| topic::matches(filter, topic));
        matching.map(|(filter, subscription)| (&**filter, subscription))
    }

    pub(super) fn count(&self) -> usize {
        self.filters.len()
    }

    /// The work of comparing one topic with all filters.
    pub(super) fn work(&self) -> u64 {
        self.levels.div_ceil(work::COMPARED_LEVELS) as u64
    }
}
