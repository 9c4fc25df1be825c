//! A loop's part in deciding which loop owns a client id; [`crate::home`] has the rules. The loop hands a CONNECT to the
//! owner, holds claims that no session in memory holds, and measures its load, so that a broker that fills it spreads over all.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Core;
use super::authenticate::ConnectAt;
use super::connection::Paused;
use crate::broker::Broker;
use crate::clock::Millis;
use crate::connection_id::ConnectionId;
use crate::handover::Arrival;
use crate::home::{HomeClaim, Owner};
use crate::jobs::Job;

/// Claims that no session in memory holds. A claim keeps its client id with the home loop of the broker while it exists.
#[derive(Debug, Default)]
pub(super) struct HomeClaims {
    /// Claims of CONNECTs that have reached the loop that owns their client id and wait there, by connection.
    arrivals: HashMap<ConnectionId, Arrival, foldhash::fast::FixedState>,
    /// Claims of sessions that ended in this turn or whose last jobs or messages have not left yet.
    ended: HashMap<(u64, u64), HomeClaim, foldhash::fast::FixedState>,
}

/// How much of a second this loop spends in turns, and for which brokers.
#[derive(Debug, Default)]
pub(super) struct Occupation {
    since_ms: Millis,
    busy_us: u64,
    /// Work units by broker. They are counted only while the loop was fully busy in the second before.
    work: Option<HashMap<u64, u64, foldhash::fast::FixedState>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BegunWork {
    broker: u64,
    /// Work units of the turn when this work began.
    spent: u64,
}

#[derive(Debug, Default)]
pub(super) struct Homes {
    claims: HomeClaims,
    pub(super) occupation: Occupation,
}

impl Occupation {
    pub(super) fn add_turn(&mut self, took_us: u64) {
        self.busy_us += took_us;
    }

    /// Begins work for a broker, which [`Occupation::end`] must end: `spent` are the units of the turn so far.
    fn begin(&self, broker: impl FnOnce() -> u64, spent: u64) -> Option<BegunWork> {
        self.work.as_ref().map(|_| BegunWork { broker: broker(), spent })
    }

    fn end(&mut self, began: Option<BegunWork>, spent: u64) {
        if let (Some(work), Some(began)) = (&mut self.work, began) {
            *work.entry(began.broker).or_default() += spent - began.spent;
        }
    }
}

fn brokers_of(jobs: &[Job]) -> HashSet<u64, foldhash::fast::FixedState> {
    jobs.iter().flat_map(Job::broker_ids).collect()
}

fn largest(work: &HashMap<u64, u64, foldhash::fast::FixedState>) -> Option<u64> {
    let all: u64 = work.values().sum();
    work.iter().find(|(_, units)| **units * 2 > all).map(|(broker, _)| *broker)
}

impl Core {
    /// Where to send the CONNECT of the connection at `slot`; `None`: this loop owns the client id, and continues with it.
    pub(super) fn find_owner(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        client_id: &str,
    ) -> Option<ConnectAt> {
        let id = self.id_of(slot);
        let hash = self.process.client_hash(broker, client_id);
        if let Some(arrival) = self.homes.claims.arrivals.get(&id)
            && (arrival.broker, arrival.hash) == (broker.id, hash)
        {
            return None;
        }
        self.forget_arrival(slot);
        let owner = broker.home.owner(hash, self.process.mailboxes.len() as u64);
        let (core, may_have_moved) = (owner.core(), owner.may_have_moved());
        let arrival = Arrival { broker: broker.id, hash, owner };
        if core != self.index {
            return Some(ConnectAt::Elsewhere(core, Some(Box::new(arrival))));
        }
        if may_have_moved {
            // The home loop may have put messages of this client into the mailbox of this loop, and they must come first (P4). So
            // this loop mails itself, and the CONNECT continues when that mail arrives behind them.
            self.homes.claims.arrivals.insert(id, arrival);
            self.connections[slot as usize].paused = Paused::ForMail;
            self.post(core, crate::mailbox::Mail::Relieved(id));
            return Some(ConnectAt::Later);
        }
        if let Owner::Home(..) = arrival.owner {
            self.homes.claims.arrivals.insert(id, arrival);
        }
        None
    }

    /// A connection has come with its CONNECT to the loop that owns its client id.
    pub(super) fn note_arrival(&mut self, slot: u32, arrival: Option<Box<Arrival>>) {
        if let Some(arrival) = arrival {
            let id = self.id_of(slot);
            self.homes.claims.arrivals.insert(id, *arrival);
        }
    }

    pub(super) fn take_arrival(&mut self, slot: u32) -> Option<HomeClaim> {
        let id = self.id_of(slot);
        self.homes.claims.arrivals.remove(&id)?.owner.into_claim()
    }

