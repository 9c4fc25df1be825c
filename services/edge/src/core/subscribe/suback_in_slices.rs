//! Carries out the store's answer to a SUBSCRIBE, over several turns if it has many filters: the router learns which
//! subscriptions are durable, refused ones are undone, then the session reads its streams, then the client has its SUBACK.
//!
//! Until then the loop reads nothing from the connection and puts off the check of changed access rules, so the subscriptions
//! stay as they are.

use millrace_layers::Position;
use millrace_layers::streams::StreamSource;
use millrace_layers::subscriptions::{NO_STREAM, Subscribed};
use millrace_mqtt::topic::Filter;
use millrace_router::Target;
use smallvec::SmallVec;

use super::stored::{EndedFilters, GoesBack};
use crate::core::connection::{NONE, Paused};
use crate::core::new_subscriptions::NewSubscriptions;
use crate::core::persistent::{FilterSource, PersistentSession};
use crate::core::resume::routed;
use crate::core::{Core, LocalSession, work};
use crate::jobs::PendingSubscribe;
use crate::jobs::replay::Replay;

/// Shared subscriptions that join their groups in one turn.
pub(in crate::core) const JOINED: usize = 200;

pub(in crate::core) struct StoredAnswer {
    pub(super) durable: Vec<(Box<str>, Subscribed)>,
    pub(super) routed: usize,
    pub(super) go_back: Vec<GoesBack>,
    pub(super) undone: usize,
    pub(super) shared: Vec<Box<str>>,
    /// They join again once other pods know them.
    joined: Vec<Box<str>>,
    pub(super) pending: PendingSubscribe,
    /// Filters that an UNSUBSCRIBE ended meanwhile. Until it is empty, replays are moved to `kept`, or left out.
    ended: EndedFilters,
    kept: SmallVec<[Replay; 2]>,
}

impl StoredAnswer {
    pub(super) fn new(
        durable: Vec<(Box<str>, Subscribed)>,
        go_back: Vec<GoesBack>,
        shared: Vec<Box<str>>,
        pending: PendingSubscribe,
    ) -> Self {
        let (ended, kept, joined) = Default::default();
        Self { durable, routed: 0, go_back, undone: 0, shared, joined, pending, ended, kept }
    }

    /// How many filters are routed next, how many are undone, and the work of that.
    fn plan(&self) -> (usize, usize, u64) {
        let durable = self.durable[self.routed..].iter().map(|(filter, _)| &**filter);
        let left = durable.len();
        let go_back = self.go_back[self.undone..].iter().map(|(filter, _)| &**filter);
        let (count, work) = work::filters_at_once(durable.chain(go_back));
        let routes = count.min(left);
        (routes, count - routes, work)
    }

    fn is_carried_out(&self) -> bool {
        self.routed == self.durable.len() && self.undone == self.go_back.len() && self.shared.is_empty()
    }

    fn is_compared(&self) -> bool {
        self.pending.in_memory.is_empty() && self.ended.is_empty()
    }

    /// Compares some filters of a session in memory with its other SUBSCRIBE and UNSUBSCRIBE packets.
    fn compare_more(&mut self, mut new: Option<&mut NewSubscriptions>) -> u64 {
        let mut work = 0;
        while work < work::FILTERS_WORK_MAX
            && let Some((filter, granted)) = self.pending.in_memory.pop()
        {
            let Some(new) = &mut new else {
                self.pending.in_memory.clear();
                break;
            };
            work += work::LOOKUP;
            let granted = (!self.pending.is_refused).then_some(granted);
            let answered = new.unanswered_by_store.remove(self.pending.number, &filter, granted);
            self.go_back.extend(answered.goes_back.map(|former| (filter.clone(), former)));
            if answered.is_ended {
                self.ended.insert(filter);
            }
        }
        while work < work::FILTERS_WORK_MAX && !self.ended.is_empty() {
            let Some(replay) = self.pending.replays.pop() else {
                self.kept.reverse();
                self.pending.replays = std::mem::take(&mut self.kept);
                self.ended = EndedFilters::default();
                break;
            };
            work += work::SEEN;
            if !self.ended.contains(&replay.filter) {
                self.kept.push(replay);
            }
        }
        work
    }
}

