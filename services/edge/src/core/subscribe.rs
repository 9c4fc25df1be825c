//! SUBSCRIBE and UNSUBSCRIBE.

use millrace_layers::limits::{NAME_BYTES_MAX, SUBSCRIPTIONS_MAX};
use millrace_layers::streams::Source;
use millrace_layers::subscriptions::{NO_STREAM, Options, Subscribed};
use millrace_mqtt::topic::Filter;
use millrace_mqtt::{
    PacketId, Property, QoS, ReasonCode, RetainHandling, Subscribe, SubscribeOptions, Unsubscribe, Version,
};
use millrace_router::{Edit, Target};
use millrace_session::Subscription;
use smallvec::SmallVec;

use super::kept::KeptSource;
use super::resume::routed;
use super::retained::Replay;
use super::{Core, Ended, Homed, OutboundSlot, parts};
use crate::incidents::{Kind, Note};
use crate::quota::Limit;
use crate::store::{self, PendingSubscribe, Write};

/// The reasons of one packet; most have one filter.
type Reasons = SmallVec<[ReasonCode; 4]>;

impl Core {
    /// Makes the subscriptions that are allowed, answers, and sends what is retained.
    pub(super) fn subscribe(&mut self, slot: u32, subscribe: &Subscribe<'_>) {
        let identifier = subscribe.properties.iter().find_map(|property| match property {
            Property::SubscriptionIdentifier(identifier) => Some(identifier),
            _ => None,
        });
        let identifier = identifier.unwrap_or(0);
        let session = self.connections[slot as usize].session;
        let target = self.target_of(session);
        let broker = self.sessions[session as usize].broker.clone();
        let checked: SmallVec<[(&str, SubscribeOptions, ReasonCode); 4]> = subscribe
            .filters
            .clone()
            .map(|(text, options)| match self.may_subscribe(slot, text, options.qos) {
                Ok(qos) => (text, SubscribeOptions { qos, ..options }, ReasonCode(qos as u8)),
                Err(reason) => (text, options, reason),
            })
            .collect();
        let mut reasons = Reasons::new();
        let mut replays: SmallVec<[Replay; 2]> = SmallVec::new();
        let mut filters: Vec<(Box<str>, Options, usize)> = Vec::new();
        let mut unkept: Vec<Box<str>> = Vec::new();
        let is_shared = self.process.store.is_some() && self.process.is_shared();
        let homed = &mut self.sessions[session as usize];
        let is_kept = homed.kept.is_some();
        let mut reached = None;
        let session_max =
            broker.quota.subscriptions_per_session_max(self.process.limits.subscriptions_per_session_max);
        let mut room = broker.quota.subscriptions_max().saturating_sub(broker.router.subscriptions() as u64);
        // Held until the snapshot is taken, see `Broker::retained_gate`.
        let gate = broker.retained_gate();
        //= [MQTT-3.8.4-5] [MQTT-3.8.4-3] v5
        //= [MQTT-3.8.4-4] [MQTT-3.8.4-3] v3.1.1
        broker.router.edit(|edit| {
            for (text, options, reason) in checked {
                let reason = if reason.is_error() {
                    reason
                } else {
                    let mut limit = session_max as usize;
                    let mut fits = true;
                    if is_kept {
                        limit = limit.min(SUBSCRIPTIONS_MAX);
                        fits = text.len() <= NAME_BYTES_MAX;
                        let bits = options.to_bits(Version::V5);
                        filters.push((text.into(), Options { bits, identifier }, reasons.len()));
                    }
                    let is_new = homed.session.subscription(text).is_none();
                    if !fits || is_new && (room == 0 || homed.session.subscriptions_len() >= limit) {
                        filters.pop();
                        let limit =
                            if room == 0 { Limit::BrokerSubscriptions } else { Limit::ClientSubscriptions };
                        reached = fits.then_some(limit).or(reached);
                        broker.counters[usize::from(self.index)].subscribe_quota.add(1);
                        ReasonCode::QUOTA_EXCEEDED
                    } else {
                        if is_shared && !is_kept && is_new {
                            unkept.push(text.into());
                        }
                        room -= u64::from(is_new);
                        add(edit, homed, target, text, Subscription { options, identifier }, &mut replays);
                        reason
                    }
                };
                reasons.push(reason);
            }
        });
        if let Some(limit) = reached {
            self.reached(slot, limit);
        }
        self.tell_members(&broker, subscribe.filters.clone().map(|(filter, _)| filter));
        let told = self.tell_filters(&broker, subscribe.filters.clone().map(|(filter, _)| filter));
        let retained = (!replays.is_empty() && !is_shared).then(|| broker.retained.snapshot());
        drop(gate);
        // Among several pods the store has what is retained.
        let mut shared: Vec<Box<str>> = Vec::new();
        if is_shared && !is_kept {
            let filters = subscribe.filters.clone().map(|(filter, _)| filter);
            shared.extend(filters.filter(|filter| filter.starts_with("$share/")).map(Into::into));
        }
        let asks = is_shared && !(replays.is_empty() && shared.is_empty());
        let pending = PendingSubscribe {
            packet_id: subscribe.packet_id,
            reasons,
            replays,
            retained,
            retained_through: None,
            asks,
            unkept,
            is_refused: false,
            told,
        };
        if filters.is_empty() && !asks {
            for (filter, _) in subscribe.filters.clone().filter(|(filter, _)| filter.starts_with("$share/")) {
                self.join(&broker, filter);
            }
            return self.suback_when_heard(slot, &broker, pending);
        }
        let homed = &mut self.sessions[session as usize];
        if let Some(kept) = &mut homed.kept {
            kept.subscribing += 1;
        }
        if asks {
            homed.fresh.get_or_insert_default().asking += 1;
        }
        let subscribe = store::Subscribe { session: homed.key(), target, filters, shared, pending };
        self.leave_job(Write::Subscribe(Box::new(subscribe)));
    }

