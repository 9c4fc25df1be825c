//! Turns notices of other pods into mail for the event loops, on the fabric's thread, which must never block. A notice may be
//! lost: then persistent sessions look into the store, and pods ask each other anew for digests and members of groups. A `Traced`
//! notice precedes the message that it belongs to, and has a checksum of it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

use millrace_fabric::{Gap, Health, MessageBatch, PodId, Sink, To};
use millrace_router::Snapshot;
use millrace_session::{Message, StoredPosition, Trace};

use super::coming::AnnouncedTrace;
use super::core_mail::CoreMail;
use super::matching::{Matching, count_dropped};
use super::members::GoneMembers;
use super::wire::PodNotice;
use super::{PodNetwork, record};
use crate::broker::Broker;
use crate::deliveries::CommittedMessage;
use crate::elsewhere::{AnnouncedDigest, is_here};
use crate::mailbox::Mail;
use crate::routes::Routes;
use crate::streams::group_id;
use crate::traces::{About, TraceStep};

/// Most times that a message for a member of a shared subscription is passed on, because the member has left.
const HOPS_MAX: u8 = 3;

pub(super) struct FabricSink(pub(super) Weak<PodNetwork>);

impl Sink for FabricSink {
    fn receive(&self, batch: &MessageBatch) {
        if let Some(region) = self.0.upgrade() {
            region.receive(batch);
        }
    }

    fn gap(&self, gap: &Gap) {
        let Some(region) = self.0.upgrade() else { return };
        let from = gap.from.map(tracing::field::display);
        tracing::debug!(from, missing = gap.missing, "messages of another pod are missing");
        region.digests_missing(gap.to, gap.from);
        match gap.to {
            To::Broker(broker) | To::BrokerOnPod { broker, .. } => {
                region.look_around(Some(broker));
                region.members().missed(Some(broker), gap.from);
            }
            To::Pod(_) => {
                region.look_for_notices();
                region.members().missed(None, gap.from);
            }
            To::Pods | To::Group { .. } => {}
        }
    }

    fn joined(&self, to: To, _complete: bool) {
        let Some(region) = self.0.upgrade() else { return };
        match to {
            To::Broker(broker) => {
                region.ask(broker, to);
                region.opened(broker);
            }
            To::BrokerOnPod { broker, .. } => region.opened(broker),
            To::Pod(_) | To::Pods | To::Group { .. } => {}
        }
    }

    fn pod_came(&self, pod: PodId, name: &str, is_new: bool) {
        let Some(region) = self.0.upgrade() else { return };
        tracing::info!(pod = name, "another pod is there");
        region.members().came(pod, name);
        region.joins.pod_came();
        region.digests_of_pod(pod, is_new);
        // A new pod announces its members by itself.
        if !is_new {
            for broker in region.brokers.all() {
                region.ask(broker.id, To::Pod(pod));
            }
            region.look_around(None);
            region.look_for_notices();
        }
    }

    fn pod_gone(&self, pod: PodId) {
        let Some(region) = self.0.upgrade() else { return };
        tracing::warn!(%pod, "another pod is gone or unreachable");
        let gone = region.members().gone(pod, |broker| region.brokers.peek(broker));
        gone.into_iter().for_each(GoneMembers::remove);
        region.digests_of_pod_gone(pod);
        region.look_around(None);
    }

    fn health_changed(&self, health: &Health) {
        if let Some(region) = self.0.upgrade() {
            region.digests_after_outage(health.connected);
        }
    }
}

