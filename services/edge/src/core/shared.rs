//! Shared subscriptions with a stream: the store hands their messages to members, and learns what became of each.

use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::topic::Filter;
use millrace_router::{Receiver, ShareGroup, Target};
use millrace_session::{Message, Place};

use super::Core;
use super::connection::NONE;
use crate::broker::Broker;
use crate::elsewhere::is_here;
use crate::jobs::{SharedMessages, Write};
use crate::streams::{StoredGroup, group_id};

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
        let found = group.and_then(|group| routes.online_group(&group)).and_then(|group| {
            let ready = group.pick_ready(|target| is_here(target) && self.takes_now(target));
            ready.or_else(|| group.pick_online(is_here))
        });
        if let Some(receiver) = found {
            self.deliver_shared(&routes, receiver, message, None, number);
        } else if let Some(place) = message.place() {
            self.store_jobs.shared.returned.push(((broker.id, stream), Position(place)));
        }
        true
    }

    /// The next member in turn that takes a message at once. If none of a few does, the next one, where it waits.
    pub(super) fn pick_member(&self, group: &ShareGroup) -> Option<Receiver> {
        group.pick_ready(|target| self.takes_now(target)).or_else(|| group.pick())
    }

    /// The member that gets a message which another thread gave to `receiver`: another one of this loop if only that one
    /// takes it at once. The other thread did not know.
    pub(super) fn member_that_takes(
        &mut self,
        broker: &Arc<Broker>,
        receiver: &Receiver,
        message: &Message,
        number: u64,
    ) -> Option<Receiver> {
        if self.takes_now(receiver.target) {
            return None;
        }
        let routes = self.routes.get(broker, message.topic());
        let stored = StoredGroup::stream_of(number).and_then(|stream| broker.streams.group_or_ended(stream));
        let group = match &stored {
            Some(stored) => routes.online_group(stored),
            None => routes.matched.groups.iter().find(|group| group_id(group) == number),
        };
        group?.pick_ready(|target| target.core == self.index && self.takes_now(target))
    }

    /// Whether a member would send a message at once: its window and its socket have room. Members of other loops and
    /// pods count as ready, and their loop looks again.
    fn takes_now(&self, target: Target) -> bool {
        if target.core != self.index {
            return true;
        }
        let local = self.sessions.get(target.slot as usize);
        let local = local.filter(|local| local.generation == target.generation && local.connection != NONE);
        local.is_some_and(|local| {
            let connection = &self.connections[local.connection as usize];
            let unsent = connection.outbound.as_ref().map_or(0, |outbound| outbound.len());
            unsent < self.output.soft_bytes
                && local.session.takes_now(&connection.protocol, &self.process.settings)
        })
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
