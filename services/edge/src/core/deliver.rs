//! Delivers messages to the sessions of this core.

mod runs;

use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::QoS;
use millrace_router::Receiver;
use millrace_session::{Delivered, Delivery, DropReason, Message, Session};

use super::connection::NONE;
use super::fanout::Copies;
use super::feed::{HeldMessage, Take};
use super::limits;
use super::notes::note_dropped;
use super::output::FLUSH_BYTES;
use super::shared::is_refused;
use super::tapped::Tapped;
use super::{Core, LocalSession, parts, work};
use crate::broker::Broker;
use crate::clock::Clock;
use crate::connection_id::ConnectionId;
use crate::elsewhere::ELSEWHERE;
use crate::mailbox::Mail;
use crate::metering::UsageCounter;
use crate::metrics::BrokerCounters;
use crate::outbound::OutboundRoom;
use crate::routes::{RouteProgress, Routes};
use crate::streams::GroupNumber;
pub(super) use runs::{RunCopies, SharedRun};

#[derive(Clone, Copy, Debug)]
pub(super) struct Publisher {
    /// Its connection; `None` for the server and for clients of other pods.
    pub(super) id: Option<ConnectionId>,
    /// Its client, as [`LocalSession::publisher`] has it; 0: none is named.
    pub(super) client: u64,
    /// It may be paused for a lagging receiver, because it has no other receiver.
    pub(super) may_be_paused: bool,
}

impl Publisher {
    /// The server, or a client of another pod.
    pub(super) const NOBODY: Self = Self { id: None, client: 0, may_be_paused: false };

    pub(super) fn of(routes: &Routes, id: Option<ConnectionId>, client: u64) -> Self {
        Self { id, client, may_be_paused: routes.matched.receivers.len() <= 1 }
    }
}

impl Core {
    pub(super) fn deliver_here(
        &mut self,
        routes: &Arc<Routes>,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
    ) {
        let publisher = Publisher::of(routes, from, message.publisher());
        // Messages of one client to the broker stay in order.
        let waits = self.unfinished.fanouts.delays(routes.broker.id, publisher);
        let next = if waits { 0 } else { self.deliver_from(routes, message, publisher, 0) };
        if next < routes.receivers(self.index).len() {
            self.put_off(routes, Copies::One(message.clone()), publisher, next);
        }
    }

    /// Hands a message to this core's receivers from `start` on, as many as one slice of work allows. Returns the
    /// index of the first receiver without a copy.
    pub(super) fn deliver_from(
        &mut self,
        routes: &Routes,
        message: &Arc<Message>,
        publisher: Publisher,
        start: usize,
    ) -> usize {
        let receivers = routes.receivers(self.index);
        let end = self.work.spent() + work::SLICE;
        let bytes = message.size();
        let began = self.trace_began(message);
        for (index, receiver) in receivers.iter().enumerate().skip(start) {
            if self.work.spent() >= end {
                // Only the last slice records a span: one for each slice would be many.
                return index;
            }
            self.spend(work::single_copy(receiver));
            self.spend_bytes(bytes);
            self.deliver_one(&routes.broker, receiver, message, publisher, 0);
        }
        self.trace_delivered(began, &routes.broker, message, receivers.len());
        receivers.len()
    }

    pub(super) fn deliver_shared(
        &mut self,
        routes: &Arc<Routes>,
        receiver: Receiver,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
        group: GroupNumber,
    ) {
        let core = receiver.target.core;
        self.spend(work::SINGLE_COPY);
        if core == ELSEWHERE {
            return self.deliver_elsewhere(routes, &receiver, message, group);
        }
        if core == self.index {
            self.spend_bytes(message.size());
            let publisher = Publisher { id: from, client: message.publisher(), may_be_paused: true };
            let began = self.trace_began(message);
            self.deliver_one(&routes.broker, &receiver, message, publisher, group);
            return self.trace_delivered(began, &routes.broker, message, 1);
        }
        let (routes, message) = (routes.clone(), message.clone());
        self.post(core, Mail::Shared { routes, receiver, message, from, group });
        if let Some(from) = from {
            self.pause_for_mailbox(core, from);
        }
    }

    fn deliver_elsewhere(&self, routes: &Routes, receiver: &Receiver, message: &Message, group: GroupNumber) {
        if let (Some(group), Some(region)) = (routes.group(group), &self.process.region) {
            region.share(&routes.broker, group, receiver, message);
        }
    }

