//! Carries out SUBSCRIBE and UNSUBSCRIBE: checks the filters, edits the router together with other packets of the turn, submits
//! the change to the store, and answers once it is durable.

mod lowered;
mod read_filters;
mod room;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_layers::Position;
use millrace_layers::limits::{NAME_BYTES_MAX, SUBSCRIPTIONS_MAX};
use millrace_layers::streams::Source;
use millrace_layers::subscriptions::{NO_STREAM, REPLAY_DUE, StoredOptions, Subscribed};
use millrace_mqtt::topic::Filter;
use millrace_mqtt::{PacketId, QoS, ReasonCode, Subscribe, SubscribeOptions, Unsubscribe, Version};
use millrace_router::{Edit, Target, TreeSnapshot};
use millrace_session::{ClientSubscription, Message};
use smallvec::SmallVec;

use self::lowered::Identifiers;
use self::read_filters::{FiltersToAdd, FiltersToEnd};
use self::room::{Room, wants_retained};
use super::changes::Changes;
use super::connection::NONE;
use super::deliver::Publisher;
use super::entry::rules_work;
use super::persistent::{FilterSource, PersistentSession};
use super::replay::{self};
use super::resume::{routed, subscription_of};
use super::work::{self, Task};
use super::{Core, Ended, LocalSession, parts};
use crate::broker::Broker;
use crate::incidents::{Kind, Note};
use crate::jobs;
use crate::jobs::replay::{Replay, left_out};
use crate::jobs::{Job, PendingSubscribe, SessionKey, Write};
use crate::quota::Limit;

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
    checked: SmallVec<[Checked; 4]>,
    reached: Option<Limit>,
    /// Filters that the last turn granted, if the store has to answer: their indexes in `filters`, and the subscriptions that they
    /// replace.
    granted: Vec<(usize, Option<ClientSubscription>)>,
    /// Filters for the store, with their indexes in `filters`.
    stored: Vec<(Box<str>, StoredOptions, usize)>,
    /// Share names that were added on other pods' behalf, too.
    shared: Vec<Box<str>>,
    /// Live messages wait behind the retained ones.
    holds: bool,
    pending: PendingSubscribe,
}

type GoesBack = (Box<str>, Option<ClientSubscription>);

