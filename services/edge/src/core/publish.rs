//! Messages from clients: checked, routed, handed to their receivers, acknowledged.
//!
//! QoS 0 has a fast path. Consecutive PUBLISH packets of one publisher to one topic, without properties or RETAIN, form
//! a *run*: their bytes are just what a receiver of the same protocol gets, so they are handed on as they stand.

use std::ops::Range;
use std::sync::Arc;

use millrace_mqtt::{PacketId, PacketType, Publish, QoS, ReasonCode, Version, topic};
use millrace_session::{Message, Publication};

use super::connection::{NONE, Paused};
use super::trace::Traced;
use super::{Core, Ended, parts};
use crate::broker::{Broker, OVER_CAP};
use crate::connection_id::ConnectionId;
use crate::deliveries::Run;
use crate::encoding::record;
use crate::incidents::{Kind, Note};
use crate::jobs;
use crate::jobs::{Ack, IdWrite, Ids, Job, Write};
use crate::mailbox::Mail;
use crate::metering::{Amount, UsageCounter};
use crate::quota::Limit;
use crate::routes::Routes;
use crate::streams::group_id;
use crate::traces::TraceStep;

/// First byte of a PUBLISH with QoS 0 and without RETAIN.
const PLAIN_PUBLISH: u8 = (PacketType::Publish as u8) << 4;

/// Bounds the work for receivers that need packets of their own.
const RUN_MESSAGES_MAX: usize = 2048;

/// A run being gathered: a range of the read buffer.
pub(super) struct RunInProgress {
    routes: Arc<Routes>,
    is_v5: bool,
    bytes: Range<usize>,
    amount: Amount,
}

impl RunInProgress {
    /// The sizes of the packet at the start of `bytes` and of its message, if the packet is complete and continues
    /// the run. The topic needs no check, because the run's first packet was checked.
    #[inline]
    pub(super) fn takes(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        if self.amount.messages >= RUN_MESSAGES_MAX {
            return None;
        }
        let (remaining, head) = match bytes {
            [PLAIN_PUBLISH, a @ 0..=0x7F, ..] => (usize::from(*a), 2),
            [PLAIN_PUBLISH, a, b @ 1..=0x7F, ..] => (usize::from(a & 0x7F) | usize::from(*b) << 7, 3),
            _ => return None,
        };
        let body = bytes.get(head..head + remaining)?;
        let topic = self.routes.topic.as_bytes();
        let (length, rest) = body.split_first_chunk::<2>()?;
        let same = usize::from(u16::from_be_bytes(*length)) == topic.len() && rest.starts_with(topic);
        // 5.0: no properties.
        let plain = !self.is_v5 || rest.get(topic.len()) == Some(&0);
        (same && plain).then_some((head + remaining, rest.len() - usize::from(self.is_v5)))
    }

    #[inline]
    pub(super) fn add(&mut self, (packet, message): (usize, usize)) {
        self.bytes.end += packet;
        self.amount.add(message);
    }
}

