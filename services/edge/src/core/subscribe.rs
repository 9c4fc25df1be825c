//! SUBSCRIBE and UNSUBSCRIBE on an event loop: rights, router, store, answer.
//!
//! This file checks the filters of a packet and edits the router together with other packets of the turn. A packet with many
//! filters takes several turns. Then [`answer`] and [`unsubscribe`] submit the change to the store, and [`stored`] takes the
//! store's answer: SUBACK and UNSUBACK leave when the change is durable. An answer for many
//! filters takes several turns, too ([`suback_in_slices`]).

mod answer;
mod in_progress;
mod lowered;
mod read_filters;
mod stored;
mod suback_in_slices;
mod subscribe_limits;
#[cfg(test)]
mod tests;
mod unsubscribe;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_layers::limits::NAME_BYTES_MAX;
use millrace_layers::subscriptions::StoredOptions;
use millrace_mqtt::topic::Filter;
use millrace_mqtt::{PacketId, QoS, ReasonCode, Subscribe, SubscribeOptions};
use millrace_router::{Target, TreeSnapshot};
use millrace_session::{ClientSubscription, Message};
use smallvec::SmallVec;

use self::lowered::Identifiers;
use self::read_filters::{FiltersToAdd, FiltersToEnd};
pub(super) use self::suback_in_slices::{JOINED, StoredAnswer};
use self::subscribe_limits::SubscribeLimits;
use super::Core;
use super::changes::ChangeQueue;
use super::connection::NONE;
use super::entry::rules_work;
use super::replay;
use super::work::PacketTask;
use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::incidents::{NewIncident, StoredIncidentKind};
use crate::incomplete_packets::OverLimit;
use crate::jobs::PendingSubscribe;
use crate::jobs::replay::RetainedPages;
use crate::quota::Limit;

const LONG_STORED_FILTER: &str = "a filter of a persistent session may have 1024 bytes";
/// Said to a client whose subscription the rules refuse: the rule that it meets may be of a part of its topics.
const DENIED: &str =
    "not authorized: a rule denies a topic that the filter matches, or no rule allows all of them";

/// The reasons of one packet; most have one filter.
type Reasons = SmallVec<[ReasonCode; 4]>;

/// A SUBSCRIBE that is being carried out: filters that are the same are one, and many filters take several turns.
pub(super) struct SubscribeInProgress {
    identifiers: Identifiers,
    read: FiltersToAdd,
    done: usize,
    /// The filters up to here are carried out next.
    until: usize,
    /// Results of the rules for the next filters.
    checked: SmallVec<[GrantedQos; 4]>,
    reached: Option<Limit>,
    /// Filters that the last turn granted, if the store has to answer: their indexes in `filters`, and the subscriptions that they
    /// replace.
    granted: Vec<(usize, Option<ClientSubscription>)>,
    /// Filters for the store, with their indexes in `filters`.
    stored: Vec<(Box<str>, StoredOptions, usize)>,
    /// Shared subscriptions of a session in memory: the store has to say whether the group has persistent members.
    shared: Vec<Box<str>>,
    /// Live messages wait behind the retained ones.
    holds: bool,
    pending: PendingSubscribe,
    /// Shared by all look-ups of retained messages until the store has read some.
    no_pages: Arc<RetainedPages>,
}

