//! Carries out the store's answer to a SUBSCRIBE of a stored session, over several turns if it has many filters: the router learns
//! which subscriptions are durable, then the session reads their streams, then the client has its SUBACK.
//!
//! Until then the loop reads nothing from the connection and puts off the check of changed access rules, so the subscriptions
//! stay as they are.

use millrace_layers::Position;
use millrace_layers::streams::Source;
use millrace_layers::subscriptions::{NO_STREAM, Subscribed};
use millrace_mqtt::topic::Filter;
use millrace_router::Target;

use super::stored::GoesBack;
use crate::core::connection::{NONE, Paused};
use crate::core::persistent::{FilterSource, PersistentSession};
use crate::core::resume::routed;
use crate::core::{Core, LocalSession, work};
use crate::jobs::PendingSubscribe;

pub(in crate::core) struct StoredAnswer {
    pub(super) durable: Vec<(Box<str>, Subscribed)>,
    pub(super) routed: usize,
    pub(super) go_back: Vec<GoesBack>,
    pub(super) shared: Vec<Box<str>>,
    pub(super) pending: PendingSubscribe,
}

impl StoredAnswer {
    fn left(&self) -> &[(Box<str>, Subscribed)] {
        &self.durable[self.routed..]
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

    /// Goes on with the store's answers for this connection. Returns false if a later turn must go on.
    pub(in crate::core) fn answer_more(&mut self, slot: u32) -> bool {
        while let Some(mut answer) = work::pop_of(&mut self.work.stored_answers, slot) {
            let session = self.connections[slot as usize].session;
            if session == NONE {
                return true;
            }
            let (count, work) = work::filters_at_once(answer.left().iter().map(|(filter, _)| &**filter));
            self.spend(work);
            if count > 0 {
                self.route_durable(self.target_of(session), &answer.left()[..count]);
                answer.routed += count;
            }
            if !answer.left().is_empty() {
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
        let StoredAnswer { durable, go_back, shared, mut pending, .. } = answer;
        let announced = std::mem::take(&mut pending.announced);
        let (target, handed_over) = (self.target_of(session), self.following.handed_over);
        let local = &mut self.sessions[session as usize];
        let (broker, key) = (local.broker.clone(), local.key());
        let Some(persistent) = &mut local.persistent else { return };
        let was_live = persistent.is_live();
        persistent.unanswered.push(pending);
        let is_more = local.add_sources(durable, handed_over);
        self.go_back(target, &go_back);
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
        for filter in shared {
            self.join(&broker, &filter);
        }
        // A persistent session finds later messages in the store, so its SUBACK does not wait for other pods.
        self.reread_when_confirmed(target, &broker, announced);
    }
}

impl LocalSession {
    /// Whether the session may not read now: an answer to a SUBSCRIBE may add streams, which have to be read from the same
    /// position on. They may have messages already: of other pods, and wills that came due between two transactions.
    pub(in crate::core) fn waits_for_subscribe(&self, work: &work::Work) -> bool {
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
            // The subscription may have ended meanwhile.
            session.subscription(&durable.0).filter(|_| is_read(&durable))?;
            let (filter, Subscribed { stream, since, .. }) = durable;
            Some(FilterSource { source: Source { stream, since }, filter })
        };
        persistent.add_sources(durable.into_iter().filter_map(source).collect(), handed_over)
    }
}
