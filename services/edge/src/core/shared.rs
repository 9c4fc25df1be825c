//! Shared subscriptions with a stream: the store hands their messages to members, and learns what became of each.

use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::topic::Filter;
use millrace_session::{Message, Place};

use super::Core;
use crate::broker::Broker;
use crate::elsewhere::is_here;
use crate::jobs::{SharedMessages, Write};
use crate::streams::StoredGroup;

impl Core {
    pub(super) fn note_settled(&mut self, broker: u64, settled: Vec<(u64, Place)>) {
        for (number, place) in settled {
            if let Some(stream) = StoredGroup::stream_of(number) {
                self.store_jobs.shared.settled.push(((broker, stream), Position(place)));
            }
        }
    }

    /// Passes on a message whose member has left: to another member, or back to the store when no member is online.
    /// Returns false when the store does not keep the message for its subscription.
    pub(super) fn give_back(&mut self, broker: &Arc<Broker>, message: &Arc<Message>, number: u64) -> bool {
        let Some(stream) = StoredGroup::stream_of(number) else { return false };
        let routes = self.routes.get(broker, message.topic());
        // Without persistent members its stream has ended; members that are online continue with it.
        let group = broker.streams.group_or_ended(stream);
        let found =
            group.and_then(|group| routes.online_group(&group)).and_then(|group| group.pick_online(is_here));
        if let Some(receiver) = found {
            self.deliver_shared(&routes, receiver, message, None, number);
        } else if let Some(place) = message.place() {
            self.store_jobs.shared.returned.push(((broker.id, stream), Position(place)));
        }
        true
    }

    pub(super) fn tell_members<'f>(&self, broker: &Broker, filters: impl IntoIterator<Item = &'f str>) {
        let Some(region) = &self.process.region else { return };
        for filter in filters {
            if let Some(Filter { share: Some(name), filter }) = Filter::parse(filter) {
                region.members_changed(broker, name, filter);
            }
        }
    }

    /// A new member may take waiting messages of its shared subscription.
    pub(super) fn join(&mut self, broker: &Broker, filter: &str) {
        let Some(Filter { share: Some(name), filter }) = Filter::parse(filter) else { return };
        if let Some(group) = broker.streams.group_of(name, filter) {
            self.store_jobs.shared.joined.push((broker.id, group.stream));
        }
    }

    pub(super) fn leave_shared(&mut self) {
        let SharedMessages { settled, returned, joined } = &self.store_jobs.shared;
        if !(settled.is_empty() && returned.is_empty() && joined.is_empty()) {
            let shared = std::mem::take(&mut self.store_jobs.shared);
            self.leave_job(Write::Shared(Box::new(shared)));
        }
    }
}