impl PodNetwork {
    fn receive(&self, batch: &MessageBatch) {
        let mut cores = CoreMail::new(self);
        let mut matching = self.matching.lock().unwrap_or_else(PoisonError::into_inner);
        let broker = match batch.to() {
            To::Broker(broker) | To::BrokerOnPod { broker, .. } => self.brokers.peek(broker),
            _ => None,
        };
        let (mut grown, mut added) = (None, None);
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        for bytes in batch.messages() {
            match (PodNotice::decode(bytes), &broker) {
                (Some(PodNotice::Message(entry)), Some(broker)) => {
                    self.message(&mut cores, &mut matching, broker, entry, None, coming.take(entry));
                }
                (Some(PodNotice::Retained { position: at, entry }), Some(broker)) => {
                    self.message(&mut cores, &mut matching, broker, entry, Some(at), coming.take(entry));
                }
                (Some(PodNotice::Run { is_v5, count, topic, bytes }), Some(broker)) => {
                    let Some(routes) = self.matched(&mut matching, broker, topic, count) else { continue };
                    self.count_received(&routes, count);
                    cores.post_run(&routes, bytes, is_v5);
                }
                (Some(PodNotice::Grown(topic)), Some(broker)) => {
                    let Some(routes) = self.matched(&mut matching, broker, topic, 0) else { continue };
                    // In a batch of one publisher, consecutive notices are often of one topic; one is enough.
                    if !grown.replace(routes.clone()).is_some_and(|last| Arc::ptr_eq(&last, &routes)) {
                        self.grew(&mut cores, &routes);
                    }
                }
                (Some(PodNotice::Committed { position, sender, entry }), Some(broker)) => {
                    let (from, entry) = ((batch.from(), sender), (entry, coming.take(entry)));
                    self.is_committed(&mut cores, &mut matching, broker, (position, from), entry);
                }
                (Some(PodNotice::Shared { broker, hops, name, filter, entry }), _) => {
                    if let Some(broker) = self.brokers.peek(broker) {
                        let entry = (entry, coming.take(entry));
                        self.shared(&mut cores, &mut matching, &broker, (name, filter), entry, hops);
                    }
                }
                (Some(PodNotice::Traced { check, trace_id, span_id, sent_ns }), _)
                    if self.tracer.is_some() =>
                {
                    let started_us = self.clock.micros();
                    let trace = Trace { trace_id, span_id, parent: None, started_us };
                    coming.push(check, AnnouncedTrace { trace, sent_ns });
                }
                (Some(PodNotice::Cleared { at, topic }), Some(broker)) => broker.clear_at(topic, at),
                (Some(PodNotice::Unclaimed { stream }), Some(broker)) => {
                    self.with_notices(|notices| notices.unclaimed((broker.id, stream)));
                }
                (Some(PodNotice::Digest { version, says, digest }), Some(broker)) => {
                    self.digest_said(batch.from(), broker, version, AnnouncedDigest::decode(says, digest));
                }
                (Some(PodNotice::Added { version, codes }), Some(broker)) => {
                    self.filters_added(batch.from(), broker, version, codes);
                    added = Some((broker.id, version));
                }
                (Some(PodNotice::Confirmed { version }), Some(broker)) => {
                    self.pod_confirmed(batch.from(), broker, version);
                }
                (Some(note), _) => self.receive_notice(batch.from(), note),
                (None, _) => {
                    tracing::debug!(pod = %batch.from(), "another pod said what this version does not know");
                }
            }
        }
        cores.deliver();
        if let Some((broker, version)) = added {
            self.confirm(batch.from(), broker, version);
        }
    }

    fn message(
        &self,
        cores: &mut CoreMail<'_>,
        matching: &mut Matching,
        broker: &Arc<Broker>,
        entry: &[u8],
        position: Option<StoredPosition>,
        traced: Option<AnnouncedTrace>,
    ) {
        let Some(message) = self.decoded(entry, position, traced) else { return };
        self.trace_arrival(broker, &message, traced);
        // `$SYS` topics have no position: each pod has its own.
        let position = position.filter(|_| message.is_retained());
        // A new subscriber reads retained messages from the store; this copy serves inquiries about the broker.
        let subscriptions = position.map(|position| broker.retain_at(&message, position));
        let (topic, subscriptions) = (message.topic(), subscriptions.as_deref());
        let Some(routes) = self.matched_at(matching, broker, topic, subscriptions, 1) else { return };
        if !message.retain() {
            self.count_received(&routes, 1);
        }
        for (core, _) in &routes.cores {
            let (routes, message) = (routes.clone(), message.clone());
            cores.post(*core, Mail::Publish { routes, message, from: None });
        }
    }

    /// `None`: the `count` messages are dropped.
    fn matched(
        &self,
        matching: &mut Matching,
        broker: &Arc<Broker>,
        topic: &str,
        count: u32,
    ) -> Option<Arc<Routes>> {
        self.matched_at(matching, broker, topic, None, count)
    }

    fn matched_at(
        &self,
        matching: &mut Matching,
        broker: &Arc<Broker>,
        topic: &str,
        subscriptions: Option<&Snapshot>,
        count: u32,
    ) -> Option<Arc<Routes>> {
        let routes = matching.get(broker, topic, subscriptions, count);
        if routes.is_none() {
            self.dropped.fetch_add(count.into(), Ordering::Relaxed);
        }
        routes
    }

