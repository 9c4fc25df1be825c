//! Checks messages from clients, routes them, hands them to their receivers, and acknowledges them.
//!
//! QoS 0 has a fast path, in [`mod@runs`].

mod answered;
mod runs;

use std::sync::Arc;

use millrace_mqtt::{PacketId, Publish, QoS, ReasonCode, Version, topic};
use millrace_session::{Message, Publication};

use super::Core;
use super::connection::Paused;
use super::trace::Traced;
use crate::broker::{Broker, OVER_CAP};
use crate::connection_id::ConnectionId;
use crate::incidents::{NewIncident, StoredIncidentKind};
use crate::jobs;
use crate::jobs::{Job, PublishAck, Write};
use crate::mailbox::Mail;
use crate::metering::{Amount, UsageCounter};
use crate::quota::Limit;
use crate::routes::Routes;
use crate::traces::TraceStep;
pub(super) use runs::RunInProgress;

type PublishError = (ReasonCode, &'static str);

impl Core {
    pub(super) fn publish(&mut self, slot: u32, publication: &Publication<'_>) {
        let publish = &publication.publish;
        let topic = publication.topic.as_str();
        let size = topic.len() + publish.properties.as_bytes().len() + publish.payload.len();
        let mut traced = self.begin_trace(slot, topic, publish);
        self.count_received(slot, publish.qos, 1, size);
        self.pause_for_memory(self.id_of(slot));
        self.spend_rules(slot, topic);
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
            return Some((
                ReasonCode::QUOTA_EXCEEDED,
                "too many overlapping topic filters match the topic: its subscribers must use fewer",
            ));
        }
        // Only the store knows the subscribers on other pods.
        let is_shared = self.process.is_shared();
        if routes.is_empty() && !publish.retain && !is_shared {
            let size = Message::size_of(topic, publish.properties, publish.payload);
            self.usage(&routes.broker).received.add(Amount::of(size), 1);
            return Some((ReasonCode::NO_MATCHING_SUBSCRIBERS, ""));
        }
        let message = self.message_of(slot, &routes, publish, traced.as_deref());
        let mut retains = publish.retain;
        if retains && !self.may_retain(&routes.broker, &message) {
            let version = self.connections[slot as usize].protocol.version();
            if publish.qos > QoS::AtMostOnce && version == Version::V5 {
                let what = "a limit of retained messages is reached: remove some, or ask the operator";
                return Some((ReasonCode::QUOTA_EXCEEDED, what));
            }
            // A 3.x client gets no reason code, and the message is acknowledged: so the current subscribers still get
            // it.
            //= [MQTT-4.5.0-1] v3.1.1
            retains = false;
        }
        let is_stored = publish.qos > QoS::AtMostOnce && (is_shared || !routes.stored.streams.is_empty())
            || !routes.stored.webhooks.is_empty();
        let waits = self.connections[slot as usize].uncommitted > 0;
        if self.process.store.is_none() || !(retains || is_stored || waits) {
            message.set_position(None);
            self.usage(&routes.broker).received.add(Amount::of(message.size()), 1);
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

    /// Publishes a message that must be stored before it is acknowledged. Receivers get it at once, or only after the
    /// commit (until then `uncommitted` counts it), with QoS 2 because a crash before it and a second try would deliver it twice.
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
        let is_behind = self.has_unconfirmed(slot) || self.connections[slot as usize].uncommitted > 0;
        let waits_for_commit = publish.qos == QoS::ExactlyOnce || is_ordered || is_behind;
        self.connections[slot as usize].uncommitted += u32::from(waits_for_commit);
        let (publisher, session) = (self.publisher_of(slot), self.connections[slot as usize].session);
        let local = &self.sessions[session as usize];
        let keeps_id = publish.qos == QoS::ExactlyOnce && local.persistent.is_some();
        let ack = PublishAck {
            broker: routes.broker.id,
            connection: self.id_of(slot),
            session: self.target_of(session),
            qos: publish.qos,
            // QoS 0 has no acknowledgement.
            packet_id: publish.packet_id.unwrap_or(PacketId::MIN),
            keeps_id,
            waits_for_commit,
            publisher,
            holds_back: false,
        };
        let is_owned = self.process.is_shared() && local.epoch != 0;
        let fenced_from = ack.fenced_from_ms(is_owned, self.now_ms);
        let fence = fenced_from.map(|from_ms| jobs::Fence { session: local.key(), from_ms });
        self.usage(&routes.broker).submitted(message.size());
        let (routes, reserved) = self.retain_stored(routes, &message, retains);
        if !waits_for_commit {
            self.route(&routes, &message, from);
        }
        let may_settle = !(waits_for_commit || retains || self.process.is_shared());
        let skip_if = may_settle.then(|| routes.stored.skip_condition(&routes.matched.receivers)).flatten();
        let is_full = self.is_store_full_for(&routes.broker);
        self.note_reuse(&ack);
        let write = Write::Publish(jobs::PublishWrite {
            message,
            routes,
            from,
            publisher,
            retains,
            reserved,
            waits_for_commit,
            fence,
            skip_if,
            queued_us,
        });
        self.store_jobs.queue.push(Job { write, ack: Some(ack) });
        if is_full && self.is_open(slot) {
            self.pause(self.id_of(slot), Paused::ForRoom);
        }
    }

    fn message_of(
        &mut self,
        slot: u32,
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
            self.now_ms,
        );
        let message = message.published_by(self.publisher_of(slot)).traced(traced.map(|traced| traced.trace));
        Arc::new(message.received_at(self.take_timed()))
    }

    fn publisher_of(&self, slot: u32) -> u64 {
        let session = self.connections[slot as usize].session;
        self.sessions[session as usize].publisher
    }

    fn routes_of(&mut self, slot: u32, topic: &str) -> Arc<Routes> {
        let session = self.connections[slot as usize].session;
        let routes = self.routes.get(&self.sessions[session as usize].broker, topic);
        self.work.spend(self.routes.take_work());
        routes
    }

    /// For a message that no client of this loop publishes now, such as a will.
    pub(super) fn routes_to(&mut self, broker: &Arc<Broker>, topic: &str) -> Arc<Routes> {
        let routes = self.routes.get(broker, topic);
        self.work.spend(self.routes.take_work());
        routes
    }

    /// Publishes a will that is not stored.
    pub(super) fn publish_from_server(&mut self, broker: &Arc<Broker>, message: &Arc<Message>) {
        let routes = self.routes_to(broker, message.topic());
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
                self.note_mailed(routes, *core, from);
                self.pause_for_mailbox(*core, from);
            }
        }
        if let Some(region) = &self.process.region {
            region.publish(routes, message);
        }
        // Where several pods share the store, only the commit knows which shared subscriptions have a stream.
        if self.process.is_shared() && message.qos() > QoS::AtMostOnce {
            return;
        }
        self.share(routes, message, from);
    }

    fn may_publish(&self, slot: u32, topic: &str, publish: &Publish<'_>) -> Result<(), PublishError> {
        let connection = &self.connections[slot as usize];
        let local = &self.sessions[connection.session as usize];
        let counters = self.broker_counters(&local.broker);
        if local.broker.is_over_cap() {
            counters.publish_spend_cap.add(1);
            return Err((ReasonCode::QUOTA_EXCEEDED, OVER_CAP));
        }
        if let Some((what, is_long)) = self.over_topic_limits(topic) {
            if is_long { &counters.publish_topic_bytes } else { &counters.publish_topic }.add(1);
            self.note_of(slot, NewIncident::new(StoredIncidentKind::PublishRefused, topic, what));
            return Err((ReasonCode::TOPIC_NAME_INVALID, what));
        }
        if topic::is_reserved(topic) || !self.may_send(slot, topic, publish.retain, publish.qos) {
            counters.publish_denied.add(1);
            let what = "not allowed to publish to this topic";
            self.note_of(slot, NewIncident::new(StoredIncidentKind::PublishRefused, topic, what));
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
        let is_deep = topic.len() >= levels && topic::levels(topic.as_bytes()) > levels;
        is_deep.then_some(("the topic has too many levels", false))
    }

    fn usage<'b>(&self, broker: &'b Broker) -> &'b UsageCounter {
        &broker.meters[usize::from(self.index)]
    }

    /// Counts received messages, `bytes` in all, and pauses their publisher when it is over its rate.
    fn count_received(&mut self, slot: u32, qos: QoS, count: usize, bytes: usize) {
        self.pass_samples(count);
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

#[cfg(test)]
mod tests;