type Refused = (ReasonCode, &'static str);

impl Core {
    pub(super) fn may_run(&mut self, slot: u32, first: u8, publish: &Publish<'_>) -> bool {
        first == PLAIN_PUBLISH
            && publish.properties.is_empty()
            && self.connections[slot as usize].session != NONE
            && self.connections[slot as usize].uncommitted == 0
            && !self.tracing.sampler.is_due()
            && (!self.connections[slot as usize].is_traced() || self.is_trace_full(slot))
    }

    /// Begins a run with the packet at `at`; `None` when the packet was refused or processed by itself.
    pub(super) fn begin_run(
        &mut self,
        slot: u32,
        publish: &Publish<'_>,
        at: usize,
        size: usize,
    ) -> Option<RunInProgress> {
        if let Err(refused) = self.may_publish(slot, publish.topic, publish) {
            self.count_received(slot, QoS::AtMostOnce, 1, size);
            tracing::debug!(topic = publish.topic, reason = %refused.0, "PUBLISH refused");
            self.leave_out_of_trace(slot, 1);
            return None;
        }
        let routes = self.routes_of(slot, publish.topic);
        if !routes.stored.hooks.is_empty() || routes.is_over_limit {
            self.count_received(slot, QoS::AtMostOnce, 1, size);
            self.leave_out_of_trace(slot, 1);
            self.carry_out(slot, publish.topic, publish, &mut None);
            return None;
        }
        if !routes.matched.groups.is_empty() {
            self.count_received(slot, QoS::AtMostOnce, 1, size);
            self.leave_out_of_trace(slot, 1);
            let message = self.message_of(&routes, publish, None);
            self.meter(&routes.broker).received.add(Amount::of(message.size()), 1);
            self.route(&routes, &message, Some(self.id_of(slot)));
            return None;
        }
        let is_v5 = self.connections[slot as usize].protocol.version() == Version::V5;
        let amount = Amount::of(publish.topic.len() + publish.payload.len());
        Some(RunInProgress { routes, is_v5, bytes: at..at + size, amount })
    }

    /// Returns false when the delivery ended the connection. A run whose receivers take more
    /// than a slice of work pauses its publisher.
    pub(super) fn finish_run(&mut self, slot: u32, bytes: &[u8], run: Option<RunInProgress>) -> bool {
        let Some(RunInProgress { routes, is_v5, bytes: range, amount }) = run else {
            return self.is_open(slot);
        };
        self.count_received(slot, QoS::AtMostOnce, amount.messages, range.len());
        self.meter(&routes.broker).received.add(amount, 1);
        if self.connections[slot as usize].is_traced() {
            self.leave_out_of_trace(slot, amount.messages);
        }
        let from = self.id_of(slot);
        let bytes = &bytes[range];
        let received_us = self.take_timed();
        let mut mailed: Option<Arc<[u8]>> = None;
        for (core, _) in &routes.cores {
            if *core == self.index {
                self.deliver_run(&routes, bytes, is_v5, amount, Some(from), received_us);
                continue;
            }
            let bytes = mailed.get_or_insert_with(|| bytes.into()).clone();
            let routes = routes.clone();
            let run = Run { routes, bytes, is_v5, amount, from: Some(from), received_us };
            self.post(*core, Mail::Run(Box::new(run)));
            self.hold_up_for_mailbox(*core, from);
        }
        if let Some(region) = &self.process.region {
            region.publish_run(&routes, bytes, is_v5, amount.messages);
        }
        self.spend_bytes(bytes.len());
        if !self.is_open(slot) {
            return false;
        }
        self.hold_up_for_memory(from);
        if self.is_share_used() {
            self.pause_for_work(slot);
        }
        true
    }

    pub(super) fn publish(&mut self, slot: u32, publication: &Publication<'_>) {
        let publish = &publication.publish;
        let topic = publication.topic.as_str();
        let size = topic.len() + publish.properties.as_bytes().len() + publish.payload.len();
        let mut traced = self.begin_trace(slot, topic, publish);
        self.count_received(slot, publish.qos, 1, size);
        self.hold_up_for_memory(self.id_of(slot));
        let allowed = self.may_publish(slot, topic, publish);
        self.trace_step(&mut traced, TraceStep::Authorise, allowed.is_err());
        let outcome = match allowed {
            Ok(()) => self.carry_out(slot, topic, publish, &mut traced),
            Err(refused) => Some(refused),
        };
        let Some((reason, what)) = outcome else { return };
        self.answer_publish(slot, publish, topic, reason, what);
        self.end_trace(traced, reason.is_error());
    }

    /// Answers a PUBLISH that is not stored.
    fn answer_publish(
        &mut self,
        slot: u32,
        publish: &Publish<'_>,
        topic: &str,
        reason: ReasonCode,
        what: &'static str,
    ) {
        if reason.is_error() {
            tracing::debug!(topic, %reason, what, "PUBLISH refused");
            self.trace_refused_publish(slot, topic, reason, what);
        }
        let Some(id) = publish.packet_id else { return };
        let (protocol, mut out, session) = parts!(self, slot);
        let session = &mut self.sessions[session as usize].session;
        let ends_3_x = matches!(reason, ReasonCode::QUOTA_EXCEEDED | ReasonCode::TOPIC_NAME_INVALID);
        if ends_3_x && protocol.version() != Version::V5 {
            // The server cannot send a reason, and the client keeps the message until it is acknowledged.
            //= [MQTT-3.3.5-2] v3.1.1
            session.received(id, false);
            return self.end(slot, Ended::Error(reason), true);
        }
        // A 3.x client has no reason codes for any other refusal: it gets a positive acknowledgement.
        //= [MQTT-3.3.5-2] v3.1.1
        let before = out.len();
        protocol.published(publish.qos, id, reason, what, session, &mut out);
        out.note_answers(before);
    }

    /// Returns the reason code to acknowledge the message with; `None` when the store will acknowledge it.
    fn carry_out(
        &mut self,
        slot: u32,
        topic: &str,
        publish: &Publish<'_>,
        traced: &mut Option<Box<Traced>>,
    ) -> Option<(ReasonCode, &'static str)> {
        let from = Some(self.id_of(slot));
        let routes = self.routes_of(slot, topic);
        self.trace_step(traced, TraceStep::Match, routes.is_over_limit);
        if routes.is_over_limit {
            self.broker_counters(&routes.broker).publish_matches.add(1);
            self.reached(slot, Limit::Matches);
            return Some((ReasonCode::QUOTA_EXCEEDED, "more topic filters match the topic than may"));
        }
        // Only the store knows the subscribers on other pods.
        let is_shared = self.process.is_shared();
        if routes.is_empty() && !publish.retain && !is_shared {
            let size = Message::size_of(topic, publish.properties, publish.payload);
            self.meter(&routes.broker).received.add(Amount::of(size), 1);
            return Some((ReasonCode::NO_MATCHING_SUBSCRIBERS, ""));
        }
        let message = self.message_of(&routes, publish, traced.as_deref());
        let mut retains = publish.retain;
        if retains && !self.may_retain(&routes.broker, &message) {
            let version = self.connections[slot as usize].protocol.version();
            if publish.qos > QoS::AtMostOnce && version == Version::V5 {
                let what = "the broker's limit of retained messages is reached";
                return Some((ReasonCode::QUOTA_EXCEEDED, what));
            }
            // A 3.x client gets no reason code, and the message is acknowledged: so the current subscribers still get
            // it.
            //= [MQTT-4.5.0-1] v3.1.1
            retains = false;
        }
        let is_stored = publish.qos > QoS::AtMostOnce && (is_shared || !routes.stored.streams.is_empty())
            || !routes.stored.hooks.is_empty();
        let waits = self.connections[slot as usize].uncommitted > 0;
        if self.process.store.is_none() || !(retains || is_stored || waits) {
            message.set_place(None);
            self.meter(&routes.broker).received.add(Amount::of(message.size()), 1);
            self.hand_on(routes, &message, from, retains);
            return Some((ReasonCode::SUCCESS, ""));
        }
        let queued_us = traced.as_ref().map_or(0, |traced| traced.step_us);
        self.publish_stored(slot, publish, routes, (message, queued_us), retains);
        None
    }

    fn hand_on(
        &mut self,
        routes: Arc<Routes>,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
        retains: bool,
    ) {
        let routes = if retains { self.retain(&routes.broker, message) } else { routes };
        self.route(&routes, message, from);
    }

    /// Publishes a message that must be stored before it is acknowledged. Receivers get it at once, but with QoS 2
    /// only after the commit: before, a crash and a second try would deliver it twice.
    fn publish_stored(
        &mut self,
        slot: u32,
        publish: &Publish<'_>,
        routes: Arc<Routes>,
        (message, queued_us): (Arc<Message>, u64),
        retains: bool,
    ) {
        let from = Some(self.id_of(slot));
        // Among several pods retained messages have one order, that of their commits (P6).
        let is_ordered = retains && self.process.is_shared();
        // The store may refuse this message because of an earlier one that some receivers have not had (P4).
        let is_behind_refused = self.has_unconfirmed(slot);
        let connection = &mut self.connections[slot as usize];
        let is_behind = is_behind_refused || connection.uncommitted > 0;
        let deliver = publish.qos == QoS::ExactlyOnce || is_ordered || is_behind;
        connection.uncommitted += u32::from(deliver);
        let session = self.connections[slot as usize].session;
        let local = &self.sessions[session as usize];
        let publisher = record::publisher(local.session.client_id());
        let keeps_id = publish.qos == QoS::ExactlyOnce && local.persistent.is_some();
        let inbound = keeps_id.then(|| local.key());
        let ack = Ack {
            broker: routes.broker.id,
            connection: self.id_of(slot),
            session: self.target_of(session),
            qos: publish.qos,
            // QoS 0 has no acknowledgement.
            packet_id: publish.packet_id.unwrap_or(PacketId::MIN),
            keeps_id,
            in_order: deliver,
            publisher,
            holds_back: false,
        };
        self.meter(&routes.broker).left_with_store(message.size());
        let routes = if retains { self.retain(&routes.broker, &message) } else { routes };
        if !deliver {
            self.route(&routes, &message, from);
        }
        let wanted = if deliver || retains || self.process.is_shared() {
            None
        } else {
            routes.stored.wanted(&routes.matched.receivers)
        };
        let is_full = self.is_store_full_for(&routes.broker);
        let publish =
            jobs::Publish { message, routes, from, publisher, retains, deliver, inbound, wanted, queued_us };
        let write = Write::Publish(publish);
        self.note_reuse(&ack);
        self.store_jobs.queue.push(Job { write, ack: Some(ack) });
        if is_full && self.is_open(slot) {
            self.pause(self.id_of(slot), Paused::ForMailbox);
        }
    }

    /// The store has committed, or refused, the messages that these publishers wait for.
    //= [MQTT-4.3.2-4] [MQTT-4.3.3-8] v5
    pub(super) fn stored(&mut self, acks: &[Ack], stored: bool) {
        for ack in acks {
            if ack.in_order
                && let Some(connection) = self.connection_of(ack.connection)
            {
                connection.uncommitted -= 1;
            }
            if ack.qos == QoS::AtMostOnce {
                continue;
            }
            let local = self.sessions.get_mut(ack.session.slot as usize);
            let Some(local) = local.filter(|local| local.generation == ack.session.generation) else {
                if !stored {
                    self.note_refused(ack, NONE);
                }
                continue;
            };
            // A QoS 1 message is published anew on a new connection; the state of a QoS 2 message is the session's.
            let of_session = local.connection;
            if ack.keeps_id && stored && !local.session.keep_received(ack.packet_id) {
                // The client released the id before it got the server's answer.
                let (session, target) = (local.key(), ack.session);
                let ids = Ids { session, target, write: IdWrite::Forget(ack.packet_id), skipped_ids: false };
                self.leave_job(Write::Ids(Box::new(ids)));
            }
            let slot = match ack.qos {
                QoS::ExactlyOnce => of_session,
                _ => self
                    .connection_of(ack.connection)
                    // A closing connection no longer has its session: after DISCONNECT nothing may be sent.
                    .filter(|connection| connection.session == ack.session.slot)
                    .map_or(NONE, |_| ack.connection.slot),
            };
            self.acknowledge_stored(ack, slot, stored);
            if !stored {
                self.note_refused(ack, slot);
            }
        }
    }

    fn acknowledge_stored(&mut self, ack: &Ack, slot: u32, stored: bool) {
        if !stored {
            let broker = &self.sessions[ack.session.slot as usize].broker;
            self.broker_counters(broker).publish_store.add(1);
        }
        let session = &mut self.sessions[ack.session.slot as usize].session;
        if slot == NONE {
            if ack.qos == QoS::ExactlyOnce {
                session.received(ack.packet_id, stored);
            }
            return;
        }
        let (protocol, mut out, _) = parts!(self, slot);
        let (reason, what) = match stored {
            true => (ReasonCode::SUCCESS, ""),
            false => (
                ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
                "the message could not be stored: try again later",
            ),
        };
        if stored || protocol.version() == Version::V5 {
            let before = out.len();
            protocol.published(ack.qos, ack.packet_id, reason, what, session, &mut out);
            return out.note_answers(before);
        }
        // A 3.x client cannot get a reason code: without an acknowledgement it sends the message again.
        session.received(ack.packet_id, false);
        self.end(slot, Ended::Error(reason), true);
    }

    fn message_of(
        &mut self,
        routes: &Routes,
        publish: &Publish<'_>,
        traced: Option<&Traced>,
    ) -> Arc<Message> {
        let message = Message::new(
            routes.topic.clone(),
            publish.qos,
            publish.retain,
            publish.properties,
            publish.payload,
            self.now,
        );
        Arc::new(message.traced(traced.map(|traced| traced.trace)).received(self.take_timed()))
    }

    fn routes_of(&mut self, slot: u32, topic: &str) -> Arc<Routes> {
        let session = self.connections[slot as usize].session;
        let routes = self.routes.get(&self.sessions[session as usize].broker, topic);
        self.work.spend(self.routes.take_work());
        routes
    }

    /// Publishes a message that no connection sent just now and that is not stored: a will.
    pub(super) fn publish_from_server(&mut self, broker: &Arc<Broker>, message: &Arc<Message>) {
        let routes = self.routes.get(broker, message.topic());
        // If it cannot be retained, the current subscribers still get it.
        let retains = message.retain() && self.may_retain(broker, message);
        self.hand_on(routes, message, None, retains);
    }

    pub(super) fn route(&mut self, routes: &Arc<Routes>, message: &Arc<Message>, from: Option<ConnectionId>) {
        for (core, _) in &routes.cores {
            if *core == self.index {
                self.deliver_here(routes, message, from);
                continue;
            }
            self.post(*core, Mail::Publish { routes: routes.clone(), message: message.clone(), from });
            if let Some(from) = from {
                self.hold_up_for_mailbox(*core, from);
            }
        }
        if let Some(region) = &self.process.region {
            region.publish(routes, message);
        }
        // Where several pods share the store, only the commit knows which shared subscriptions have a stream.
        if self.process.is_shared() && message.qos() > QoS::AtMostOnce {
            return;
        }
        for group in routes.live_groups(message) {
            let Some(receiver) = self.pick_member(group) else { continue };
            self.deliver_shared(routes, receiver, message, from, group_id(group));
        }
    }

    fn may_publish(&self, slot: u32, topic: &str, publish: &Publish<'_>) -> Result<(), Refused> {
        let connection = &self.connections[slot as usize];
        let local = &self.sessions[connection.session as usize];
        let counters = self.broker_counters(&local.broker);
        if local.broker.is_over_cap() {
            counters.publish_spend_cap.add(1);
            return Err((ReasonCode::QUOTA_EXCEEDED, OVER_CAP));
        }
        if let Some((what, is_long)) = self.over_topic_limits(topic) {
            if is_long { &counters.publish_topic_bytes } else { &counters.publish_topic }.add(1);
            self.note_of(slot, Note::new(Kind::PublishRefused, topic, what));
            return Err((ReasonCode::TOPIC_NAME_INVALID, what));
        }
        if is_reserved(topic) || !self.may_send(slot, topic, publish.retain, publish.qos) {
            counters.publish_denied.add(1);
            let what = "not allowed to publish to this topic";
            self.note_of(slot, Note::new(Kind::PublishRefused, topic, what));
            return Err((ReasonCode::NOT_AUTHORIZED, what));
        }
        Ok(())
    }

    /// Why this server's limits refuse a topic or filter, and whether because of its bytes.
    pub(super) fn over_topic_limits(&self, topic: &str) -> Option<(&'static str, bool)> {
        let limits = &self.process.limits;
        let levels = usize::from(limits.topic_levels_max);
        if topic.len() > usize::from(limits.topic_bytes_max) {
            return Some(("the topic is too long", true));
        }
        let is_deep = topic.len() >= levels && topic.bytes().filter(|byte| *byte == b'/').count() >= levels;
        is_deep.then_some(("the topic has too many levels", false))
    }

    fn meter<'b>(&self, broker: &'b Broker) -> &'b UsageCounter {
        &broker.meters[usize::from(self.index)]
    }

    /// Counts received messages, `bytes` in all, and pauses their publisher when it is over its rate.
    fn count_received(&mut self, slot: u32, qos: QoS, count: usize, bytes: usize) {
        self.tracing.sampler.pass(count);
        self.connections[slot as usize].count_in(count, bytes);
        let connection = &self.connections[slot as usize];
        self.counters().protocol(connection.protocol.version()).received.add(count);
        let counters = self.broker_counters(&self.sessions[connection.session as usize].broker);
        match qos {
            QoS::AtMostOnce => counters.received_qos0.add(count),
            QoS::AtLeastOnce => counters.received_qos1.add(count),
            QoS::ExactlyOnce => counters.received_qos2.add(count),
        }
        if self.connections[slot as usize].is_limited {
            self.charge(slot, count, bytes);
        }
    }
}

/// True for topics that only the server publishes to: below `$SYS`, except the topic on which mosquitto's bridges
/// publish whether they are connected.
//= [MQTT-4.7.2-1] v5 v3.1.1
pub(super) fn is_reserved(topic: &str) -> bool {
    topic.as_bytes().first() == Some(&b'$')
        && topic::matches("$SYS/#", topic)
        && !topic::matches("$SYS/broker/connection/+/state", topic)
}
