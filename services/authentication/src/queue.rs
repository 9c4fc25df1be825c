//! The fair queue of waiting jobs: tenants take turns, then their brokers, then addresses, then users.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::ClientSource;
use crate::rotation::{FairRotation, Turns, TwoEndedQueue};

type OfSource<J> = FairRotation<Box<str>, TwoEndedQueue<J>>;
type BrokerRotation<J> = FairRotation<ClientSource, OfSource<J>>;
type TenantRotation<J> = FairRotation<u64, BrokerRotation<J>>;

#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    pub all_max: usize,
    pub broker_max: usize,
}

pub struct AuthenticationQueue<J> {
    limits: QueueLimits,
    state: Mutex<State<J>>,
    came: Condvar,
}

struct State<J> {
    jobs: FairRotation<Arc<str>, TenantRotation<J>>,
    is_closed: bool,
}

#[must_use]
pub enum Pushed<J> {
    Waits,
    Refused(J),
    /// The job is queued, and evicted this older job of the same address.
    Instead(J),
}

impl<J> AuthenticationQueue<J> {
    pub fn new(limits: QueueLimits) -> Self {
        let state = State { jobs: FairRotation::default(), is_closed: false };
        Self { limits, state: Mutex::new(state), came: Condvar::new() }
    }

    /// Queues a job while the broker has fewer jobs than its tenant may add, so that one tenant takes
    /// half of the queue at most, one broker a third, and a newcomer finds room. The same holds for an
    /// address within its broker's limit; at either limit, an address that has jobs evicts its oldest one.
    pub fn push(
        &self,
        tenant: &Arc<str>,
        broker: u64,
        source: ClientSource,
        user: &str,
        job: J,
    ) -> Pushed<J> {
        let mut state = self.lock();
        let jobs = &mut state.jobs;
        let of_tenant = jobs.get(tenant);
        let of_broker = of_tenant.and_then(|of| of.get(&broker));
        let [in_tenant, in_broker] = [of_tenant.map_or(0, Turns::len), of_broker.map_or(0, Turns::len)];
        let in_source = of_broker.and_then(|of| of.get(&source)).map_or(0, Turns::len);
        let tenant_room = self.limits.all_max.saturating_sub(jobs.len() + in_tenant);
        let broker_room = self.limits.broker_max.saturating_sub(in_broker);
        let is_full = in_broker >= tenant_room || in_source >= broker_room;
        if is_full && in_source == 0 {
            return Pushed::Refused(job);
        }
        let evicted = jobs.with(tenant, |of_tenant| {
            of_tenant.with(&broker, |of_broker| {
                of_broker.with(&source, |of_source| {
                    let evicted = if is_full { of_source.evict() } else { None };
                    of_source.with(&user.into(), |of_user| of_user.push(job));
                    evicted
                })
            })
        });
        self.came.notify_one();
        evicted.map_or(Pushed::Waits, Pushed::Instead)
    }

    /// `None` when the queue is closed.
    pub fn pop(&self) -> Option<J> {
        self.pop_up_to(1)?.pop()
    }

    /// Waits for a job, and takes at most `max` in the order of their turns.
    pub fn pop_up_to(&self, max: usize) -> Option<Vec<J>> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            let jobs: Vec<J> = std::iter::from_fn(|| state.jobs.pop()).take(max).collect();
            if !jobs.is_empty() {
                return Some(jobs);
            }
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    #[allow(clippy::len_without_is_empty, reason = "only its metrics need the length")]
    pub fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Jobs that wait then are dropped with the queue, without a result.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.came.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> ClientSource {
        ClientSource::new(Some([10, 0, 0, last].into()))
    }

    fn queue(all_max: usize, broker_max: usize) -> AuthenticationQueue<&'static str> {
        AuthenticationQueue::new(QueueLimits { all_max, broker_max })
    }

    /// The answer to a push for a broker of a tenant of its own: nothing, or the job for which the queue has no room.
    fn push(
        queue: &AuthenticationQueue<&'static str>,
        broker: u64,
        last: u8,
        user: &str,
        job: &'static str,
    ) -> Option<&'static str> {
        match queue.push(&broker.to_string().into(), broker, source(last), user, job) {
            Pushed::Waits => None,
            Pushed::Refused(job) | Pushed::Instead(job) => Some(job),
        }
    }

    #[test]
    fn tenants_then_addresses_then_users_take_turns() {
        let queue = queue(1_000, 1_000);
        for _ in 0..100 {
            push(&queue, 1, 1, "eve", "guess");
        }
        push(&queue, 1, 1, "ann", "other user");
        push(&queue, 1, 2, "eve", "other address");
        push(&queue, 2, 1, "eve", "other broker");
        let order = queue.pop_up_to(6).unwrap();
        // The newest broker, address or user does not wait for the flood.
        assert_eq!(order, ["other broker", "other address", "other user", "guess", "guess", "guess"]);
    }

    #[test]
    fn an_address_at_its_limit_gives_up_its_oldest_job_and_others_find_room() {
        let queue = queue(1_000, 4);
        assert_eq!(
            ["1", "2", "3", "4"].map(|job| push(&queue, 1, 1, "eve", job)),
            [None, None, Some("1"), Some("2")]
        );
        assert_eq!(push(&queue, 1, 2, "ann", "5"), None);
        assert_eq!(push(&queue, 1, 3, "ann", "6"), None);
        assert_eq!(push(&queue, 1, 4, "ann", "7"), Some("7"), "the broker is at its limit");
        assert_eq!(push(&queue, 2, 1, "ann", "8"), None);
        assert_eq!(queue.len(), 5);
    }

    #[test]
    fn a_broker_takes_a_third_of_the_room_and_a_tenant_half_of_it() {
        let queue = queue(80, 100);
        let taken = |tenant: &str, broker| {
            let push = |user| queue.push(&tenant.into(), broker, source(user), "eve", "guess");
            (0..50).filter(|user| matches!(push(*user), Pushed::Waits)).count()
        };
        assert_eq!((taken("a", 1), taken("a", 2)), (27, 9));
        assert_eq!((0..50).map(|broker| taken("a", 3 + broker)).sum::<usize>(), 4);
        assert_eq!(taken("b", 100), 14);
    }

    #[test]
    fn a_tenant_with_many_brokers_has_one_turn() {
        let queue = queue(20_000, 1_000);
        let push = |tenant: &str, broker, job| {
            assert!(matches!(queue.push(&tenant.into(), broker, source(1), "u", job), Pushed::Waits));
        };
        (0..1_000).for_each(|broker| push("a", broker, "guess"));
        push("b", 5_000, "login");
        // Later jobs of tenant a do not push the other one back.
        (1_000..2_000).for_each(|broker| push("a", broker, "guess"));
        assert!(queue.pop_up_to(2).unwrap().contains(&"login"));
    }

    #[test]
    fn closing_wakes_a_waiting_thread() {
        let queue = queue(1, 1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.pop());
            queue.close();
            assert_eq!(waits.join().unwrap(), None);
        });
    }
}