/// The QoS that a subscription is granted, or why it is refused.
type Checked = Result<QoS, (ReasonCode, &'static str)>;

pub(super) struct UnsubscribeInProgress {
    packet_id: Option<PacketId>,
    read: FiltersToEnd,
    /// The filters that are carried out next.
    next: Range<usize>,
    /// One for each filter that was carried out.
    reasons: Reasons,
}

impl SubscribeInProgress {
    fn new(subscribe: &Subscribe<'_>, version: Version) -> Self {
        let read = FiltersToAdd::new(subscribe.filters.clone(), version);
        Self::of(Identifiers::of_packet(subscribe), read, Some(subscribe.packet_id))
    }

    /// Whether live messages wait until it is carried out.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// Adds the next filters that are allowed to the session and to the router.
    fn carry_out(
        &mut self,
        edit: &mut Edit<'_>,
        local: &mut LocalSession,
        target: Target,
        room: &mut Room<'_>,
    ) {
        let is_kept = local.persistent.is_some();
        let session_max = if is_kept { SUBSCRIPTIONS_MAX.min(room.per_session) } else { room.per_session };
        for (place, checked) in (self.done..).zip(std::mem::take(&mut self.checked)) {
            let (text, options) = &self.read.filters[place];
            let options = match checked {
                Ok(qos) => SubscribeOptions { qos, ..*options },
                Err((reason, what)) => {
                    self.pending.reasons.push(reason);
                    self.pending.what = what;
                    continue;
                }
            };
            let former = local.session.subscription(text).copied();
            let is_new = former.is_none();
            let limit = if is_kept && text.len() > NAME_BYTES_MAX {
                Some(Limit::ClientSubscriptions)
            } else {
                let is_full = local.session.subscriptions_len() >= session_max;
                room.reached(edit, text, options, is_new, is_full)
            };
            if limit.is_some() {
                self.reached = limit;
                room.counters.subscribe_quota.add(1);
                self.pending.reasons.push(ReasonCode::QUOTA_EXCEEDED);
                continue;
            }
            let identifier = self.identifiers.of(place);
            if is_kept {
                let bits = options.to_bits(Version::V5);
                self.stored.push((text.clone(), StoredOptions { bits, identifier }, place));
            }
            if is_kept || room.is_shared {
                self.granted.push((place, former));
            }
            if room.is_shared && !is_kept && text.starts_with("$share/") {
                self.shared.push(text.clone());
            }
            room.of_broker -= u64::from(is_new);
            add(
                edit,
                local,
                target,
                text,
                ClientSubscription { options, identifier },
                &mut self.pending.replays,
            );
            self.pending.reasons.push(ReasonCode(options.qos as u8));
        }
    }
}

impl UnsubscribeInProgress {
    /// Removes the next filters from the session and from the router.
    //= [MQTT-3.10.4-1] v5 v3.1.1
    fn carry_out(
        &mut self,
        edit: &mut Edit<'_>,
        local: &mut LocalSession,
        target: Target,
        room: &mut Room<'_>,
    ) {
        for text in &self.read.filters[self.next.clone()] {
            let existed = local.session.unsubscribe(text);
            room.of_broker += u64::from(existed);
            if existed && let Some(filter) = Filter::parse(text) {
                edit.unsubscribe(filter, target);
            }
            let reason = if existed { ReasonCode::SUCCESS } else { ReasonCode::NO_SUBSCRIPTION_EXISTED };
            self.reasons.push(reason);
        }
    }
}

impl Task {
    /// Reads more filters of the packet. Returns the work of that.
    pub(super) fn read_more(&mut self) -> u64 {
        match self {
            Self::Subscribe(subscribe) => subscribe.read.read_more(),
            Self::Unsubscribe(unsubscribe) => unsubscribe.read.read_more(),
        }
    }

    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::Subscribe(subscribe) => subscribe.read.is_read(),
            Self::Unsubscribe(unsubscribe) => unsubscribe.read.is_read(),
        }
    }

    /// Decides how many filters are carried out next, and returns the work of that.
    pub(super) fn plan(&mut self) -> u64 {
        match self {
            Self::Subscribe(subscribe) => {
                let left = subscribe.read.filters[subscribe.done..].iter().map(|(filter, _)| &**filter);
                let (count, work) = work::filters_at_once(left);
                subscribe.until = subscribe.done + count;
                work
            }
            Self::Unsubscribe(unsubscribe) => {
                let done = unsubscribe.reasons.len();
                let left = unsubscribe.read.filters[done..].iter().map(|filter| &**filter);
                let (count, work) = work::filters_at_once(left);
                unsubscribe.next = done..done + count;
                work
            }
        }
    }

    fn ends(&self) -> bool {
        match self {
            Self::Subscribe(subscribe) => subscribe.until == subscribe.read.filters.len(),
            Self::Unsubscribe(unsubscribe) => unsubscribe.next.end == unsubscribe.read.filters.len(),
        }
    }
}

impl LocalSession {
    /// Makes a persistent session read the streams of durable subscriptions. Returns whether any stream is new to it.
    fn add_sources(
        &mut self,
        target: Target,
        durable: Vec<(Box<str>, Subscribed)>,
        handed_over: Position,
    ) -> bool {
        let Some(persistent) = &mut self.persistent else { return false };
        let session = &self.session;
        let sources = self.broker.router.edit(|edit| {
            let source = |(filter, Subscribed { stream, since, .. }): (Box<str>, Subscribed)| {
                let is_read = stream != NO_STREAM && !filter.starts_with("$share/");
                // The subscription may have ended meanwhile.
                let subscription = session.subscription(&filter).filter(|_| is_read)?;
                edit.subscribe(Filter::parse(&filter)?, routed(target, subscription, true));
                Some(FilterSource { source: Source { stream, since }, filter })
            };
            durable.into_iter().filter_map(source).collect()
        });
        persistent.add_sources(sources, handed_over)
    }
}

