//! Ends a SUBSCRIBE whose filters are all routed: submits them to the store if it must know, then SUBACK and retained messages.

use std::sync::Arc;

use millrace_mqtt::{QoS, ReasonCode, SubscribeOptions};
use millrace_session::ClientSubscription;

use super::read_filters::FiltersToAdd;
use super::{Reasons, SubscribeInProgress};
use crate::core::deliver::Publisher;
use crate::core::new_subscriptions::HeldForReceiver;
use crate::core::persistent::PersistentSession;
use crate::core::unanswered::Unanswered;
use crate::core::{Core, LocalSession, parts, work};
use crate::jobs::{self, PendingSubscribe, Write};

impl PersistentSession {
    pub(super) fn end_subscribes(&mut self, count: u32) {
        self.subscribing -= count;
        if self.subscribing == 0 {
            self.unanswered_by_store.read_from = None;
        }
    }
}

impl LocalSession {
    pub(super) fn unanswered_by_store(&mut self) -> Option<&mut Unanswered> {
        match (&mut self.persistent, &mut self.new_subscriptions) {
            (Some(persistent), _) => Some(&mut persistent.unanswered_by_store),
            (None, Some(new)) => Some(&mut new.unanswered_by_store),
            (None, None) => None,
        }
    }
}

impl Core {
    /// Notes that the filters which the last turn granted wait for the store: until it has answered, the refusal of an earlier
    /// SUBSCRIBE does not end them.
    pub(super) fn expect_answer(&mut self, slot: u32, subscribe: &mut SubscribeInProgress) {
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
    pub(super) fn finish_subscribe(&mut self, slot: u32, mut subscribe: SubscribeInProgress) {
        let session = self.connections[slot as usize].session;
        let is_shared = self.process.store.is_some() && self.process.is_shared();
        let asks_store = is_shared && !(subscribe.pending.replays.is_empty() && subscribe.shared.is_empty());
        let local = &self.sessions[session as usize];
        if asks_store || local.persistent.is_some() || local.new_subscriptions.is_some() {
            self.expect_answer(slot, &mut subscribe);
        }
        let SubscribeInProgress { read, mut stored, shared, holds, mut pending, .. } = subscribe;
        let FiltersToAdd { filters, places, .. } = read;
        pending.asks_store = asks_store;
        let target = self.target_of(session);
        let broker = self.sessions[session as usize].broker.clone();
        self.work.spend((filters.len() / work::FREED_FILTERS) as u64);
        pending.requested_qos = filters.iter().map(|(_, options)| options.qos).collect();
        pending.places = places;
        let local = &mut self.sessions[session as usize];
        match &mut local.persistent {
            // The count of `hold_for_replay` ends; if the store must answer, `subscribing` counts that below.
            Some(persistent) => persistent.end_subscribes(u32::from(holds)),
            None => pending.holds = holds,
        }
        if stored.is_empty() && !pending.asks_store {
            if let Some(new) = &mut local.new_subscriptions {
                for (filter, granted) in std::mem::take(&mut pending.in_memory) {
                    new.unanswered_by_store.remove(pending.number, &filter, Some(granted));
                }
            }
            // If the SUBSCRIBE took several turns, the session has held messages, or put off a page.
            self.deliver_held(session);
            self.read_on(session);
            return self.suback_when_confirmed(slot, &broker, pending);
        }
        self.flag_due(&broker, &pending.replays, &mut stored);
        let local = &mut self.sessions[session as usize];
        if pending.asks_store {
            let new = local.new_subscriptions.get_or_insert_default();
            new.reading += 1;
            // No retained messages are read for a session that has ended.
            pending.asker = Arc::downgrade(&new.asker);
        }
        if let Some(persistent) = &mut local.persistent {
            let base = persistent.base(self.following.handed_over);
            persistent.unanswered_by_store.read_from = Some(base);
            persistent.subscribing += 1;
        }
        stored.shrink_to_fit();
        let subscribe = jobs::SubscribeWrite::new(local.key(), target, stored, shared, pending);
        self.queue_job(Write::Subscribe(Box::new(subscribe)));
        self.pause_for_store(slot);
    }

    pub(in crate::core) fn answer_subscribe(&mut self, slot: u32, pending: PendingSubscribe) {
        let reasons: Reasons = pending
            .places
            .iter()
            .map(|(place, qos)| match pending.reasons[*place as usize] {
                reason if reason.is_error() => reason,
                // A filter that stands there twice is answered twice, as if in packets of its own.
                ReasonCode(granted) if granted < pending.requested_qos[*place as usize] as u8 => {
                    ReasonCode(granted.min(*qos as u8))
                }
                _ => ReasonCode(*qos as u8),
            })
            .collect();
        let (protocol, mut out, _) = parts!(self, slot);
        let before = out.len();
        if let Some(packet_id) = pending.packet_id {
            protocol.subscribed(packet_id, &reasons, pending.what, &mut out);
        }
        out.note_answers(before);
        if pending.asks_store {
            let session = self.connections[slot as usize].session;
            let new = self.sessions[session as usize].new_subscriptions.get_or_insert_default();
            new.replayed(&pending.replays, self.now);
        }
        self.replay(slot, pending.replays, pending.holds);
        let session = self.connections[slot as usize].session;
        if pending.asks_store {
            self.end_retained_read(session);
        }
    }

    /// The retained messages of a SUBSCRIBE have been read: what was held for them comes after them.
    fn end_retained_read(&mut self, session: u32) {
        let local = &mut self.sessions[session as usize];
        let Some(new) = &mut local.new_subscriptions else { return };
        new.reading -= 1;
        let (broker, held) = (local.broker.clone(), new.release());
        for HeldForReceiver { message, receiver, memory } in held {
            // The session counts it anew.
            drop(memory);
            self.deliver_one(&broker, &receiver, &message, Publisher::NOBODY, 0);
        }
    }
}
