//! The subscriptions of a session whose messages the store does not keep (QoS 0). A message that the session reads from the store for
//! another subscription carries their identifiers, too, as a live copy does.

use std::collections::HashSet;

use millrace_layers::Position;
use millrace_layers::subscriptions::StoredSubscription;
use millrace_mqtt::{QoS, topic};
use millrace_session::ClientSubscription;

use super::stored::is_read;
use super::{position_of, subscription_of};
use crate::core::{Core, work};
use crate::jobs::{AttachedSession, StoredPage};

/// Hashing a filter costs about as much as copying its bytes and this many more.
const FILTER_BYTES: usize = 128;

#[derive(Default)]
pub(super) struct UnstoredFilters {
    filters: Vec<(Box<str>, ClientSubscription)>,
    levels: usize,
    /// Bytes of the filters that were copied or hashed.
    made_from: usize,
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
        let mut made_from = filters.iter().map(|(filter, _)| filter.len()).sum();
        if !filters.is_empty() {
            let read: HashSet<&str, foldhash::fast::RandomState> = read.collect();
            made_from += read.iter().map(|filter| FILTER_BYTES + filter.len()).sum::<usize>();
            filters.retain(|(filter, _)| !read.contains(&**filter));
        }
        let levels = filters.iter().map(|(filter, _)| topic::levels(filter.as_bytes())).sum();
        Self { filters, levels, made_from }
    }

    pub(super) fn of_stored(stored: &[StoredSubscription]) -> Self {
        let subscriptions = stored.iter().filter_map(|stored| {
            Some((std::str::from_utf8(&stored.filter).ok()?, subscription_of(stored.options)))
        });
        let read: Vec<_> = stored.iter().filter_map(is_read).collect();
        Self::new(subscriptions, read.iter().map(|(source, _)| &*source.filter))
    }

    pub(super) fn get(&self, number: usize) -> Option<&ClientSubscription> {
        self.filters.get(number).map(|(_, subscription)| subscription)
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

    pub(super) fn work_of_making(&self) -> u64 {
        (self.made_from / work::COPIED_BYTES) as u64
    }

    /// The work of comparing one topic with all filters.
    pub(super) fn work(&self) -> u64 {
        self.levels.div_ceil(work::COMPARED_LEVELS) as u64
    }
}

impl Core {
    /// Adds to each message that goes between those in flight the numbers of the unstored filters that match it, behind those of
    /// its sources. Returns false if a later turn must continue.
    pub(super) fn compare_unstored(&mut self, attached: &AttachedSession, page: &mut StoredPage) -> bool {
        let last = attached.in_flight.iter().filter_map(|(_, in_flight)| position_of(in_flight)).max();
        let end = page.entries.partition_point(|(message, ..)| message.position().map(Position) < last);
        if page.compared >= end {
            return true;
        }
        let unstored = UnstoredFilters::of_stored(&attached.subscriptions);
        let sources_len = attached.subscriptions.iter().filter_map(is_read).count();
        self.work.spend(work::SEEN * attached.subscriptions.len() as u64);
        let slice = self.work.spent() + work::SLICE;
        while page.compared < end && self.work.spent() < slice {
            let (message, _, sources) = &mut page.entries[page.compared];
            page.compared += 1;
            self.work.spend(work::SEEN);
            let is_had = message.position().is_none_or(|at| attached.acknowledged.contains(Position(at)));
            if !is_had {
                let numbers = (sources_len..).zip(&unstored.filters);
                let matching = numbers.filter(|(_, (filter, _))| topic::matches(filter, message.topic()));
                sources.extend(matching.map(|(number, _)| number));
                self.work.spend(unstored.work());
            }
        }
        page.compared == end
    }
}