    /// SUBACK, then what is retained.
    pub(super) fn answer_subscribe(&mut self, slot: u32, pending: PendingSubscribe) {
        let (protocol, mut out, _) = parts!(self, slot);
        protocol.subscribed(pending.packet_id, &pending.reasons, &mut out);
        if let Some(retained) = pending.retained {
            self.replay(slot, &retained, &pending.replays);
        }
        let session = self.connections[slot as usize].session;
        if let Some(through) = pending.retained_through {
            let fresh = self.sessions[session as usize].fresh.get_or_insert_default();
            fresh.replayed(&pending.replays, through, self.now);
        }
        if pending.asks {
            self.go_on_fresh(session);
        }
    }

    /// The retained messages of a SUBSCRIBE have been read: what was held for them comes after them.
    fn go_on_fresh(&mut self, session: u32) {
        let homed = &mut self.sessions[session as usize];
        let Some(fresh) = &mut homed.fresh else { return };
        fresh.asking -= 1;
        let (broker, held) = (homed.broker.clone(), fresh.release());
        for (message, receiver) in held {
            self.deliver_one(&broker, &receiver, &message, None, 0);
        }
    }

    /// Subscriptions are durable, or could not be stored.
    pub(super) fn subscribed(&mut self, subscribe: store::Subscribe, subscribed: &[Option<Subscribed>]) {
        let store::Subscribe { target, filters, mut pending, .. } = subscribe;
        let Some(homed) = self.sessions.get_mut(target.slot as usize) else { return };
        if homed.generation != target.generation {
            return;
        }
        let broker = homed.broker.clone();
        let shared: Vec<Box<str>> =
            filters.iter().map(|(filter, ..)| filter.clone()).filter(|f| f.starts_with("$share/")).collect();
        let Some(kept) = &mut homed.kept else {
            let slot = homed.connection;
            if pending.is_refused {
                self.end_unkept(target, &mut pending);
                return self.answer_subscribe(slot, pending);
            }
            for filter in
                homed.session.subscriptions().map(|(filter, _)| filter.into()).collect::<Vec<Box<str>>>()
            {
                self.join(&broker, &filter);
            }
            return self.answer_subscribe(slot, pending);
        };
        let was_live = kept.is_live();
        let mut is_more = false;
        for ((filter, _, place), subscribed) in filters.into_iter().zip(subscribed) {
            match subscribed {
                Some(Subscribed { stream, since, .. }) => {
                    // It may have been given up meanwhile.
                    let is_read = *stream != NO_STREAM && !filter.starts_with("$share/");
                    if is_read && homed.session.subscription(&filter).is_some() {
                        if let (Some(subscription), Some(parsed)) =
                            (homed.session.subscription(&filter), Filter::parse(&filter))
                        {
                            broker.router.subscribe(parsed, routed(target, subscription, true));
                        }
                        let source = Source { stream: *stream, since: *since };
                        if !kept.has_source(&filter, source) {
                            kept.add_source(KeptSource { filter, source }, self.handed_over);
                            is_more = true;
                        }
                    }
                }
                None => {
                    pending.reasons[place] = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
                    pending.replays.retain(|replay| replay.filter != filter);
                    let is_known = kept.filters().any(|known| *known == *filter);
                    if !is_known
                        && homed.session.unsubscribe(&filter)
                        && let Some(filter) = Filter::parse(&filter)
                    {
                        broker.router.unsubscribe(filter, target);
                    }
                }
            }
        }
        kept.unanswered.push(pending);
        if is_more && was_live {
            // Answered when the session is live again: then its client has nothing to wait for.
            self.hold_behind_fence(target.slot);
        } else {
            self.answer_subscribes(target.slot);
            if is_more {
                self.hold_behind_fence(target.slot);
            } else {
                self.deliver_held(target.slot);
                self.read_on(target.slot);
            }
        }
        for filter in shared {
            self.join(&broker, &filter);
        }
    }

