//! Delivery to members of shared subscriptions. If a group has a persistent member, its messages are in a stream: the writer picks a
//! member for each, and the loops report which messages were acknowledged or given back. Other groups get messages from publishers.

use std::cell::Cell;
use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::topic::Filter;
use millrace_router::{Receiver, ShareGroup, Target};
use millrace_session::{Delivered, Delivery, Message, StoredPosition};

use super::connection::NONE;
use super::deliver::{Publisher, local_session};
use super::fanout::Copies;
use super::{Core, work};
use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::elsewhere::{is_here, pick};
use crate::jobs::{SharedMessages, Write};
use crate::routes::Routes;
use crate::streams::{GroupNumber, StoredGroup};

impl Core {
    /// Hands a message to a member of each group, and leaves groups to later turns when that takes more than a slice.
    pub(super) fn share(&mut self, routes: &Arc<Routes>, message: &Arc<Message>, from: Option<ConnectionId>) {
        let publisher = Publisher::of(routes, from, message.publisher());
        let waits = self.unfinished.fanouts.delays(routes.broker.id, publisher);
        let next = if waits { 0 } else { self.share_from(routes, message, from, 0) };
        if next < routes.matched.groups.len() {
            self.put_off(routes, Copies::Shared(message.clone()), publisher, next);
        }
    }

    /// Returns the index among [`Routes::live_groups`] of the first group without the message.
    pub(super) fn share_from(
        &mut self,
        routes: &Arc<Routes>,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
        start: usize,
    ) -> usize {
        let end = self.work.spent() + work::SLICE;
        for (index, (number, group)) in routes.live_groups(message).enumerate().skip(start) {
            if self.work.spent() >= end {
                return index;
            }
            match self.pick_member(group) {
                Some(receiver) => self.deliver_shared(routes, receiver, message, from, number),
                None => self.spend(work::SINGLE_COPY),
            }
        }
        routes.matched.groups.len()
    }

    /// Collects messages that their groups need no more.
    pub(super) fn note_settled(&mut self, broker: u64, settled: Vec<(GroupNumber, StoredPosition)>) {
        for (number, position) in settled {
            if let Some(stream) = StoredGroup::stream_of(number) {
                self.store_jobs.shared.settled.push(((broker, stream), Position(position)));
            }
        }
    }

    /// Delivers a message of a shared subscription that another core mailed. If the member left meanwhile, another
    /// member that is online gets the message. If there is none, a stored group gives it back to the store, and any other
    /// group keeps it for an offline member.
    pub(super) fn deliver_mailed_share(
        &mut self,
        broker: &Arc<Broker>,
        receiver: &Receiver,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
        number: GroupNumber,
    ) {
        self.spend(work::SINGLE_COPY);
        let publisher = Publisher { id: from, client: message.publisher(), may_be_paused: true };
        let here = local_session(&mut self.sessions, receiver).map(|local| local.connection != NONE);
        if here == Some(true) {
            let other = self.member_with_room(broker, receiver, message, number);
            let receiver = other.as_ref().unwrap_or(receiver);
            let began = self.trace_began(message);
            self.spend_bytes(message.size());
            self.deliver_one(broker, receiver, message, publisher, number);
            return self.trace_delivered(began, broker, message, 1);
        }
        if self.give_back(broker, message, number) {
            return;
        }
        let passes_on = here.is_none() || self.is_anybody_online(broker, message, number);
        if passes_on {
            self.pass_on(broker, message, number);
        } else {
            self.deliver_one(broker, receiver, message, publisher, number);
        }
    }

    /// Passes on a message whose member has left: to a member that is online on this pod, or back to the store. Returns
    /// false, and does nothing, for a group without a stream.
    pub(super) fn give_back(
        &mut self,
        broker: &Arc<Broker>,
        message: &Arc<Message>,
        number: GroupNumber,
    ) -> bool {
        let Some(stream) = StoredGroup::stream_of(number) else { return false };
        let routes = self.routes_to(broker, message.topic());
        // Without persistent members its stream has ended; members that are online continue with it.
        let (group, looks) = (broker.streams.group_or_ended(stream), Cell::new(0));
        let found = group.and_then(|group| routes.online_group(&group)).and_then(|group| {
            let picked = group.pick_online(|target| is_here(target) && self.may_be_there(target, &looks))?;
            let other = self.other_with_room(group, picked.target, &looks);
            Some(other.filter(|_| picked.target.core == self.index).unwrap_or(picked))
        });
        self.spend(looks.get());
        if let Some(receiver) = found {
            self.deliver_shared(&routes, receiver, message, None, number);
        } else if let Some(position) = message.position() {
            self.store_jobs.shared.returned.push(((broker.id, stream), Position(position)));
        }
        true
    }

    /// Returns the messages of a session whose packet ids are on their way to the store. Each belongs to the session from
    /// the commit of its packet id on, and to the group without that commit. Only the writer knows which, so the messages
    /// are given back to it, and it ignores those that the session has. The session keeps the rows with these packet ids; if
    /// it ends, the writer returns their messages to the group.
    pub(super) fn give_back_begun(&mut self, session: u32) -> Vec<(u16, u64, Arc<Message>)> {
        let local = &mut self.sessions[session as usize];
        if local.persistent.is_none() {
            return Vec::new();
        }
        let broker = local.broker.id;
        let taken = local.session.take_begun(|entry| StoredGroup::stream_of(entry.shared).is_some());
        let mut begun = Vec::with_capacity(taken.len());
        for (id, entry) in taken {
            let Some(stream) = StoredGroup::stream_of(entry.shared) else { continue };
            if let Some(position) = entry.message.position() {
                self.store_jobs.shared.returned.push(((broker, stream), Position(position)));
            }
            begun.push((id.get(), stream, entry.message));
        }
        begun
    }

