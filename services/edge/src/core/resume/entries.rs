//! Hands the messages of a page to their session, a slice of work at a time.

use millrace_layers::{Position, Positions};
use millrace_session::{Delivery, Message, OutboxEntry, UNCOUNTED_BYTES_MAX};

use super::unstored::UnstoredFilters;
use crate::core::deliver::Publisher;
use crate::core::new_subscriptions::NewSubscriptions;
use crate::core::{Core, between, work};
use crate::jobs::{PageEntry, StoredPage};

impl Core {
    /// Returns the messages for which the turn has no work left, or the memory no room. `had`: messages that the session has already.
    pub(super) fn deliver_entries(
        &mut self,
        session: u32,
        entries: Vec<PageEntry>,
        had: &Positions,
    ) -> Vec<PageEntry> {
        let mut entries = entries.into_iter();
        if entries.len() == 0 {
            return Vec::new();
        }
        let unstored = self.unstored_filters(session);
        let end = self.work.spent() + work::SLICE;
        while self.work.spent() < end
            && let Some((message, ..)) = entries.as_slice().first()
            && !self.lacks_memory(session, message)
            && let Some(entry) = entries.next()
        {
            if !entry.0.position().is_some_and(|position| had.contains(Position(position))) {
                self.deliver_read(session, &unstored, &entry);
            }
        }
        entries.collect()
    }

    fn lacks_memory(&self, session: u32, message: &Message) -> bool {
        let local = self.sessions.get(session as usize);
        local.is_some_and(|local| local.session.lacks_memory(message.size(), local.broker.queues()))
    }

    pub(super) fn cut_page(&mut self, session: u32, entries: &[PageEntry], page: &mut StoredPage) -> bool {
        let Some((message, ..)) = entries.first().filter(|(message, ..)| self.lacks_memory(session, message))
        else {
            return false;
        };
        let local = self.sessions.get_mut(session as usize);
        let persistent = local.and_then(|local| local.persistent.as_deref_mut());
        let (Some(persistent), Some(position)) = (persistent, message.position()) else { return false };
        persistent.no_room_for = message.size();
        (page.through, page.more) = (Position(position).before(), true);
        true
    }

    /// A session whose last page was cut gets another one when the first message has room, and a good part of the page behind it.
    pub(in crate::core) fn read_on_with_memory(&mut self, session: u32) {
        let local = &mut self.sessions[session as usize];
        let Some(persistent) = &mut local.persistent else { return };
        let needed = persistent.no_room_for.max(UNCOUNTED_BYTES_MAX as usize / 2);
        if persistent.no_room_for > 0 && local.session.lacks_memory(needed, local.broker.queues()) {
            return;
        }
        persistent.no_room_for = 0;
        self.read_on(session);
    }

    fn unstored_filters(&mut self, session: u32) -> UnstoredFilters {
        let Some(local) = self.sessions.get(session as usize) else { return UnstoredFilters::default() };
        let read = local.persistent.iter().flat_map(|persistent| persistent.filters());
        let subscriptions = local.session.subscriptions().map(|(filter, known)| (filter, *known));
        let unstored = UnstoredFilters::new(subscriptions, read);
        let looked_through = local.session.subscriptions_len() / work::PASSED_FILTERS;
        self.work.spend((looked_through + unstored.count()) as u64 + unstored.work_of_making());
        unstored
    }

    /// The copy carries the identifiers of all matching subscriptions, also of those whose messages the store does not keep.
    fn deliver_read(&mut self, session: u32, unstored: &UnstoredFilters, entry: &PageEntry) {
        let (message, publisher, sources) = entry;
        let local = &self.sessions[session as usize];
        let Some(persistent) = &local.persistent else { return };
        let own = local.publisher == *publisher;
        let read = sources.iter().filter_map(|source| {
            let filter = &*persistent.source(*source)?.filter;
            Some((filter, local.session.subscription(filter)?))
        });
        let subscriptions = read.chain(unstored.matching(message.topic())).filter(|(filter, _)| {
            let new = local.new_subscriptions.as_ref();
            !new.is_some_and(|new| new.has_for(filter, message, self.now))
        });
        let entry = between::entry(message, own, subscriptions.map(|(_, subscription)| subscription));
        let compared = local.new_subscriptions.as_deref().map_or(0, NewSubscriptions::take_compared);
        let looked_up = sources.len() + compared / work::COMPARED_LEVELS;
        self.work.spend(work::SINGLE_COPY + looked_up as u64 + unstored.work());
        let Some(entry) = entry else { return };
        let OutboxEntry { qos, retain, identifiers, .. } = &entry;
        let maybe_sent = persistent.may_be_sent(message);
        let (qos, retain) = (*qos, *retain);
        let delivery = Delivery { message, qos, retain, replay: false, maybe_sent, shared: 0, identifiers };
        self.deliver_to(session, delivery, Publisher::NOBODY);
    }
}