    /// A connection has ended, or its CONNECT names another client id.
    pub(super) fn forget_arrival(&mut self, slot: u32) {
        if !self.homes.claims.arrivals.is_empty() {
            let id = self.id_of(slot);
            self.homes.claims.arrivals.remove(&id);
        }
    }

    /// Drops a claim once everything that was done under it has left this loop.
    pub(super) fn end_claim(&mut self, claim: HomeClaim) {
        self.homes.claims.ended.insert(claim.key(), claim);
    }

    /// At the end of a turn, when its mail and its jobs have left. A claim stays while its broker has held jobs or a fan-out.
    pub(super) fn drop_claims(&mut self) {
        if !self.homes.claims.ended.is_empty() {
            let held =
                self.store_jobs.held.as_ref().map(|_| brokers_of(&self.store_jobs.queue)).unwrap_or_default();
            let fanouts = &self.unfinished.fanouts;
            self.homes.claims.ended.retain(|(broker, _), _| held.contains(broker) || fanouts.has(*broker));
        }
    }

    pub(super) fn begin_work(&self, broker: impl FnOnce(&Self) -> u64) -> Option<BegunWork> {
        self.homes.occupation.begin(|| broker(self), self.work.spent())
    }

    pub(super) fn end_work(&mut self, began: Option<BegunWork>) {
        self.homes.occupation.end(began, self.work.spent());
    }

    /// Once a second: spreads the broker that takes more than half of this loop's work, when this loop is full and another is
    /// idle.
    pub(super) fn check_load(&mut self) {
        let passed_ms = self.now_ms - std::mem::replace(&mut self.homes.occupation.since_ms, self.now_ms);
        let busy_us = std::mem::take(&mut self.homes.occupation.busy_us);
        // Per cent: of each passed millisecond, 10 µs are one per cent.
        let busy = busy_us.checked_div(passed_ms * 10).unwrap_or(0).min(100);
        let loads = &self.process.brokers.loads;
        loads.note(self.index, u8::try_from(busy).unwrap_or(100));
        let work = self.homes.occupation.work.take();
        if !loads.is_outgrown(self.index) {
            return;
        }
        let broker = work.as_ref().and_then(largest).and_then(|broker| self.process.brokers.by_id(broker));
        if let Some(broker) = broker.filter(|broker| broker.home.core() == Some(self.index)) {
            tracing::info!(
                broker = &*broker.name,
                "a broker that fills its event loop spreads over all loops"
            );
            broker.home.spread();
        }
        self.homes.occupation.work = Some(HashMap::default());
    }
}

#[cfg(test)]
mod tests {
    use millrace_layers::Position;

    use super::*;
    use crate::jobs::{SharedMessages, Write};

    #[test]
    fn work_is_counted_for_its_broker_while_the_loop_is_full() {
        let mut occupation = Occupation::default();
        let began = occupation.begin(|| 1, 0);
        occupation.end(began, 100);
        assert!(occupation.work.is_none());
        occupation.work = Some(HashMap::default());
        for (broker, from, until) in [(1, 0, 10), (2, 10, 40), (1, 40, 60)] {
            let began = occupation.begin(|| broker, from);
            occupation.end(began, until);
        }
        assert_eq!(occupation.work.take(), Some([(1, 30), (2, 30)].into_iter().collect()));
        // Work that began in the second before is not counted.
        occupation.end(Some(BegunWork { broker: 1, spent: 0 }), 100);
        assert!(occupation.work.is_none());
    }

    #[test]
    fn held_jobs_keep_the_claims_of_their_own_brokers() {
        let barrier = |broker| Job { write: Write::Barrier { core: 0, number: 1, broker }, ack: None };
        let mut shared = SharedMessages::default();
        shared.joined.push((3, 7));
        shared.settled.push(((4, 7), Position::MIN));
        let shared = Job { write: Write::Shared(Box::new(shared)), ack: None };
        let mut held: Vec<u64> = brokers_of(&[barrier(1), shared, barrier(1)]).into_iter().collect();
        held.sort_unstable();
        assert_eq!(held, [1, 3, 4]);
        assert!(brokers_of(&[]).is_empty());
    }

    #[test]
    fn a_broker_outgrows_its_loop_with_more_than_half_of_the_work() {
        for (work, expected) in [
            (&[][..], None),
            (&[(1, 1)], Some(1)),
            (&[(1, 50), (2, 50)], None),
            (&[(1, 50), (2, 51)], Some(2)),
            (&[(1, 40), (2, 35), (3, 25)], None),
        ] {
            assert_eq!(largest(&work.iter().copied().collect()), expected);
        }
    }
}