impl Core {
    /// Makes the subscriptions that are allowed, answers, and sends what is retained.
    pub(super) fn subscribe(&mut self, slot: u32, subscribe: &Subscribe<'_>) {
        let version = self.connections[slot as usize].protocol.version();
        let subscribe = SubscribeInProgress::new(subscribe, version);
        self.change_filters(slot, Task::Subscribe(Box::new(subscribe)));
    }

    /// Carries out a SUBSCRIBE or UNSUBSCRIBE, together with the others of its turn and broker. One with many filters takes several
    /// turns.
    fn change_filters(&mut self, slot: u32, mut task: Task) {
        let work = task.plan();
        let connection = &mut self.connections[slot as usize];
        let session = connection.session;
        if !(task.is_read() && task.ends()) {
            self.change_filters_now(slot);
            if let Task::Subscribe(subscribe) = &mut task {
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
            Task::Subscribe(_) => work + replay::work_at_once(broker.retained.len()),
            Task::Unsubscribe(_) => work,
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

    /// Carries out packets of one broker's clients as one edit of its filters. Returns the last packet that has more filters.
    //= [MQTT-3.8.4-3] v5
    //= [MQTT-3.8.4-3] v3.1.1
    pub(super) fn edit_filters(&mut self, broker: &Arc<Broker>, mut changes: Changes) -> Option<Task> {
        changes
            .retain(|(id, _)| self.connection_of(*id).is_some_and(|connection| connection.session != NONE));
        for (id, task) in &mut changes {
            self.connections[id.slot as usize].changes_filters = false;
            self.revoke_anew(id.slot);
            if let Task::Subscribe(subscribe) = task {
                self.check_next(id.slot, subscribe);
            }
        }
        self.counters().filter_edits.add(1);
        let limits = &self.process.limits;
        let per_session = broker.quota.subscriptions_per_session_max(limits.subscriptions_per_session_max);
        let mut room = Room {
            counters: &broker.counters[usize::from(self.index)],
            is_shared: self.process.store.is_some() && self.process.is_shared(),
            of_broker: broker.quota.subscriptions_max().saturating_sub(broker.router.subscriptions() as u64),
            per_session: per_session as usize,
            lacks_retained: broker.retained_memory.is_incomplete.load(Ordering::Relaxed)
                && !self.process.is_shared(),
            bytes_of_broker: limits.filter_memory_per_broker_max,
            all_bytes: self.process.brokers.filter_bytes(),
            all_bytes_max: limits.filter_memory_max,
            bytes_before: 0,
        };
        let (connections, sessions, core) = (&self.connections, &mut self.sessions, self.index);
        let ((), retained) = broker.edit_subscriptions(|edit| {
            room.bytes_before = edit.bytes();
            for (id, task) in &mut changes {
                let session = connections[id.slot as usize].session;
                let local = &mut sessions[session as usize];
                let target = Target { core, slot: session, generation: local.generation };
                match task {
                    Task::Subscribe(subscribe) => subscribe.carry_out(edit, local, target, &mut room),
                    Task::Unsubscribe(unsubscribe) => unsubscribe.carry_out(edit, local, target, &mut room),
                }
            }
        });
        // Among several pods the store has what is retained.
        let retained = (!room.is_shared).then_some(retained);
        let mut unfinished = None;
        for (id, task) in changes {
            // An answer to another one may have ended it.
            if self.connection_of(id).is_some_and(|connection| connection.session != NONE) {
                unfinished = match task {
                    Task::Subscribe(subscribe) => {
                        self.edited_for_subscribe(id.slot, broker, subscribe, retained.as_ref())
                    }
                    Task::Unsubscribe(unsubscribe) => {
                        self.edited_for_unsubscribe(id.slot, broker, unsubscribe)
                    }
                };
            }
        }
        unfinished
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
    ) -> Option<Task> {
        for replay in subscribe.pending.replays.iter_mut().filter(|replay| replay.retained.is_none()) {
            replay.retained = retained.cloned();
        }
        if let Some(limit) = subscribe.reached.take() {
            self.reached(slot, limit);
        }
        let filters =
            || subscribe.read.filters[subscribe.done..subscribe.until].iter().map(|(filter, _)| &**filter);
        self.announce_members(broker, filters());
        let announced = self.announce_filters(broker, filters());
        subscribe.pending.announced = subscribe.pending.announced.max(announced);
        subscribe.done = subscribe.until;
        if subscribe.done < subscribe.read.filters.len() {
            self.expect_answer(slot, &mut subscribe);
            return Some(Task::Subscribe(subscribe));
        }
        self.finish_subscribe(slot, *subscribe);
        None
    }

    /// Some filters of an UNSUBSCRIBE were carried out; gives it back when there are more.
    fn edited_for_unsubscribe(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        unsubscribe: Box<UnsubscribeInProgress>,
    ) -> Option<Task> {
        let UnsubscribeInProgress { read: FiltersToEnd { filters, .. }, next, .. } = &*unsubscribe;
        self.announce_members(broker, filters[next.clone()].iter().map(|filter| &**filter));
        if next.end < filters.len() {
            return Some(Task::Unsubscribe(unsubscribe));
        }
        self.finish_unsubscribe(slot, *unsubscribe);
        None
    }

    /// The filters that the last turn granted wait for the store: until it has answered, no other answer ends them.
    fn expect_answer(&mut self, slot: u32, subscribe: &mut SubscribeInProgress) {
        let SubscribeInProgress { read, identifiers, granted, pending, .. } = subscribe;
        if granted.is_empty() {
            return;
        }
        let session = self.connections[slot as usize].session;
        let local = &mut self.sessions[session as usize];
        let is_in_memory = local.persistent.is_none();
        let unanswered = match &mut local.persistent {
            Some(persistent) => &mut persistent.unanswered_by_store,
            None => &mut local.new_subscriptions.get_or_insert_default().unanswered_by_store,
        };
        if pending.number == 0 {
            pending.number = unanswered.begin();
        }
        for (place, former) in granted.drain(..) {
            let (filter, options) = &read.filters[place];
            unanswered.add(filter, former);
            if is_in_memory {
                let qos = QoS::from_bits(pending.reasons[place].0).unwrap_or(options.qos);
                let options = SubscribeOptions { qos, ..*options };
                let granted = ClientSubscription { options, identifier: identifiers.of(place) };
                pending.in_memory.push((filter.clone(), granted));
            }
        }
    }

    /// All filters of a SUBSCRIBE are routed: submits them to the store, or answers the client.
    fn finish_subscribe(&mut self, slot: u32, mut subscribe: SubscribeInProgress) {
        let session = self.connections[slot as usize].session;
        let is_shared = self.process.store.is_some() && self.process.is_shared();
        let asks = is_shared && !(subscribe.pending.replays.is_empty() && subscribe.shared.is_empty());
        let local = &self.sessions[session as usize];
        if asks || local.persistent.is_some() || local.new_subscriptions.is_some() {
            self.expect_answer(slot, &mut subscribe);
        }
        let SubscribeInProgress { read, mut stored, shared, holds, mut pending, .. } = subscribe;
        let FiltersToAdd { filters, places, .. } = read;
        pending.asks = asks;
        let target = self.target_of(session);
        let broker = self.sessions[session as usize].broker.clone();
        pending.asked = filters.iter().map(|(_, options)| options.qos).collect();
        pending.places = places;
        let local = &mut self.sessions[session as usize];
        match &mut local.persistent {
            // From here on `unanswered` counts it.
            Some(persistent) => persistent.subscribing -= u32::from(holds),
            None => pending.holds = holds,
        }
        if stored.is_empty() && !pending.asks {
            if let Some(new) = &mut local.new_subscriptions {
                for (filter, granted) in std::mem::take(&mut pending.in_memory) {
                    new.unanswered_by_store.remove(pending.number, &filter, Some(granted));
                }
            }
            for (filter, _) in filters.iter().filter(|(filter, _)| filter.starts_with("$share/")) {
                self.join(&broker, filter);
            }
            return self.suback_when_confirmed(slot, &broker, pending);
        }
        self.flag_due(&pending.replays, &mut stored);
        let local = &mut self.sessions[session as usize];
        if pending.asks {
            let new = local.new_subscriptions.get_or_insert_default();
            new.reading += 1;
            pending.asker = Arc::downgrade(&new.asker);
        }
        if let Some(persistent) = &mut local.persistent {
            persistent.subscribing += 1;
        }
        stored.shrink_to_fit();
        let subscribe = jobs::Subscribe::new(local.key(), target, stored, shared, pending);
        self.queue_job(Write::Subscribe(Box::new(subscribe)));
    }

    /// SUBACK, then what is retained.
    pub(super) fn answer_subscribe(&mut self, slot: u32, pending: &PendingSubscribe) {
        let reasons: Reasons = pending
            .places
            .iter()
            .map(|(place, asked)| match pending.reasons[*place as usize] {
                reason if reason.is_error() => reason,
                // A filter that stands there twice is answered twice, as if in packets of its own.
                ReasonCode(granted) if granted < pending.asked[*place as usize] as u8 => {
                    ReasonCode(granted.min(*asked as u8))
                }
                _ => ReasonCode(*asked as u8),
            })
            .collect();
        let (protocol, mut out, _) = parts!(self, slot);
        let before = out.len();
        if let Some(packet_id) = pending.packet_id {
            protocol.subscribed(packet_id, &reasons, pending.what, &mut out);
        }
        out.note_answers(before);
        if pending.asks {
            let session = self.connections[slot as usize].session;
            let new = self.sessions[session as usize].new_subscriptions.get_or_insert_default();
            new.replayed(&pending.replays, self.now);
        }
        self.replay(slot, &pending.replays, pending.holds);
        let session = self.connections[slot as usize].session;
        if pending.asks {
            self.go_on_fresh(session);
        }
    }

    /// The retained messages of a SUBSCRIBE have been read: what was held for them comes after them.
    fn go_on_fresh(&mut self, session: u32) {
        let local = &mut self.sessions[session as usize];
        let Some(new) = &mut local.new_subscriptions else { return };
        new.reading -= 1;
        let (broker, held) = (local.broker.clone(), new.release());
        for (message, receiver) in held {
            self.deliver_one(&broker, &receiver, &message, Publisher::NOBODY, 0);
        }
    }

    /// Subscriptions are durable, or could not be stored.
    pub(super) fn subscribed(&mut self, subscribe: jobs::Subscribe, subscribed: &[Option<Subscribed>]) {
        let target = subscribe.target;
        let Some(local) = self.sessions.get_mut(target.slot as usize) else { return };
        if local.generation != target.generation {
            return;
        }
        if subscribe.pending.goes_back {
            return self.went_back(subscribe, subscribed);
        }
        let jobs::Subscribe { filters, shared: in_memory, mut pending, .. } = subscribe;
        let broker = local.broker.clone();
        let shared: Vec<Box<str>> =
            filters.iter().map(|(filter, ..)| filter.clone()).filter(|f| f.starts_with("$share/")).collect();
        let Some(persistent) = &mut local.persistent else {
            let slot = local.connection;
            let mut go_back: Vec<GoesBack> = Vec::new();
            if let Some(new) = &mut local.new_subscriptions {
                let mut ended: HashSet<Box<str>, foldhash::fast::RandomState> = HashSet::default();
                for (filter, granted) in std::mem::take(&mut pending.in_memory) {
                    let granted = (!pending.is_refused).then_some(granted);
                    let answered = new.unanswered_by_store.remove(pending.number, &filter, granted);
                    go_back.extend(answered.goes_back.map(|former| (filter.clone(), former)));
                    if answered.is_ended {
                        ended.insert(filter);
                    }
                }
                pending.replays.retain(|replay| !ended.contains(&replay.filter));
            }
            self.go_back(target, &go_back);
            if pending.is_refused {
                pending.replays.clear();
                for reason in pending.reasons.iter_mut().filter(|reason| !reason.is_error()) {
                    *reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
                }
                return self.answer_subscribe(slot, &pending);
            }
            in_memory.iter().for_each(|filter| self.join(&broker, filter));
            return self.answer_subscribe(slot, &pending);
        };
        let was_live = persistent.is_live();
        let mut durable = Vec::new();
        let mut go_back: Vec<GoesBack> = Vec::new();
        let mut ended: HashSet<Box<str>, foldhash::fast::RandomState> = HashSet::default();
        for ((filter, options, place), subscribed) in filters.into_iter().zip(subscribed) {
            let subscribed = subscribed.as_ref().filter(|_| !pending.is_refused);
            let granted = subscribed.map(|_| subscription_of(options));
            let answered = persistent.unanswered_by_store.remove(pending.number, &filter, granted);
            go_back.extend(answered.goes_back.map(|former| (filter.clone(), former)));
            if subscribed.is_some() && options.bits & REPLAY_DUE != 0 {
                persistent.due.insert(filter.clone());
            }
            match subscribed {
                Some(_) if answered.is_ended => drop(ended.insert(filter)),
                // The later SUBSCRIBE has another stream, or none.
                Some(_) if answered.is_outdated => {}
                Some(subscribed) => durable.push((filter, *subscribed)),
                None => {
                    pending.reasons[place] = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
                    ended.insert(filter);
                }
            }
        }
        if !ended.is_empty() {
            pending.replays.retain(|replay| !ended.contains(&replay.filter));
        }
        persistent.has_ended_filters |= !(ended.is_empty() && go_back.is_empty());
        persistent.unanswered.push(pending);
        self.work.spend(durable.iter().map(|(filter, _)| work::filter_work(filter.as_bytes())).sum());
        let is_more = local.add_sources(target, durable, self.following.handed_over);
        let session = local.key();
        self.go_back(target, &go_back);
        self.write_back(session, target, go_back);
        if is_more && was_live {
            // Answered when the session is live again: then its client has nothing to wait for.
            self.hold_until_barrier(target.slot);
        } else {
            self.answer_subscribes(target.slot);
            if is_more {
                self.hold_until_barrier(target.slot);
            } else {
                self.deliver_held(target.slot);
                self.read_passed_over(target.slot);
            }
        }
        for filter in shared {
            self.join(&broker, &filter);
        }
    }

    /// Undoes refused changes of subscriptions: the store cannot read their retained messages (P6) or other members.
    fn go_back(&mut self, target: Target, go_back: &[GoesBack]) {
        if go_back.is_empty() {
            return;
        }
        self.revoke_anew(self.sessions[target.slot as usize].connection);
        let local = &mut self.sessions[target.slot as usize];
        let (broker, own) = (local.broker.clone(), local.persistent.as_deref());
        let stored: HashSet<&str, foldhash::fast::RandomState> =
            own.into_iter().flat_map(PersistentSession::filters).collect();
        for (filter, former) in go_back {
            let Some(parsed) = Filter::parse(filter) else { continue };
            if let Some(former) = former {
                let is_stored = stored.contains(&**filter);
                local.session.subscribe(filter, *former);
                broker.router.subscribe(parsed, routed(target, former, is_stored));
            } else {
                local.session.unsubscribe(filter);
                broker.router.unsubscribe(parsed, target);
            }
        }
        self.announce_members(&broker, go_back.iter().map(|(filter, _)| &**filter));
    }

    /// Writes the same to the store, which may have made the changes: reading retained messages can fail after the commit.
    fn write_back(&mut self, session: SessionKey, target: Target, go_back: Vec<GoesBack>) {
        let (mut ended, mut changed) = (Vec::new(), Vec::new());
        for (filter, former) in go_back {
            match former {
                None => ended.push(filter),
                Some(ClientSubscription { options, identifier }) => {
                    let options = StoredOptions { bits: options.to_bits(Version::V5), identifier };
                    changed.push((filter, options, 0));
                }
            }
        }
        if !ended.is_empty() {
            let unsubscribe = jobs::Unsubscribe::new(session.clone(), target, ended, None, SmallVec::new());
            self.store_jobs.queue.push(Job { write: Write::Unsubscribe(Box::new(unsubscribe)), ack: None });
        }
        if !changed.is_empty() {
            let pending = PendingSubscribe { goes_back: true, ..PendingSubscribe::new(None) };
            let subscribe = jobs::Subscribe::new(session, target, changed, Vec::new(), pending);
            self.store_jobs.queue.push(Job { write: Write::Subscribe(Box::new(subscribe)), ack: None });
        }
    }

    /// The store has written back former subscriptions. One of QoS 0 may have got the stream of the refused SUBSCRIBE.
    fn went_back(&mut self, subscribe: jobs::Subscribe, subscribed: &[Option<Subscribed>]) {
        let target = subscribe.target;
        let filters = subscribe.filters.into_iter().map(|(filter, ..)| filter);
        let durable =
            filters.zip(subscribed).filter_map(|(filter, stored)| Some((filter, (*stored)?))).collect();
        let local = &mut self.sessions[target.slot as usize];
        if local.persistent.is_some() && local.add_sources(target, durable, self.following.handed_over) {
            self.hold_until_barrier(target.slot);
        }
    }

    pub(super) fn answer_subscribes(&mut self, session: u32) {
        let local = &mut self.sessions[session as usize];
        let slot = local.connection;
        let Some(persistent) = &mut local.persistent else { return };
        let unanswered = std::mem::take(&mut persistent.unanswered);
        persistent.subscribing -= u32::try_from(unanswered.len()).unwrap_or(u32::MAX);
        for pending in unanswered {
            self.answer_subscribe(slot, &pending);
        }
        self.deliver_unstored(session);
    }

    /// The QoS that a subscription to a filter is granted, or why it is none.
    fn may_subscribe(&self, slot: u32, text: &str, qos: QoS) -> Result<QoS, (ReasonCode, &'static str)> {
        let connection = &self.connections[slot as usize];
        let counters = self.broker_counters(&self.sessions[connection.session as usize].broker);
        let parsed = Filter::parse(text).ok_or("a shared subscription without a share name or a filter");
        let fits = |filter| self.over_topic_limits(text).map_or(Ok(filter), |(what, _)| Err(what));
        let filter = parsed.and_then(fits).map_err(|what| {
            counters.subscribe_invalid.add(1);
            (ReasonCode::TOPIC_FILTER_INVALID, what)
        })?;
        let may_share = filter.share.is_none() || connection.who.may_share();
        let granted = self.may_receive(slot, filter.filter, qos).filter(|_| may_share);
        if granted.is_none() {
            counters.subscribe_denied.add(1);
            self.note_of(slot, Note::new(Kind::SubscribeRefused, text, DENIED));
        }
        granted.ok_or((ReasonCode::NOT_AUTHORIZED, DENIED))
    }

    /// Ends subscriptions and answers. Messages that were on their way to the session still arrive.
    pub(super) fn unsubscribe(&mut self, slot: u32, unsubscribe: &Unsubscribe<'_>) {
        let filters = FiltersToEnd::new(unsubscribe.filters.clone());
        self.end_filters(slot, filters, Some(unsubscribe.packet_id));
    }

    /// Ends subscriptions that the client may not have any more.
    pub(super) fn end_subscriptions(&mut self, slot: u32, filters: Vec<Box<str>>) {
        self.end_filters(slot, filters.into(), None);
        self.change_filters_now(slot);
    }

    fn end_filters(&mut self, slot: u32, read: FiltersToEnd, packet_id: Option<PacketId>) {
        let unsubscribe = UnsubscribeInProgress { packet_id, read, next: 0..0, reasons: Reasons::new() };
        self.change_filters(slot, Task::Unsubscribe(Box::new(unsubscribe)));
    }

    fn finish_unsubscribe(&mut self, slot: u32, unsubscribe: UnsubscribeInProgress) {
        let UnsubscribeInProgress { packet_id, read: FiltersToEnd { filters, .. }, reasons, .. } =
            unsubscribe;
        let session = self.connections[slot as usize].session;
        let target = self.target_of(session);
        self.spend(work::LOOKUP * filters.len() as u64);
        filters.iter().for_each(|filter| self.unfinished.replays.end(session, filter));
        let local = &mut self.sessions[session as usize];
        if let Some(persistent) = &mut local.persistent {
            // The store may have subscriptions that an UNSUBSCRIBE removed only here, because the store refused it. A
            // session has `SUBSCRIPTIONS_MAX` of them at most.
            let mut unknown = 0;
            let filters = filters.into_iter().zip(&reasons).filter(|(_, reason)| {
                unknown += usize::from(**reason != ReasonCode::SUCCESS);
                **reason == ReasonCode::SUCCESS || unknown <= SUBSCRIPTIONS_MAX
            });
            let filters: Vec<Box<str>> = filters.map(|(filter, _)| filter).collect();
            self.work.spend(persistent.end_sources(&filters, local.session.entries()));
            filters.iter().for_each(|filter| persistent.unanswered_by_store.end(filter));
            let session = local.key();
            let unsubscribe = jobs::Unsubscribe::new(session, target, filters, packet_id, reasons);
            return self.queue_job(Write::Unsubscribe(Box::new(unsubscribe)));
        }
        if let Some(new) = &mut local.new_subscriptions {
            filters.iter().for_each(|filter| new.unanswered_by_store.end(filter));
        }
        let Some(packet_id) = packet_id else { return };
        let (protocol, mut out, _) = parts!(self, slot);
        let before = out.len();
        protocol.unsubscribed(packet_id, &reasons, &mut out);
        out.note_answers(before);
    }

    /// Subscriptions are gone from the store, or could not be removed.
    pub(super) fn unsubscribed(&mut self, unsubscribe: jobs::Unsubscribe, stored: bool) {
        let jobs::Unsubscribe { target, packet_id, mut reasons, .. } = unsubscribe;
        // Subscriptions that the server ends are checked again when the client reconnects.
        let Some(packet_id) = packet_id else { return };
        let Some(local) = self.sessions.get_mut(target.slot as usize) else { return };
        if local.generation != target.generation {
            return;
        }
        let slot = local.connection;
        if !stored {
            let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
            // A 3.x client gets no reason code. Without an UNSUBACK it does not believe that the subscription has ended.
            if self.connections[slot as usize].protocol.version() != Version::V5 {
                return self.end(slot, Ended::Error(reason), true);
            }
            reasons.iter_mut().for_each(|each| *each = reason);
        }
        let (protocol, mut out, _) = parts!(self, slot);
        let before = out.len();
        protocol.unsubscribed(packet_id, &reasons, &mut out);
        out.note_answers(before);
    }

    pub(super) fn target_of(&self, session: u32) -> Target {
        let generation = self.sessions[session as usize].generation;
        Target { core: self.index, slot: session, generation }
    }
}

fn add(
    edit: &mut Edit<'_>,
    local: &mut LocalSession,
    target: Target,
    text: &str,
    subscription: ClientSubscription,
    replays: &mut SmallVec<[Replay; 2]>,
) {
    let Some(filter) = Filter::parse(text) else { return };
    let (options, identifier) = (subscription.options, subscription.identifier);
    // The store does not have it yet.
    edit.subscribe(filter, routed(target, &subscription, false));
    let is_new = local.session.subscribe(text, subscription);
    if wants_retained(filter, options, is_new) {
        replays.push(Replay {
            filter: filter.filter.into(),
            qos: options.qos,
            identifier,
            left_out: left_out(local.session.client_id(), options),
            retained: None,
            pages: Arc::default(),
        });
    }
}