    /// New subscriptions of a session that is not kept end: the store cannot say what is retained for them (P6), or who else shares
    /// them. One that was there before stays, and is answered so too.
    fn end_unkept(&mut self, target: Target, pending: &mut PendingSubscribe) {
        let homed = &mut self.sessions[target.slot as usize];
        let broker = homed.broker.clone();
        for reason in pending.reasons.iter_mut().filter(|reason| !reason.is_error()) {
            *reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
        }
        pending.replays.clear();
        for filter in &pending.unkept {
            homed.session.unsubscribe(filter);
            if let Some(filter) = Filter::parse(filter) {
                broker.router.unsubscribe(filter, target);
            }
        }
        self.tell_members(&broker, pending.unkept.iter().map(|filter| &**filter));
    }

    /// Answers the SUBSCRIBE packets that are durable.
    pub(super) fn answer_subscribes(&mut self, session: u32) {
        let homed = &mut self.sessions[session as usize];
        let slot = homed.connection;
        let Some(kept) = &mut homed.kept else { return };
        let unanswered = std::mem::take(&mut kept.unanswered);
        kept.subscribing -= u32::try_from(unanswered.len()).unwrap_or(u32::MAX);
        for pending in unanswered {
            self.answer_subscribe(slot, pending);
        }
        self.deliver_unstored(session);
    }

    /// The QoS that a subscription to a filter is granted, or why it is none.
    fn may_subscribe(&self, slot: u32, text: &str, qos: QoS) -> Result<QoS, ReasonCode> {
        let connection = &self.connections[slot as usize];
        let homed = &self.sessions[connection.session as usize];
        let counters = self.broker_counters(&homed.broker);
        let levels = text.bytes().filter(|byte| *byte == b'/').count() + 1;
        let Some(filter) =
            Filter::parse(text).filter(|_| levels <= usize::from(self.process.limits.topic_levels_max))
        else {
            counters.subscribe_invalid.add(1);
            return Err(ReasonCode::TOPIC_FILTER_INVALID);
        };
        let granted = self.may_receive(slot, filter.filter, qos);
        if granted.is_none() {
            counters.subscribe_denied.add(1);
            let what = "not allowed to subscribe to this filter";
            self.note_of(slot, Note::new(Kind::SubscribeRefused, text, what));
        }
        granted.ok_or(ReasonCode::NOT_AUTHORIZED)
    }