    /// Messages of a shared subscription (`group`) are neither retained nor in the session's own streams. A copy that the session
    /// got as a retained message is not a loss.
    pub(super) fn deliver_one(
        &mut self,
        broker: &Broker,
        receiver: &Receiver,
        message: &Arc<Message>,
        from: Publisher,
        group: GroupNumber,
    ) {
        let Some(local) = local_session(&mut self.sessions, receiver) else { return };
        //= [MQTT-3.8.3-3] v5
        let Some(options) = receiver.copy_options(local.publisher == from.client) else { return };
        if let Some(new) = &mut local.new_subscriptions
            && group == 0
        {
            let take = new.take(message, self.now, broker.queues());
            self.work.spend((new.take_compared() / work::COMPARED_LEVELS) as u64);
            match take {
                Take::Deliver => {}
                Take::Hold => return new.hold(message, receiver, broker.queues()),
                Take::Drop if new.reading == 0 => return,
                Take::Drop => {
                    let full = Delivered::Dropped(DropReason::QueueFull);
                    let clock = &self.process.clock;
                    self.tracing.note_drop(local.connection, message, DropReason::QueueFull, clock);
                    return count(&broker.counters[usize::from(self.index)], full);
                }
            }
        }
        let delivery = Delivery {
            message,
            //= [MQTT-3.8.4-8] v5
            //= [MQTT-3.8.4-6] v3.1.1
            qos: message.qos().min(options.qos),
            //= [MQTT-3.3.1-12] [MQTT-3.3.1-13] v5
            //= [MQTT-3.3.1-9] v3.1.1
            retain: options.retain_as_published && message.retain(),
            replay: false,
            maybe_sent: false,
            shared: group,
            identifiers: options.identifiers,
        };
        if let Some(persistent) = &mut local.persistent
            && group == 0
        {
            let is_behind = is_behind(&local.session, message, broker);
            if is_behind && delivery.qos > QoS::AtMostOnce && persistent.is_live() {
                // From here on the session reads the store at its own rate, so that its queue does not grow. It begins behind the
                // messages that all live sessions have got.
                let base = persistent.base(self.following.handed_over);
                persistent.begin_reading(base);
            }
            match persistent.take(delivery.qos, message.size(), broker.queues()) {
                Take::Deliver => {}
                Take::Hold => return persistent.hold(HeldMessage::new(&delivery), broker.queues()),
                // Its buffer of held messages is full. Dropping a QoS 0 message leaves no gap in the stream.
                Take::Drop if delivery.qos == QoS::AtMostOnce => {
                    let counters = &broker.counters[usize::from(self.index)];
                    self.tracing.note_drop(local.connection, message, DropReason::Busy, &self.process.clock);
                    return count(counters, Delivered::Dropped(DropReason::Busy));
                }
                Take::Drop => {
                    self.work.spend(persistent.dropped(self.following.handed_over) as u64);
                    return self.read_on(receiver.target.slot);
                }
            }
        }
        self.deliver_to(receiver.target.slot, delivery, from);
    }

    /// QoS 2 of a stored session is queued, and pumping reserves its packet id in the store.
    pub(super) fn deliver_to(&mut self, session: u32, delivery: Delivery<'_>, from: Publisher) {
        let target = self.target_of(session);
        let local = &mut self.sessions[session as usize];
        if local.connection == NONE {
            return self.deliver_offline(session, delivery);
        }
        let broker = &local.broker;
        let own = broker.quota.queue_settings(&self.process.settings);
        let settings = own.as_ref().unwrap_or(&self.process.settings);
        let (soft_bytes, hard_bytes) = (self.output.soft_bytes, self.output.hard_bytes);
        let (protocol, mut out, _) = parts!(self, local.connection);
        let mut behind = None;
        // With other receivers, this receiver loses the message: a slow reader costs only itself (P9).
        if out.busy
            && from.may_be_paused
            && delivery.qos == QoS::AtMostOnce
            && out.outbound().room(soft_bytes, hard_bytes, self.now_ms) == OutboundRoom::Congested
            && from.id.filter(|_| delivery.shared == 0).is_none_or(|id| {
                self.pauses.watched.are_most_behind(id, RouteProgress::of_one(target, 1), self.now_ms)
            })
        {
            // Append nevertheless: the publisher waits, and the receiver loses nothing.
            out.busy = false;
            behind = Some(local.connection);
        }
        let outcome =
            local.session.deliver(delivery, Some(protocol), settings, broker.queues(), self.now_ms, &mut out);
        if is_refused(&mut self.store_jobs.shared, broker, &delivery, outcome) {
            return;
        }
        count(&broker.counters[usize::from(self.index)], outcome);
        self.work.spend((local.session.moved_bytes(outcome) / work::MOVED_BYTES) as u64);
        if let Delivered::Dropped(reason) = outcome {
            let now_ms = self.process.clock.unix_now_ms();
            self.tracing.note_drop(local.connection, delivery.message, reason, &self.process.clock);
            note_dropped(broker, outcome, local.session.client_id(), 1, now_ms);
        }
        if !out.busy && out.slot.as_ref().is_some_and(|outbound| outbound.len() >= FLUSH_BYTES) {
            self.output.overfull.push(local.connection);
        }
        if outcome == Delivered::Sent {
            if behind.is_none() {
                self.pauses.watched.note(from.id, RouteProgress::of_one(target, 0), self.now_ms);
            }
            broker.meters[usize::from(self.index)].delivered(delivery.message);
            self.connections[local.connection as usize].count_out(1, delivery.message.size());
        }
        local.note_delivered(&delivery, self.following.handed_over);
        let settled = if delivery.shared == 0 { Vec::new() } else { local.session.take_settled() };
        let (broker, connection) = (local.broker.id, local.connection);
        let reserves = local.session.is_stored && delivery.qos == QoS::ExactlyOnce;
        self.note_settled(broker, settled);
        if let (Some(behind), Some(from)) = (behind, from.id) {
            self.pause_until_drained(behind, from, RouteProgress::of_one(target, 1));
        }
        if reserves {
            self.pump(connection);
        }
    }