fn is_read((filter, subscribed): &(Box<str>, Subscribed)) -> bool {
    subscribed.stream != NO_STREAM && !filter.starts_with("$share/")
}

impl Core {
    pub(super) fn carry_out_answer(&mut self, slot: u32, answer: StoredAnswer) {
        let answers = self.work.stored_answers.entry(slot).or_default();
        answers.push_back(answer);
        let is_first = answers.len() == 1;
        if is_first && !self.answer_more(slot) && self.connections[slot as usize].paused != Paused::ForWork {
            self.resume_in_turn(slot);
        }
    }

    /// Continues with the store's answers for this connection; returns false if a later turn must continue.
    pub(in crate::core) fn answer_more(&mut self, slot: u32) -> bool {
        while let Some(mut answer) = work::pop_of(&mut self.work.stored_answers, slot) {
            let session = self.connections[slot as usize].session;
            if session == NONE {
                return true;
            }
            if !self.carry_out_part(session, &mut answer) {
                self.work.stored_answers.entry(slot).or_default().push_front(answer);
                return false;
            }
            self.finish_answer(session, answer);
            if self.is_share_used() && self.work.stored_answers.contains_key(&slot) {
                return false;
            }
        }
        true
    }

    fn carry_out_part(&mut self, session: u32, answer: &mut StoredAnswer) -> bool {
        if !answer.is_compared() {
            let work = answer.compare_more(self.sessions[session as usize].new_subscriptions.as_deref_mut());
            self.spend(work);
            if !answer.is_compared() || work >= work::FILTERS_WORK_MAX {
                return false;
            }
        }
        let (routes, undoes, work) = answer.plan();
        self.spend(work);
        let target = self.target_of(session);
        if routes > 0 {
            self.route_durable(target, &answer.durable[answer.routed..][..routes]);
        }
        if undoes > 0 {
            self.go_back(target, &answer.go_back[answer.undone..][..undoes]);
        }
        answer.routed += routes;
        answer.undone += undoes;
        let broker = self.sessions[session as usize].broker.clone();
        let joins = answer.shared.split_off(answer.shared.len().saturating_sub(JOINED));
        joins.iter().for_each(|filter| self.join(&broker, filter));
        if answer.pending.announced > 0 {
            answer.joined.extend(joins);
        }
        answer.is_carried_out()
    }

    /// Makes the router know that these subscriptions are durable, so that a publish for them waits for its commit.
    pub(super) fn route_durable(&mut self, target: Target, durable: &[(Box<str>, Subscribed)]) {
        let local = &self.sessions[target.slot as usize];
        local.broker.router.edit(|edit| {
            for (filter, _) in durable.iter().filter(|durable| is_read(durable)) {
                // The subscription may have ended meanwhile.
                let subscription = local.session.subscription(filter);
                if let (Some(subscription), Some(filter)) = (subscription, Filter::parse(filter)) {
                    edit.subscribe(filter, routed(target, subscription, true));
                }
            }
        });
    }

    fn finish_answer(&mut self, session: u32, answer: StoredAnswer) {
        let StoredAnswer { durable, go_back, joined, mut pending, .. } = answer;
        let announced = std::mem::take(&mut pending.announced);
        let (target, handed_over) = (self.target_of(session), self.following.handed_over);
        let local = &mut self.sessions[session as usize];
        let (broker, key) = (local.broker.clone(), local.key());
        let slot = local.connection;
        let Some(persistent) = &mut local.persistent else {
            self.answer_subscribe(slot, pending);
            return self.reread_when_confirmed(target, &broker, announced, joined);
        };
        let was_live = persistent.is_live();
        persistent.unanswered.push(pending);
        let is_stored = |(filter, _): &GoesBack| persistent.unanswered_by_store.is_undone_in_store(filter);
        let go_back = go_back.into_iter().filter(is_stored).collect();
        let is_more = local.add_sources(durable, handed_over);
        self.write_back(key, target, go_back);
        // A live session that has more streams to read gets its SUBACK when it is live again, so that live messages
        // follow at once.
        if !(is_more && was_live) {
            self.answer_subscribes(session);
        }
        if is_more {
            self.hold_until_barrier(session);
            self.read_on(session);
        } else {
            self.deliver_held(session);
            self.read_passed_over(session);
        }
        // A persistent session finds later messages in the store, so its SUBACK does not wait for other pods.
        self.reread_when_confirmed(target, &broker, announced, joined);
    }
}