    /// Gives each broker a new share of the fabric's thread. Messages beyond the old share were dropped, so sessions are notified to
    /// read the store before this thread, which waits for the lock, hands them a later copy.
    pub(super) fn begin_second_of_matching(&self) {
        let mut matching = self.matching.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, dropped) in matching.begin_second() {
            if let Some(broker) = self.brokers.peek(id).filter(|_| dropped > 0) {
                count_dropped(&broker, dropped, self.clock.unix_now_ms());
            }
            self.look_around(Some(id));
        }
    }

    fn count_received(&self, routes: &Routes, count: u32) {
        self.received.fetch_add(count.into(), Ordering::Relaxed);
        // The sender's digest of this pod matched falsely or is old.
        if routes.cores.is_empty() {
            self.needless.fetch_add(count.into(), Ordering::Relaxed);
        }
    }

    fn grew(&self, cores: &mut CoreMail<'_>, routes: &Arc<Routes>) {
        self.grew_for_groups(routes);
        for core in routes.cores_that_keep() {
            cores.post(core, Mail::Grown(routes.clone()));
        }
    }

    fn grew_for_groups(&self, routes: &Routes) {
        // The other pod may not know that this group is persistent.
        if routes.matched.groups.iter().any(|group| group.has_online(is_here)) {
            self.with_notices(|notices| notices.grown(&routes.broker, &routes.topic));
        }
    }

    /// While the pod is not there, an earlier message of the sender may be lost without a gap (P4).
    fn is_committed(
        &self,
        cores: &mut CoreMail<'_>,
        matching: &mut Matching,
        broker: &Arc<Broker>,
        (position, (pod, sender)): (StoredPosition, (PodId, u64)),
        (entry, traced): (&[u8], Option<AnnouncedTrace>),
    ) {
        let Some((message, publisher)) = record::decode_entry(entry, &self.clock) else { return };
        message.set_position(Some(position));
        let message = message.traced(traced.map(|traced| traced.trace));
        self.trace_arrival(broker, &message, traced);
        let Some(routes) = self.matched(matching, broker, message.topic(), 0) else { return };
        if !self.is_there(pod) {
            return self.grew(cores, &routes);
        }
        self.grew_for_groups(&routes);
        let committed = Arc::new(CommittedMessage { routes, message: Arc::new(message), publisher, sender });
        for core in committed.routes.cores_that_keep() {
            cores.post(core, Mail::Committed(committed.clone()));
        }
    }

    fn shared(
        &self,
        cores: &mut CoreMail<'_>,
        matching: &mut Matching,
        broker: &Arc<Broker>,
        (name, filter): (&str, &str),
        (entry, traced): (&[u8], Option<AnnouncedTrace>),
        hops: u8,
    ) {
        let Some(message) = self.decoded(entry, None, traced) else { return };
        self.trace_arrival(broker, &message, traced);
        let Some(routes) = self.matched(matching, broker, message.topic(), 1) else { return };
        let mut groups = routes.matched.groups.iter();
        let Some(group) = groups.find(|group| group.name() == name && group.filter() == filter) else {
            return;
        };
        if let Some(receiver) = group.pick_online(is_here) {
            let (core, group) = (receiver.target.core, group_id(group));
            cores.post(core, Mail::Shared { routes: routes.clone(), receiver, message, from: None, group });
        } else if let Some(receiver) = group.pick_online(|_| hops < HOPS_MAX) {
            // The member has left since; if none is left anywhere, nobody gets the message.
            self.share_again(broker, group, &receiver, &message, hops + 1);
        }
    }

    /// A retained message has a position among the others.
    fn decoded(
        &self,
        entry: &[u8],
        position: Option<StoredPosition>,
        traced: Option<AnnouncedTrace>,
    ) -> Option<Arc<Message>> {
        let (message, _) = record::decode_entry(entry, &self.clock)?;
        message.set_position(position);
        Some(Arc::new(message.traced(traced.map(|traced| traced.trace))))
    }

    fn trace_arrival(&self, broker: &Broker, message: &Message, traced: Option<AnnouncedTrace>) {
        if let (Some(AnnouncedTrace { trace, sent_ns }), Some(tracer)) = (traced, &self.tracer) {
            let came_ns = self.clock.unix_ns(self.clock.micros()).max(sent_ns);
            tracer.step_ns(
                &trace,
                TraceStep::Fabric,
                (sent_ns, came_ns),
                About::message(&broker.name, message),
            );
        }
    }

    fn receive_notice(&self, from: PodId, note: PodNotice<'_>) {
        match note {
            // Later the pod would have members that nobody removes.
            PodNotice::Members { .. } | PodNotice::AllMembers { .. } if self.digests.is_gone(from) => {}
            PodNotice::Members { broker, count, name, filter } => {
                if let Some(broker) = self.brokers.peek(broker) {
                    let group = (name.into(), filter.into());
                    self.members().set_theirs(from, &broker, group, count, self.clock.now());
                }
            }
            PodNotice::AllMembers { broker } => {
                self.members().all_theirs_follow(from, broker, self.clock.now());
            }
            PodNotice::AskMembers { broker } => self.members_asked(from, broker),
            PodNotice::Notices => self.look_for_notices(),
            PodNotice::AskDigest { broker, known } => self.digest_asked(from, broker, known),
            PodNotice::NoBroker { broker } => self.broker_absent(from, broker),
            PodNotice::Sent { sent_ns } => self.time_came(sent_ns),
            PodNotice::AskClients { number, broker, question } => {
                self.asked_for_clients(from, number, broker, question);
            }
            PodNotice::Clients { number, answer } => self.receive_clients(from, number, answer),
            PodNotice::ClientTrace { number, report } => self.receive_trace_report(from, number, report),
            // The broker is not open here.
            PodNotice::Message(_)
            | PodNotice::Retained { .. }
            | PodNotice::Cleared { .. }
            | PodNotice::Run { .. }
            | PodNotice::Grown(_)
            | PodNotice::Committed { .. }
            | PodNotice::Unclaimed { .. }
            | PodNotice::Digest { .. }
            | PodNotice::Added { .. }
            | PodNotice::Confirmed { .. }
            | PodNotice::Traced { .. }
            | PodNotice::Shared { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