    /// The next member in turn. If it is full, another one of this loop that has room.
    pub(super) fn pick_member(&mut self, group: &ShareGroup) -> Option<Receiver> {
        let is_alone = self.process.region.as_ref().is_some_and(|region| region.is_alone());
        let (picked, looks) = (pick(group, is_alone)?, Cell::new(0));
        let member = self.with_room(group, picked, &looks);
        self.spend(looks.get());
        member
    }

    /// The picked member, or a neighbour with room if it is full. Only the loop of a member sees whether it is full, so a member of
    /// another loop or pod stays picked; `None`: all members have ended, and their filters are being removed.
    fn with_room(&self, group: &ShareGroup, picked: Receiver, looks: &Cell<u64>) -> Option<Receiver> {
        if picked.target.core != self.index {
            return Some(picked);
        }
        if let Some(other) = self.other_with_room(group, picked.target, looks) {
            return Some(other);
        }
        // The caller pays for the delivery to this member, so only looks at further members are counted.
        if !self.is_away(picked.target) {
            return Some(picked);
        }
        let others = group.pick_online(|target| {
            looks.set(looks.get() + work::SEEN);
            !self.is_away(target)
        });
        let picked = Some(picked).filter(|picked| !self.has_ended(picked.target));
        others.or(picked).or_else(|| group.pick_if(|target| self.may_be_there(target, looks)))
    }

    /// Whether a session of this loop has ended or has no connection.
    fn is_away(&self, target: Target) -> bool {
        let local = self.sessions.get(target.slot as usize);
        target.core == self.index
            && local.is_none_or(|local| local.generation != target.generation || local.connection == NONE)
    }

    fn may_be_there(&self, target: Target, looks: &Cell<u64>) -> bool {
        looks.set(looks.get() + work::SEEN);
        !self.has_ended(target)
    }

    /// Whether a session of this loop has ended. Other loops know their own.
    fn has_ended(&self, target: Target) -> bool {
        let local = self.sessions.get(target.slot as usize);
        target.core == self.index && local.is_none_or(|local| local.generation != target.generation)
    }

    fn other_with_room(&self, group: &ShareGroup, member: Target, looks: &Cell<u64>) -> Option<Receiver> {
        let has_room = |target| {
            looks.set(looks.get() + work::SEEN);
            self.has_room(target)
        };
        let is_full = !self.has_room(member);
        is_full.then(|| group.neighbour(member, has_room))?
    }

    /// Another member of this loop that has room, if `receiver` is full. The thread that picked `receiver` could not see that.
    pub(super) fn member_with_room(
        &mut self,
        broker: &Arc<Broker>,
        receiver: &Receiver,
        message: &Message,
        number: GroupNumber,
    ) -> Option<Receiver> {
        if self.has_room(receiver.target) {
            return None;
        }
        self.spend(work::SINGLE_COPY);
        let routes = self.routes_to(broker, message.topic());
        let stored = StoredGroup::stream_of(number).and_then(|stream| broker.streams.group_or_ended(stream));
        let group = match &stored {
            Some(stored) => routes.online_group(stored),
            None => routes.group(number),
        };
        group?.neighbour(receiver.target, |target| self.has_room(target))
    }

    /// Whether the window and the outbound buffer of a connected member on this loop have room.
    fn has_room(&self, target: Target) -> bool {
        let local = self.sessions.get(target.slot as usize);
        let local = local.filter(|local| local.generation == target.generation && local.connection != NONE);
        local.is_some_and(|local| {
            let connection = &self.connections[local.connection as usize];
            let unsent = connection.outbound.as_ref().map_or(0, |outbound| outbound.len());
            unsent < self.output.soft_bytes
                && local.session.has_room(&connection.protocol, &self.process.settings)
        })
    }

    pub(super) fn announce_members<'f>(&self, broker: &Broker, filters: impl IntoIterator<Item = &'f str>) {
        let Some(region) = &self.process.region else { return };
        for filter in filters {
            if let Some(Filter { share: Some(name), filter }) = Filter::parse(filter) {
                region.members_changed(broker, name, filter);
            }
        }
    }

    /// Asks the writer to send the waiting messages of a shared subscription, because it has a new member.
    pub(super) fn join(&mut self, broker: &Broker, filter: &str) {
        let Some(Filter { share: Some(name), filter }) = Filter::parse(filter) else { return };
        self.spend(work::FILTER);
        if let Some(group) = broker.streams.group_of(name, filter) {
            self.store_jobs.shared.joined.push((broker.id, group.stream));
        }
    }

    pub(super) fn queue_shared_outcomes(&mut self) {
        if !self.store_jobs.shared.is_empty() {
            let shared = std::mem::take(&mut self.store_jobs.shared);
            self.queue_job(Write::Shared(Box::new(shared)));
        }
    }
}

/// Whether the member has no room for a message of its stored group. The writer then gives the message to another member, or
/// leaves it in the stream.
pub(super) fn is_refused(
    refusals: &mut SharedMessages,
    broker: &Broker,
    delivery: &Delivery<'_>,
    outcome: Delivered,
) -> bool {
    let Delivered::Dropped(reason) = outcome else { return false };
    let stream = StoredGroup::stream_of(delivery.shared).filter(|_| reason.is_for_lack_of_room());
    // Without persistent members the stream has ended, and the message is lost.
    let stream = stream.filter(|stream| broker.streams.group(*stream).is_some());
    let refused = stream.zip(delivery.message.position());
    let refused = refused.map(|(stream, position)| ((broker.id, stream), Position(position)));
    refusals.refused.extend(refused);
    refused.is_some()
}

#[cfg(test)]
mod tests;