impl LocalSession {
    /// Whether the session may not read now: an answer to a SUBSCRIBE may add streams, which have to be read from the same
    /// position on. They may have messages already: of other pods, and wills that came due between two transactions.
    pub(in crate::core) fn waits_for_subscribe(&self, work: &work::CoreWork) -> bool {
        let waits = |persistent: &PersistentSession| {
            persistent.subscribing as usize > persistent.unanswered.len() || persistent.writing_back > 0
        };
        work.stored_answers.contains_key(&self.connection) || self.persistent.as_deref().is_some_and(waits)
    }

    /// Makes a persistent session read the streams of durable subscriptions. Returns whether any stream is new to it.
    pub(super) fn add_sources(
        &mut self,
        durable: Vec<(Box<str>, Subscribed)>,
        handed_over: Position,
    ) -> bool {
        let Some(persistent) = &mut self.persistent else { return false };
        let session = &self.session;
        let source = |durable: (Box<str>, Subscribed)| {
            session.subscription(&durable.0).filter(|_| is_read(&durable))?;
            let (filter, Subscribed { stream, since, .. }) = durable;
            Some(FilterSource { source: StreamSource { stream, since }, filter })
        };
        persistent.add_sources(durable.into_iter().filter_map(source).collect(), handed_over)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_mqtt::{QoS, SubscribeOptions};
    use millrace_session::ClientSubscription;

    use super::*;

    const FILTERS: usize = 40_000;

    fn replay(number: usize) -> Replay {
        let filter = format!("f/{number}").into();
        let (qos, pages) = (QoS::AtMostOnce, Arc::default());
        Replay { filter, qos, identifier: 0, left_out: 0, before: None, retained: None, pages }
    }

    #[test]
    fn filters_that_ended_meanwhile_are_compared_in_parts() {
        let mut new = NewSubscriptions::default();
        let mut pending = PendingSubscribe::new(None);
        pending.number = new.unanswered_by_store.begin();
        pending.replays = (0..FILTERS).map(replay).collect();
        for Replay { filter, .. } in &pending.replays {
            new.unanswered_by_store.add(filter, None);
            let subscription = ClientSubscription { options: SubscribeOptions::default(), identifier: 0 };
            pending.in_memory.push((filter.clone(), subscription));
        }
        (0..FILTERS).filter(|number| number % 4 > 0).for_each(|number| {
            new.unanswered_by_store.end(&format!("f/{number}"));
        });
        let mut answer = StoredAnswer::new(Vec::new(), Vec::new(), Vec::new(), pending);
        let (mut parts, mut all) = (0, 0);
        while !answer.is_compared() {
            let work = answer.compare_more(Some(&mut new));
            assert!(work < work::FILTERS_WORK_MAX + work::LOOKUP, "{work}");
            (parts, all) = (parts + 1, all + work);
        }
        assert_eq!(all, FILTERS as u64 * (work::LOOKUP + work::SEEN), "each filter is looked at once");
        assert!(parts <= all.div_ceil(work::FILTERS_WORK_MAX) + 1, "{parts}");
        let kept: Vec<_> = answer.pending.replays.iter().map(|replay| &*replay.filter).collect();
        let expected: Vec<_> = (0..FILTERS).step_by(4).map(|number| format!("f/{number}")).collect();
        assert_eq!(kept, expected, "in their order");
    }
}
