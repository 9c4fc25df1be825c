//! Removes the subscriptions of sessions that have ended, over several turns.

use std::sync::Arc;

use millrace_mqtt::topic::Filter;
use millrace_router::Target;
use millrace_session::{NextFilter, RemainingMessage, Remains};

use super::{FILTERS_WORK_MAX, SEEN, SINGLE_COPY, SLICE, filter_work};
use crate::broker::Broker;
use crate::core::Core;
use crate::core::replay::SessionReplay;

pub(in crate::core) struct FilterRemoval {
    pub(in crate::core) broker: Arc<Broker>,
    pub(in crate::core) target: Target,
    pub(in crate::core) remains: Remains,
    pub(in crate::core) replays: SessionReplay,
}

impl Core {
    fn remove_filters(&self, broker: &Broker, target: Target, filters: &[Box<str>]) {
        broker.router.edit(|edit| {
            for filter in filters.iter().filter_map(|filter| Filter::parse(filter)) {
                edit.unsubscribe(filter, target);
            }
        });
        self.announce_members(broker, filters.iter().map(|filter| &**filter));
    }

    /// Removes as much as a turn has budget for, and leaves the rest to later turns. The subscriptions do no harm until
    /// then: messages to a session that is gone are dropped, and shared subscriptions pick other members.
    pub(in crate::core) fn remove_part(&mut self, mut removal: FilterRemoval) {
        let FilterRemoval { broker, target, remains, replays } = &mut removal;
        let (mut filters, mut work) = (Vec::new(), 0);
        while work < FILTERS_WORK_MAX
            && let Some(next) = remains.next_filter()
        {
            let NextFilter::Taken(filter) = next else {
                work += SEEN;
                continue;
            };
            work += filter_work(filter.as_bytes());
            filters.push(filter);
        }
        let has_replays = replays.free_some(&mut work);
        self.spend(work);
        if !filters.is_empty() {
            self.remove_filters(broker, *target, &filters);
        }
        let end = self.work.spent() + SLICE;
        // After the filters, because a shared subscription must not pick this member again.
        while !remains.has_filters()
            && self.work.spent() < end
            && let Some(left) = remains.next_message()
        {
            self.spend(SINGLE_COPY);
            if let RemainingMessage::Shared(entry) = left {
                self.give_back_or_pass_on(broker, &entry);
            }
        }
        self.note_settled(broker.id, remains.take_settled());
        if remains.has_filters() || remains.has_messages() || has_replays {
            self.work.removals.push(removal.broker.id, removal);
        }
    }

    pub(in crate::core) fn remove_ended(&mut self) {
        self.go_offline_more();
        if let Some((_, removal)) = self.work.removals.pop() {
            self.remove_part(removal);
        }
    }
}
