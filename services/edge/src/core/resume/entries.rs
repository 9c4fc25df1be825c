//! Hands the messages of a page to their session, a slice of work at a time.

use std::sync::Arc;

use millrace_layers::{Position, Positions};
use millrace_session::{Delivery, Entry, Message};

use crate::core::deliver::Publisher;
use crate::core::new_subscriptions::NewSubscriptions;
use crate::core::{Core, between, work};
use crate::jobs::PageEntry;

impl Core {
    /// Returns the messages for which the turn has no work left. `had`: messages that the session has already.
    pub(super) fn deliver_entries(
        &mut self,
        session: u32,
        entries: Vec<PageEntry>,
        had: &Positions,
    ) -> Vec<PageEntry> {
        let end = self.work.spent() + work::SLICE;
        let mut entries = entries.into_iter();
        while self.work.spent() < end
            && let Some((message, publisher, sources)) = entries.next()
        {
            if !message.position().is_some_and(|position| had.contains(Position(position))) {
                self.deliver_read(session, &message, publisher, &sources);
            }
        }
        entries.collect()
    }

    fn deliver_read(&mut self, session: u32, message: &Arc<Message>, publisher: u64, sources: &[usize]) {
        let local = &self.sessions[session as usize];
        let Some(persistent) = &local.persistent else { return };
        let own = local.publisher == publisher;
        let subscriptions = sources.iter().filter_map(|source| {
            let filter = &*persistent.source(*source)?.filter;
            let new = local.new_subscriptions.as_ref();
            let is_had = new.is_some_and(|new| new.has_for(filter, message, self.now));
            local.session.subscription(filter).filter(|_| !is_had)
        });
        let entry = between::entry(message, own, subscriptions);
        let compared = local.new_subscriptions.as_deref().map_or(0, NewSubscriptions::take_compared);
        let looked_up = sources.len() + compared / work::COMPARED_LEVELS;
        self.work.spend(work::SINGLE_COPY + looked_up as u64);
        let Some(entry) = entry else { return };
        let Entry { qos, retain, identifiers, .. } = &entry;
        let maybe_sent = persistent.may_be_sent(message);
        let (qos, retain) = (*qos, *retain);
        let delivery = Delivery { message, qos, retain, replay: false, maybe_sent, shared: 0, identifiers };
        self.deliver_to(session, delivery, Publisher::NOBODY);
    }
}