/// The QoS that a subscription is granted, or why it is refused.
type GrantedQos = Result<QoS, (ReasonCode, &'static str)>;

pub(super) struct UnsubscribeInProgress {
    packet_id: Option<PacketId>,
    read: FiltersToEnd,
    /// The filters that are carried out next.
    next: Range<usize>,
    /// One for each filter that was carried out.
    reasons: Reasons,
}

impl Core {
    /// Makes the subscriptions that are allowed, answers, and sends what is retained.
    pub(super) fn subscribe(&mut self, slot: u32, subscribe: &Subscribe<'_>) {
        let version = self.connections[slot as usize].protocol.version();
        let subscribe = SubscribeInProgress::new(subscribe, version);
        self.change_filters(slot, PacketTask::Subscribe(Box::new(subscribe)));
    }

    /// Carries out a SUBSCRIBE or UNSUBSCRIBE, together with the others of its turn and broker. One with many filters takes several
    /// turns.
    fn change_filters(&mut self, slot: u32, mut task: PacketTask) {
        let work = task.plan();
        let connection = &mut self.connections[slot as usize];
        let session = connection.session;
        if !(task.is_read() && task.ends()) {
            let broker = &self.sessions[session as usize].broker;
            if let Err(OverLimit) = task.charge(&self.process.memory.input, broker) {
                return self.refuse_to_hold(slot);
            }
            self.change_filters_now(slot);
            if let PacketTask::Subscribe(subscribe) = &mut task {
                // Retained messages come before live ones, but not before the SUBACK.
                subscribe.holds = true;
                self.hold_for_replay(session);
            }
            return self.queue_task(slot, task);
        }
        connection.changes_filters = true;
        // Retained messages are sent after the edit, which may be behind the end of the turn's budget. So they count here.
        let broker = &self.sessions[session as usize].broker;
        let work = match task {
            PacketTask::Subscribe(_) => work + replay::work_at_once(broker.retained.len()),
            PacketTask::Unsubscribe(_) => work,
        };
        self.spend(work);
        let (id, broker) = (self.id_of(slot), &self.sessions[session as usize].broker);
        if let Some((broker, changes)) = self.unfinished.filter_changes.add(broker, id, task, work) {
            self.edit_filters(&broker, changes);
        }
    }

    /// Carries out what waits for the end of the turn, if a packet of this connection does: the next one must find it done.
    pub(super) fn change_filters_now(&mut self, slot: u32) {
        if self.connections.get(slot as usize).is_some_and(|connection| connection.changes_filters) {
            self.change_filters_of_broker(slot);
        }
    }

    /// Carries out what waits for the end of the turn, of all clients of this connection's broker.
    pub(super) fn change_filters_of_broker(&mut self, slot: u32) {
        let broker = self.broker_of(slot);
        if let Some((broker, changes)) = self.unfinished.filter_changes.take(broker) {
            self.edit_filters(&broker, changes);
        }
    }

    pub(super) fn change_filters_of_turn(&mut self) {
        while let Some((broker, changes)) = self.unfinished.filter_changes.pop() {
            self.edit_filters(&broker, changes);
        }
    }

    /// Carries out packets of one broker's clients as one edit of its filters. Returns the packet if it has more filters: such a
    /// packet comes alone.
    //= [MQTT-3.8.4-3] v5
    //= [MQTT-3.8.4-3] v3.1.1
    pub(super) fn edit_filters(
        &mut self,
        broker: &Arc<Broker>,
        mut changes: ChangeQueue,
    ) -> Option<PacketTask> {
        changes.retain(|(id, _)| self.has_session(*id));
        for (id, task) in &mut changes {
            self.connections[id.slot as usize].changes_filters = false;
            self.revoke_anew(id.slot);
            if let PacketTask::Subscribe(subscribe) = task {
                self.check_next(id.slot, subscribe);
            }
        }
        self.counters().filter_edits.add(1);
        let settings = &self.process.limits;
        let per_session = broker.quota.subscriptions_per_session_max(settings.subscriptions_per_session_max);
        let mut limits = SubscribeLimits {
            counters: &broker.counters[usize::from(self.index)],
            is_shared: self.process.store.is_some() && self.process.is_shared(),
            of_broker: broker.quota.subscriptions_max().saturating_sub(broker.router.subscriptions() as u64),
            per_session: per_session as usize,
            lacks_retained: broker.retained_memory.is_incomplete.load(Ordering::Relaxed)
                && !self.process.is_shared(),
            bytes_of_broker: settings.filter_memory_per_broker_max,
            all_bytes: self.process.brokers.filter_bytes(),
            all_bytes_max: settings.filter_memory_max,
            bytes_before: 0,
        };
        let (connections, sessions, core) = (&self.connections, &mut self.sessions, self.index);
        let ((), retained) = broker.edit_subscriptions(|edit| {
            limits.bytes_before = edit.bytes();
            for (id, task) in &mut changes {
                let session = connections[id.slot as usize].session;
                let local = &mut sessions[session as usize];
                let target = Target { core, slot: session, generation: local.generation };
                match task {
                    PacketTask::Subscribe(subscribe) => subscribe.carry_out(edit, local, target, &mut limits),
                    PacketTask::Unsubscribe(packet) => packet.carry_out(edit, local, target, &mut limits),
                }
            }
        });
        // Among several pods the store has what is retained.
        let retained = (!limits.is_shared).then_some(retained);
        let mut unfinished = None;
        for (id, task) in changes {
            // An answer to another one may have ended it.
            if self.has_session(id) {
                unfinished = match task {
                    PacketTask::Subscribe(subscribe) => {
                        self.edited_for_subscribe(id.slot, broker, subscribe, retained.as_ref())
                    }
                    PacketTask::Unsubscribe(unsubscribe) => {
                        self.edited_for_unsubscribe(id.slot, broker, unsubscribe)
                    }
                };
            }
        }
        unfinished
    }

    fn has_session(&mut self, id: ConnectionId) -> bool {
        self.connection_of(id).is_some_and(|connection| connection.session != NONE)
    }

    fn check_next(&mut self, slot: u32, subscribe: &mut SubscribeInProgress) {
        let next = &mut subscribe.read.filters[subscribe.done..subscribe.until];
        let connection = &self.connections[slot as usize];
        next.iter_mut().for_each(|(text, options)| *options = connection.protocol.options_of(text, *options));
        self.work.spend(next.iter().map(|(text, _)| rules_work(&connection.who, text)).sum());
        let may =
            |(text, options): &(Box<str>, SubscribeOptions)| self.may_subscribe(slot, text, options.qos);
        subscribe.checked = next.iter().map(may).collect();
    }

    /// Some filters of a SUBSCRIBE were carried out; gives it back when there are more.
    fn edited_for_subscribe(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        mut subscribe: Box<SubscribeInProgress>,
        retained: Option<&Arc<TreeSnapshot<Arc<Message>>>>,
    ) -> Option<PacketTask> {
        let before = retained.map(|tree| tree.insertions());
        for replay in subscribe.pending.replays.iter_mut().filter(|replay| replay.before.is_none()) {
            replay.before = before;
        }
        if let Some(limit) = subscribe.reached.take() {
            self.reached(slot, limit);
        }
        let filters =
            || subscribe.read.filters[subscribe.done..subscribe.until].iter().map(|(filter, _)| &**filter);
        self.announce_members(broker, filters());
        let announced = self.announce_filters(broker, filters());
        subscribe.pending.announced = subscribe.pending.announced.max(announced);
        let session = self.connections[slot as usize].session;
        // Waiting messages of its groups may come now; with a store, once the store has answered.
        if self.sessions[session as usize].persistent.is_none() && !self.process.is_shared() {
            filters().for_each(|filter| self.join(broker, filter));
        }
        subscribe.done = subscribe.until;
        if subscribe.done < subscribe.read.filters.len() {
            self.expect_answer(slot, &mut subscribe);
            return Some(PacketTask::Subscribe(subscribe));
        }
        self.finish_subscribe(slot, *subscribe);
        None
    }

    /// The QoS that a subscription to a filter is granted, or why it is none.
    fn may_subscribe(&self, slot: u32, text: &str, qos: QoS) -> Result<QoS, (ReasonCode, &'static str)> {
        let connection = &self.connections[slot as usize];
        let session = &self.sessions[connection.session as usize];
        let counters = self.broker_counters(&session.broker);
        let is_stored = session.persistent.is_some();
        let parsed = Filter::parse(text).ok_or("a shared subscription without a share name or a filter");
        let fits = |filter| match self.over_topic_limits(text) {
            Some((what, _)) => Err(what),
            None if is_stored && text.len() > NAME_BYTES_MAX => Err(LONG_STORED_FILTER),
            None => Ok(filter),
        };
        let filter = parsed.and_then(fits).map_err(|what| {
            counters.subscribe_invalid.add(1);
            (ReasonCode::TOPIC_FILTER_INVALID, what)
        })?;
        let may_share = filter.share.is_none() || connection.who.may_share();
        let granted = self.may_receive(slot, filter.filter, qos).filter(|_| may_share);
        if granted.is_none() {
            counters.subscribe_denied.add(1);
            self.note_of(slot, NewIncident::new(StoredIncidentKind::SubscribeRefused, text, DENIED));
        }
        granted.ok_or((ReasonCode::NOT_AUTHORIZED, DENIED))
    }

    pub(super) fn target_of(&self, session: u32) -> Target {
        let generation = self.sessions[session as usize].generation;
        Target { core: self.index, slot: session, generation }
    }
}
