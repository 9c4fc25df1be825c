//! The answer of the store to a SUBSCRIBE: the session reads the streams of durable subscriptions; refused ones are undone.

use std::collections::HashSet;

use millrace_layers::subscriptions::{REPLAY_DUE, StoredOptions, Subscribed};
use millrace_mqtt::topic::Filter;
use millrace_mqtt::{QoS, ReasonCode, Version};
use millrace_router::Target;
use millrace_session::ClientSubscription;
use smallvec::SmallVec;

use super::suback_in_slices::StoredAnswer;
use crate::core::persistent::PersistentSession;
use crate::core::resume::{routed, subscription_of};
use crate::core::{Core, work};
use crate::jobs::{self, Job, PendingSubscribe, SessionKey, Write};

/// A filter whose change the store refused, with the subscription that it had before.
pub(super) type GoesBack = (Box<str>, Option<ClientSubscription>);
pub(super) type EndedFilters = HashSet<Box<str>, foldhash::fast::RandomState>;

impl PersistentSession {
    fn take_answer(
        &mut self,
        filters: Vec<(Box<str>, StoredOptions, usize)>,
        subscribed: &[Option<Subscribed>],
        mut pending: PendingSubscribe,
        shared: Vec<Box<str>>,
    ) -> StoredAnswer {
        let (mut durable, mut go_back) = (Vec::new(), Vec::new());
        let mut ended = EndedFilters::default();
        for ((filter, options, place), subscribed) in filters.into_iter().zip(subscribed) {
            if subscribed.is_some() {
                self.unanswered_by_store.note_stored(&filter, pending.is_refused);
            }
            let subscribed = subscribed.as_ref().filter(|_| !pending.is_refused);
            let granted = subscribed.map(|_| subscription_of(options));
            let answered = self.unanswered_by_store.remove(pending.number, &filter, granted);
            go_back.extend(answered.goes_back.map(|former| (filter.clone(), former)));
            if subscribed.is_some() && options.bits & REPLAY_DUE != 0 {
                self.due.insert(filter.clone());
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
        self.has_ended_filters |= !(ended.is_empty() && go_back.is_empty());
        StoredAnswer::new(durable, go_back, shared, pending)
    }
}

impl Core {
    pub(in crate::core) fn subscribed(
        &mut self,
        subscribe: jobs::SubscribeWrite,
        subscribed: &[Option<Subscribed>],
    ) {
        let target = subscribe.target;
        let Some(local) = self.sessions.get_mut(target.slot as usize) else { return };
        if local.generation != target.generation {
            return;
        }
        if subscribe.pending.goes_back {
            return self.went_back(subscribe, subscribed);
        }
        let slot = local.connection;
        let texts = subscribe.filters.iter().map(|(filter, ..)| &**filter);
        let texts = texts.chain(subscribe.pending.in_memory.iter().map(|(filter, _)| &**filter));
        if work::filters_at_once(texts.clone()).0 < texts.count() {
            // Until the answer is carried out, the subscriptions stay as they are.
            self.change_filters_now(slot);
        }
        let Some(local) = self.sessions.get_mut(target.slot as usize) else { return };
        if local.generation != target.generation {
            return;
        }
        let Some(persistent) = &mut local.persistent else { return self.subscribed_in_memory(subscribe) };
        let jobs::SubscribeWrite { filters, pending, .. } = subscribe;
        let shared =
            filters.iter().map(|(filter, ..)| filter.clone()).filter(|f| f.starts_with("$share/")).collect();
        self.work.spend(work::LOOKUP * filters.len() as u64);
        let answer = persistent.take_answer(filters, subscribed, pending, shared);
        self.carry_out_answer(slot, answer);
    }

    /// The same for a session in memory: the store was asked for retained messages and for members on other pods.
    fn subscribed_in_memory(&mut self, subscribe: jobs::SubscribeWrite) {
        let jobs::SubscribeWrite { target, mut shared, mut pending, .. } = subscribe;
        if pending.is_refused {
            shared.clear();
            pending.replays.clear();
            for reason in pending.reasons.iter_mut().filter(|reason| !reason.is_error()) {
                *reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
            }
        }
        let answer = StoredAnswer::new(Vec::new(), Vec::new(), shared, pending);
        self.carry_out_answer(self.sessions[target.slot as usize].connection, answer);
    }

    /// Undoes refused changes of subscriptions: the store cannot read their retained messages (P6) or other members.
    pub(super) fn go_back(&mut self, target: Target, go_back: &[GoesBack]) {
        let local = &mut self.sessions[target.slot as usize];
        let (broker, slot, is_kept) = (local.broker.clone(), local.connection, local.persistent.is_some());
        broker.router.edit(|edit| {
            for (filter, former) in go_back {
                let Some(parsed) = Filter::parse(filter) else { continue };
                let Some(former) = former else {
                    local.session.unsubscribe(filter);
                    edit.unsubscribe(parsed, target);
                    continue;
                };
                let is_stored = is_kept && parsed.share.is_none() && former.options.qos > QoS::AtMostOnce;
                local.session.subscribe(filter, *former);
                edit.subscribe(parsed, routed(target, former, is_stored));
            }
        });
        self.revoke_anew(slot);
        self.announce_members(&broker, go_back.iter().map(|(filter, _)| &**filter));
    }

    /// Writes the same to the store, which may have made the changes: reading retained messages can fail after the commit.
    pub(super) fn write_back(&mut self, session: SessionKey, target: Target, go_back: Vec<GoesBack>) {
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
            let unsubscribe =
                jobs::UnsubscribeWrite::new(session.clone(), target, ended, None, SmallVec::new());
            self.store_jobs.queue.push(Job { write: Write::Unsubscribe(Box::new(unsubscribe)), ack: None });
        }
        if !changed.is_empty() {
            let persistent = self.sessions[target.slot as usize].persistent.as_mut();
            persistent.into_iter().for_each(|persistent| persistent.writing_back += 1);
            let pending = PendingSubscribe { goes_back: true, ..PendingSubscribe::new(None) };
            let subscribe = jobs::SubscribeWrite::new(session, target, changed, Vec::new(), pending);
            self.store_jobs.queue.push(Job { write: Write::Subscribe(Box::new(subscribe)), ack: None });
        }
    }

    /// The store has written back former subscriptions. One of QoS 0 may have got the stream of the refused SUBSCRIBE.
    fn went_back(&mut self, subscribe: jobs::SubscribeWrite, subscribed: &[Option<Subscribed>]) {
        let target = subscribe.target;
        let filters = subscribe.filters.into_iter().map(|(filter, ..)| filter);
        let durable: Vec<_> =
            filters.zip(subscribed).filter_map(|(filter, stored)| Some((filter, (*stored)?))).collect();
        let Some(persistent) = &mut self.sessions[target.slot as usize].persistent else { return };
        // A retry was counted when the store refused the first attempt.
        persistent.writing_back -= u32::from(!subscribe.pending.is_retry);
        self.route_durable(target, &durable);
        if self.sessions[target.slot as usize].add_sources(durable, self.following.handed_over) {
            self.hold_until_barrier(target.slot);
        }
        self.read_on(target.slot);
    }

    pub(in crate::core) fn answer_subscribes(&mut self, session: u32) {
        let local = &mut self.sessions[session as usize];
        let slot = local.connection;
        let Some(persistent) = &mut local.persistent else { return };
        let unanswered = std::mem::take(&mut persistent.unanswered);
        persistent.end_subscribes(u32::try_from(unanswered.len()).unwrap_or(u32::MAX));
        for pending in unanswered {
            self.answer_subscribe(slot, pending);
        }
        self.deliver_unstored(session);
    }
}
