//! Resumes a stored session, over several turns if it has many filters: first they are put into the router, then checked by the
//! rules of the client, and then the session reads its messages.
//!
//! Meanwhile the connection is not read. Messages of QoS 1 and 2 wait in the session's streams; those of QoS 0 are delivered for the
//! filters that are in the router already.

use millrace_layers::subscriptions::StoredSubscription;
use millrace_mqtt::topic::Filter;
use millrace_mqtt::{QoS, ReasonCode};

use super::routed;
use crate::core::connection::{NONE, Paused};
use crate::core::replay::Topics;
use crate::core::revoke::Revocation;
use crate::core::{ConnectionEnd, Core, work};
use crate::jobs::StoredPage;
use crate::quota::Limit;

pub(in crate::core) struct Resumption {
    subscriptions: Vec<StoredSubscription>,
    routed: usize,
    announced: u64,
    /// `None`: the rules have checked all of them.
    to_check: Option<Revocation>,
    had: Option<Topics>,
    page: Option<StoredPage>,
}

impl Resumption {
    pub(super) fn new(
        subscriptions: Vec<StoredSubscription>,
        had: Option<Topics>,
        page: Option<StoredPage>,
    ) -> Self {
        let to_check = Some(Revocation::default());
        Self { subscriptions, routed: 0, announced: 0, to_check, had, page }
    }

    pub(in crate::core) fn check_anew(&mut self) {
        self.to_check = Some(Revocation::default());
    }

    fn plan(&self) -> (usize, u64) {
        work::filters_at_once(self.subscriptions[self.routed..].iter().map(filter_of))
    }
}

fn filter_of(stored: &StoredSubscription) -> &str {
    std::str::from_utf8(&stored.filter).unwrap_or_default()
}

impl Core {
    pub(super) fn resume_session(&mut self, slot: u32, resumption: Resumption) {
        self.work.resumptions.insert(slot, Box::new(resumption));
        if !self.resume_more(slot) && self.connections[slot as usize].paused != Paused::ForWork {
            self.resume_in_turn(slot);
        }
    }

    /// Continues with the session of this connection; returns false if a later turn must continue.
    pub(in crate::core) fn resume_more(&mut self, slot: u32) -> bool {
        let Some(mut resumption) = self.work.resumptions.remove(&slot) else { return true };
        let session = self.connections[slot as usize].session;
        if session == NONE {
            return true;
        }
        if let Some(limit) = self.filters_are_full(session, &resumption) {
            self.work.resumptions.insert(slot, resumption);
            if self.work.removes_of(self.broker_of(slot)) {
                // The filters being removed may be those of the session's former connection.
                self.spend(work::SHARE);
                return false;
            }
            self.reached(slot, limit);
            let reason = ReasonCode::QUOTA_EXCEEDED;
            self.say_and_close(slot, reason, limit.meaning(), ConnectionEnd::Error(reason));
            return true;
        }
        self.route_more(session, &mut resumption);
        if resumption.routed == resumption.subscriptions.len()
            && let Some(revocation) = resumption.to_check.take()
        {
            resumption.to_check = self.check_subscriptions(slot, revocation);
        }
        if resumption.routed < resumption.subscriptions.len() || resumption.to_check.is_some() {
            self.work.resumptions.insert(slot, resumption);
            return false;
        }
        self.read_resumed(slot, *resumption);
        true
    }

    /// The limit that leaves no room for more filters. The limit of all brokers together lets the first part pass, so a session whose
    /// filters fit into one part does not depend on other brokers.
    fn filters_are_full(&self, session: u32, resumption: &Resumption) -> Option<Limit> {
        let (broker, limits) = (&self.sessions[session as usize].broker, &self.process.limits);
        let Resumption { subscriptions, routed, .. } = resumption;
        match () {
            () if *routed == subscriptions.len() => None,
            () if broker.router.bytes() as u64 >= limits.filter_memory_per_broker_max => {
                Some(Limit::BrokerFilters)
            }
            () if *routed > 0 && self.process.brokers.filter_bytes() >= limits.filter_memory_max => {
                Some(Limit::Filters)
            }
            () => None,
        }
    }

    fn route_more(&mut self, session: u32, resumption: &mut Resumption) {
        let (count, work) = resumption.plan();
        if count == 0 {
            return;
        }
        self.spend(work);
        let target = self.target_of(session);
        let local = &self.sessions[session as usize];
        let broker = local.broker.clone();
        let part = &resumption.subscriptions[resumption.routed..resumption.routed + count];
        broker.router.edit(|edit| {
            for text in part.iter().map(filter_of) {
                let Some(subscription) = local.session.subscription(text) else { continue };
                let Some(filter) = Filter::parse(text) else { continue };
                let is_stored = filter.share.is_none() && subscription.options.qos > QoS::AtMostOnce;
                edit.subscribe(filter, routed(target, subscription, is_stored));
            }
        });
        self.announce_members(&broker, part.iter().map(filter_of));
        let announced = self.announce_filters(&broker, part.iter().map(filter_of));
        resumption.announced = resumption.announced.max(announced);
        part.iter().for_each(|stored| self.join(&broker, filter_of(stored)));
        resumption.routed += count;
    }

    /// Forgets the subscriptions that the router does not have yet; those in it are removed with the session.
    pub(in crate::core) fn abandon_resumption(&mut self, slot: u32, session: u32) {
        let Some(resumption) = self.work.resumptions.remove(&slot) else { return };
        let Some(local) = self.sessions.get_mut(session as usize) else { return };
        let left = &resumption.subscriptions[resumption.routed..];
        for stored in left {
            local.session.unsubscribe(filter_of(stored));
        }
        self.work.spend(work::LOOKUP * left.len() as u64);
    }

    fn read_resumed(&mut self, slot: u32, resumption: Resumption) {
        let session = self.connections.get(slot as usize).map_or(NONE, |connection| connection.session);
        if session == NONE {
            // Ending a subscription has ended the connection.
            return;
        }
        let Resumption { subscriptions, announced, had, page, .. } = resumption;
        let (target, broker) = (self.target_of(session), self.sessions[session as usize].broker.clone());
        let shared = subscriptions.iter().map(filter_of).filter(|filter| filter.starts_with("$share/"));
        let shared = if announced > 0 { shared.map(Into::into).collect() } else { Vec::new() };
        self.reread_when_confirmed(target, &broker, announced, shared);
        if let Some(had) = had {
            self.replay_due(session, &subscriptions, had);
        }
        self.pump(slot);
        if page.is_some() {
            self.hold_until_barrier(session);
            self.page(target, 0, page);
        }
    }
}