    /// Ends subscriptions and answers. Messages that were on their way to the session still arrive.
    pub(super) fn unsubscribe(&mut self, slot: u32, unsubscribe: &Unsubscribe<'_>) {
        self.end_subscriptions(slot, &unsubscribe.filters, Some(unsubscribe.packet_id));
    }

    /// Ends subscriptions, for an UNSUBSCRIBE or because the client may not have them any more.
    pub(super) fn end_subscriptions<'f>(
        &mut self,
        slot: u32,
        filters: &(impl Iterator<Item = &'f str> + Clone),
        packet_id: Option<PacketId>,
    ) {
        let session = self.connections[slot as usize].session;
        let target = self.target_of(session);
        let homed = &mut self.sessions[session as usize];
        let broker = homed.broker.clone();
        let mut reasons = Reasons::new();
        //= [MQTT-3.10.4-1] v5 v3.1.1
        broker.router.edit(|edit| {
            for text in filters.clone() {
                let existed = homed.session.unsubscribe(text);
                if existed && let Some(filter) = Filter::parse(text) {
                    edit.unsubscribe(filter, target);
                }
                reasons.push(if existed { ReasonCode::SUCCESS } else { ReasonCode::NO_SUBSCRIPTION_EXISTED });
            }
        });
        self.tell_members(&broker, filters.clone());
        let homed = &mut self.sessions[session as usize];
        if let Some(kept) = &mut homed.kept {
            let filters: Vec<Box<str>> = filters.clone().map(Into::into).collect();
            kept.end_sources(&filters, homed.session.entries());
            let session = homed.key();
            let unsubscribe = store::Unsubscribe { session, target, filters, packet_id, reasons };
            return self.leave_job(Write::Unsubscribe(Box::new(unsubscribe)));
        }
        let Some(packet_id) = packet_id else { return };
        let (protocol, mut out, _) = parts!(self, slot);
        protocol.unsubscribed(packet_id, &reasons, &mut out);
    }

    /// Subscriptions are gone from the store, or could not be removed.
    pub(super) fn unsubscribed(&mut self, unsubscribe: store::Unsubscribe, stored: bool) {
        let store::Unsubscribe { target, packet_id, mut reasons, .. } = unsubscribe;
        // What the server ends is looked at again when the session comes back.
        let Some(packet_id) = packet_id else { return };
        let Some(homed) = self.sessions.get_mut(target.slot as usize) else { return };
        if homed.generation != target.generation {
            return;
        }
        let slot = homed.connection;
        if !stored {
            let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
            // A 3.x client cannot be told: without an answer it does not take the subscription for gone.
            if self.connections[slot as usize].protocol.version() != Version::V5 {
                return self.end(slot, Ended::Error(reason), true);
            }
            reasons.iter_mut().for_each(|each| *each = reason);
        }
        let (protocol, mut out, _) = parts!(self, slot);
        protocol.unsubscribed(packet_id, &reasons, &mut out);
    }

    pub(super) fn target_of(&self, session: u32) -> Target {
        let generation = self.sessions[session as usize].generation;
        Target { core: self.index, slot: session, generation }
    }
}

/// Adds or replaces one subscription.
fn add(
    edit: &mut Edit<'_>,
    homed: &mut Homed,
    target: Target,
    text: &str,
    subscription: Subscription,
    replays: &mut SmallVec<[Replay; 2]>,
) {
    let Some(filter) = Filter::parse(text) else { return };
    let SubscribeOptions { qos, retain_handling, .. } = subscription.options;
    let identifier = subscription.identifier;
    // Not kept before the store has it.
    edit.subscribe(filter, routed(target, &subscription, false));
    let is_new = homed.session.subscribe(text, subscription);
    //= [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11] v5
    //= [MQTT-3.3.1-6] v3.1.1
    let wanted = match retain_handling {
        RetainHandling::Send => true,
        RetainHandling::SendIfNew => is_new,
        RetainHandling::DoNotSend => false,
    };
    // A shared subscription gets no retained messages (MQTT 5.0 section 4.8.2).
    if wanted && filter.share.is_none() {
        replays.push(Replay { filter: filter.filter.into(), qos, identifier });
    }
}
