//! Changes of a broker's access rules and limits, applied to its clients a slice at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_mqtt::ReasonCode;

use super::by_broker::ClientsVisit;
use super::{ConnectionEnd, Core, work};
use crate::access::Review;
use crate::broker::Broker;

const REVIEWS_PER_JOB: usize = 500;

const NO_MORE: &str = "not authorized any more";

#[derive(Default)]
pub(super) struct AccessChanges {
    brokers: VecDeque<AccessChange>,
}

struct AccessChange {
    broker: Arc<Broker>,
    visit: ClientsVisit,
}

impl AccessChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.brokers.is_empty()
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.brokers.front().map(|change| change.broker.id)
    }

    fn add(&mut self, broker: &Arc<Broker>) {
        let at = self.brokers.iter().position(|change| change.broker.id == broker.id);
        let former = at.and_then(|at| self.brokers.remove(at)).map(|change| change.visit);
        self.brokers.push_back(AccessChange { broker: broker.clone(), visit: ClientsVisit::begin(former) });
    }
}

impl Core {
    /// Reviews the clients of a broker after its access rules changed. Clients that connected before the broker was
    /// managed never authenticated, so they are closed.
    pub(super) fn access_changed(&mut self, broker: &Arc<Broker>) {
        self.look_for_banned(broker);
        self.unfinished.slices.access.add(broker);
        self.visit_changed();
    }

    pub(super) fn visit_changed(&mut self) {
        let Some(mut change) = self.unfinished.slices.access.brokers.pop_front() else { return };
        let end = self.work.spent() + work::SLICE;
        let (mut known, mut is_over) = (Vec::new(), false);
        while self.work.spent() < end {
            let Some(slot) = self.by_broker.next(change.broker.id, &mut change.visit) else {
                is_over = true;
                break;
            };
            self.spend(work::VISIT);
            let connection = self.connections.get(slot as usize);
            let local = connection.and_then(|connection| self.sessions.get(connection.session as usize));
            if local.is_none_or(|local| local.broker.id != change.broker.id) {
                continue;
            }
            self.limits_changed(&change.broker, slot);
            let Some(connection) = self.connections.get(slot as usize) else { continue };
            if change.broker.access().is_none() {
                continue;
            }
            if connection.who.granted().is_some() {
                known.push(slot);
            } else {
                self.close_unauthorized(slot);
            }
        }
        self.review(&change.broker, known);
        if !is_over {
            self.unfinished.slices.access.brokers.push_back(change);
        }
    }

    pub(super) fn close_unauthorized(&mut self, slot: u32) {
        let reason = ReasonCode::NOT_AUTHORIZED;
        self.close_without_will(slot, reason, NO_MORE, ConnectionEnd::Error(reason));
    }

    pub(super) fn review(&self, broker: &Arc<Broker>, slots: impl IntoIterator<Item = u32>) {
        let review = |slot: u32| {
            let connection = self.connections.get(slot as usize)?;
            let identity = connection.who.granted()?.identity.clone();
            let client_id = self.sessions.get(connection.session as usize)?.session.client_id().clone();
            Some(Review { connection: self.id_of(slot), broker: broker.clone(), client_id, identity })
        };
        let mut reviews: Vec<_> = slots.into_iter().filter_map(review).collect();
        let Some(service) = &self.process.authentication else { return };
        while !reviews.is_empty() {
            let some = reviews.split_off(reviews.len().saturating_sub(REVIEWS_PER_JOB));
            // The queue is full: the next look at the records finds the change anew.
            if !service.review(some) {
                return broker.forget_changes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_access::model::Limits;

    use crate::core::testing::{Loops, TestClient};

    fn limited(loops: &Loops) -> usize {
        loops.cores[0].connections.iter().filter(|(_, connection)| connection.is_limited).count()
    }

    #[test]
    fn new_limits_reach_many_clients_over_several_turns() {
        const CLIENTS: usize = 700;
        let mut loops = Loops::start(1, |_| {});
        let clients: Vec<TestClient> =
            (0..CLIENTS).map(|number| loops.connect_as(&format!("client{number}"), true)).collect();
        let broker = loops.broker();
        let mut limits = Limits::default();
        limits.broker.publishes_per_s = Some(1_000);
        broker.quota.set(limits);
        loops.cores[0].access_changed(&broker);
        let first = limited(&loops);
        assert!((1..CLIENTS).contains(&first), "{first} clients were visited at once");
        loops.until(|loops| limited(loops) == CLIENTS);
        assert!(loops.cores[0].unfinished.slices.access.is_empty());
        drop(clients);
    }
}