    fn deliver_offline(&mut self, session: u32, delivery: Delivery<'_>) {
        let local = &mut self.sessions[session as usize];
        let broker = &local.broker;
        let own = broker.quota.queue_settings(&self.process.settings);
        let settings = own.as_ref().unwrap_or(&self.process.settings);
        let outcome =
            local.session.deliver(delivery, None, settings, broker.queues(), self.now_ms, &mut Vec::new());
        if !is_refused(&mut self.store_jobs.shared, broker, &delivery, outcome) {
            count(&broker.counters[usize::from(self.index)], outcome);
        }
    }

    /// Sends what a session held back, as far as possible now.
    pub(super) fn pump(&mut self, slot: u32) {
        let (protocol, mut out, session) = parts!(self, slot);
        let local = &mut self.sessions[session as usize];
        let tapped = self.tracing.tapped.get(&slot).map(|tapped| &**tapped);
        let mut pumped = Pumped::of(&local.broker, self.index, tapped, &self.process.clock);
        let mut done = |outcome, message: &Message| pumped.add(outcome, message);
        let (settings, budget) = (&self.process.settings, local.broker.queues());
        let count = local.session.pump(protocol, settings, budget, self.now_ms, &mut out, &mut done);
        let Pumped { messages, bytes, .. } = pumped;
        self.connections[slot as usize].count_out(messages, bytes);
        self.work.spend(work::SINGLE_COPY * count as u64 + (bytes / work::COPIED_BYTES) as u64);
        let (broker, settled) = (local.broker.id, local.session.take_settled());
        let wants_replay = local.session.wants_replay();
        if local.session.has_reserved() {
            self.reserve(session);
        }
        if wants_replay {
            self.list_replay(session);
        }
        self.note_settled(broker, settled);
        self.read_on_with_memory(session);
        self.pump_later(slot, count);
    }
}

pub(super) struct Pumped<'c> {
    counters: &'c BrokerCounters,
    usage: &'c UsageCounter,
    tapped: Option<&'c Tapped>,
    clock: &'c Clock,
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

impl<'c> Pumped<'c> {
    pub(super) fn of(broker: &'c Broker, core: u16, tapped: Option<&'c Tapped>, clock: &'c Clock) -> Self {
        let (counters, usage) = (&broker.counters[usize::from(core)], &broker.meters[usize::from(core)]);
        Self { counters, usage, tapped, clock, messages: 0, bytes: 0 }
    }

    pub(super) fn add(&mut self, outcome: Delivered, message: &Message) {
        let Delivered::Dropped(reason) = outcome else {
            // It was counted as sent when it was queued.
            self.usage.delivered(message);
            (self.messages, self.bytes) = (self.messages + 1, self.bytes + message.size());
            return;
        };
        count(self.counters, outcome);
        if let Some(tapped) = self.tapped {
            tapped.dropped(message.topic(), reason, 1, self.clock.unix_now_ms());
        }
    }
}

impl LocalSession {
    fn note_delivered(&mut self, delivery: &Delivery<'_>, handed_over: Position) {
        if let Some(persistent) = &mut self.persistent
            && delivery.qos > QoS::AtMostOnce
            && !delivery.replay
            && delivery.shared == 0
        {
            persistent.got(delivery.message, handed_over);
        }
    }
}

fn is_behind(session: &Session, message: &Message, broker: &Broker) -> bool {
    session.waiting() >= limits::WAITING_MESSAGES_MAX
        || session.waiting_bytes() >= limits::WAITING_BYTES_MAX
        || session.lacks_memory(message.size(), broker.queues())
}

pub(super) fn local_session<'s>(
    sessions: &'s mut slab::Slab<LocalSession>,
    receiver: &Receiver,
) -> Option<&'s mut LocalSession> {
    sessions
        .get_mut(receiver.target.slot as usize)
        .filter(|local| local.generation == receiver.target.generation)
}

pub(super) fn count(counters: &BrokerCounters, outcome: Delivered) {
    let counter = match outcome {
        Delivered::Sent | Delivered::Queued => &counters.sent,
        Delivered::Dropped(DropReason::Offline) => return,
        Delivered::Dropped(DropReason::Busy) => &counters.dropped_busy,
        Delivered::Dropped(DropReason::QueueFull) => &counters.dropped_queue,
        Delivered::Dropped(DropReason::Memory) => &counters.dropped_memory,
        Delivered::Dropped(DropReason::Expired) => &counters.dropped_expired,
        Delivered::Dropped(DropReason::TooLarge) => &counters.dropped_too_large,
    };
    counter.add(1);
}
