//! Limits expensive requests at once, per organisation, per person and in all, so that no tenant occupies all threads and cores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::Method;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::problem::{ApiResult, Problem};
use crate::limits::{
    EXPENSIVE_AT_ONCE, EXPENSIVE_PER_ORGANISATION, EXPENSIVE_WAITING_EACH_MAX, EXPENSIVE_WAITING_MAX,
};

/// Ends of the templates of routes whose handlers of `GET` take a turn of the [`RequestBudget`].
const EXPENSIVE_READS: [&str; 22] = [
    "/{organisation}/audit",
    "/{organisation}/brokers",
    "/{organisation}/export",
    "/me/audit",
    "/{broker}/bans",
    "/{broker}/claim-tokens",
    "/{broker}/client-cas",
    "/{broker}/credentials",
    "/{broker}/groups",
    "/{broker}/incidents",
    "/{broker}/jwt-issuers",
    "/{broker}/messages",
    "/{broker}/retained",
    "/{broker}/sessions",
    "/sessions/{client_id}",
    "/spend-cap",
    "/{broker}/streams",
    "/streams/stream",
    "/{broker}/topics",
    "/usage",
    "/{broker}/webhooks",
    "/{name}/dead-letters",
];

/// Whether a request reads so much that the server runs it with low priority. `route` is the template of its route.
#[must_use]
pub fn is_expensive(method: &Method, route: &str) -> bool {
    method.is_safe() && EXPENSIVE_READS.iter().any(|end| route.ends_with(end))
}

#[derive(Clone)]
pub(crate) struct RequestBudget {
    reads: Arc<Semaphore>,
    /// Apart from `reads`, so that a ban never waits for reports of other organisations.
    changes: Arc<Semaphore>,
    queues: Arc<Mutex<BudgetQueues>>,
}

#[derive(Default)]
struct BudgetQueues {
    organisations: HashMap<Uuid, TenantBudget>,
    /// One permit for the reads of each person, and one for the changes, with the number of requests.
    accounts: HashMap<AccountKey, (Arc<Semaphore>, usize)>,
}

/// A person, and whether the requests change something.
type AccountKey = (Uuid, bool);

struct TenantBudget {
    /// Places of requests that read, and those of changes.
    places: [Arc<Semaphore>; 2],
    /// The request that reads and is next; the others wait behind it.
    reads: Arc<Semaphore>,
    /// Requests that run or wait, by kind.
    requests: HashMap<RequestKind, usize>,
    reads_by_account: HashMap<Uuid, usize>,
}

pub(crate) struct Turn {
    _shared: Option<SharedPermit>,
    _own: OwnedSemaphorePermit,
    noted: BudgetGuard,
}

pub(crate) struct SharedPermit {
    _all: OwnedSemaphorePermit,
    _account: OwnedSemaphorePermit,
}

impl Turn {
    /// A shared permit for the holder of an organisation's own turn of a change; a read could deadlock with [`RequestBudget::wait`],
    /// where the person's permit comes before the organisation's. The person's permit comes before the shared one, so that a person
    /// with many organisations stands in the shared queue once.
    pub(crate) async fn shared(&self) -> ApiResult<SharedPermit> {
        self.noted.shared(acquire(Arc::clone(&self.noted.of_account)).await?).await
    }
}

struct BudgetGuard {
    budget: RequestBudget,
    organisation: Uuid,
    account: Uuid,
    of_account: Arc<Semaphore>,
    kind: RequestKind,
}

impl BudgetGuard {
    async fn shared(&self, account: OwnedSemaphorePermit) -> ApiResult<SharedPermit> {
        let all = match self.kind {
            RequestKind::Change => &self.budget.changes,
            RequestKind::Read | RequestKind::Export => &self.budget.reads,
        };
        Ok(SharedPermit { _all: acquire(Arc::clone(all)).await?, _account: account })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum RequestKind {
    Read,
    Change,
    Export,
}

impl Default for RequestBudget {
    fn default() -> Self {
        Self::of(EXPENSIVE_AT_ONCE)
    }
}

impl RequestBudget {
    /// `at_once`: reads of all organisations that run at once, and as many changes.
    pub(crate) fn of(at_once: usize) -> Self {
        let permits = || Arc::new(Semaphore::new(at_once));
        Self { reads: permits(), changes: permits(), queues: Arc::default() }
    }

    /// The caller must be a member of the organisation, so that strangers cannot use up its permits. `account`: the person behind the
    /// caller, who may have half of the waiting requests.
    pub(crate) async fn turn(&self, organisation: Uuid, account: Uuid) -> ApiResult<Turn> {
        self.wait(organisation, account, RequestKind::Read).await
    }

    /// A turn that does not wait for the requests that read: people change bans and spend caps in a hurry.
    pub(crate) async fn turn_of_change(&self, organisation: Uuid, account: Uuid) -> ApiResult<Turn> {
        self.wait(organisation, account, RequestKind::Change).await
    }

    /// As [`RequestBudget::turn`], however many requests of the organisation wait: an answer that has begun cannot be refused any more.
    /// `StreamPermits` limits how many exports run.
    pub(crate) async fn turn_of_export(&self, organisation: Uuid, account: Uuid) -> ApiResult<Turn> {
        self.wait(organisation, account, RequestKind::Export).await
    }

    /// A turn without a shared permit, so that other organisations need not wait for it: for a request that waits for pods, for seconds
    /// if one does not answer.
    pub(crate) async fn own_turn(&self, organisation: Uuid, account: Uuid) -> ApiResult<Turn> {
        self.own(organisation, account, RequestKind::Read).await
    }

    /// The same for a change, which may take shared permits later by [`Turn::shared`].
    pub(crate) async fn own_turn_of_change(&self, organisation: Uuid, account: Uuid) -> ApiResult<Turn> {
        self.own(organisation, account, RequestKind::Change).await
    }

    async fn wait(&self, organisation: Uuid, account: Uuid, kind: RequestKind) -> ApiResult<Turn> {
        // A change takes its organisation's place first: while it waits for that, it holds no shared permit.
        if kind == RequestKind::Change {
            let own = self.own(organisation, account, kind).await?;
            let shared = own.shared().await?;
            return Ok(Turn { _shared: Some(shared), ..own });
        }
        let (noted, reads, places) = self.note(organisation, account, kind)?;
        // The person's permit comes first, so that other members do not wait for the person's reads of other organisations.
        let of_account = acquire(Arc::clone(&noted.of_account)).await?;
        let _next = acquire(reads).await?;
        let own = acquire(places).await?;
        let shared = noted.shared(of_account).await?;
        Ok(Turn { _shared: Some(shared), _own: own, noted })
    }

    async fn own(&self, organisation: Uuid, account: Uuid, kind: RequestKind) -> ApiResult<Turn> {
        let (noted, reads, places) = self.note(organisation, account, kind)?;
        let _next = match kind {
            RequestKind::Change => None,
            RequestKind::Read | RequestKind::Export => Some(acquire(reads).await?),
        };
        Ok(Turn { _shared: None, _own: acquire(places).await?, noted })
    }

    #[allow(clippy::type_complexity, reason = "both queues of the organisation")]
    fn note(
        &self,
        organisation: Uuid,
        account: Uuid,
        kind: RequestKind,
    ) -> ApiResult<(BudgetGuard, Arc<Semaphore>, Arc<Semaphore>)> {
        let mut all = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || TenantBudget {
            places: [(); 2].map(|()| Arc::new(Semaphore::new(EXPENSIVE_PER_ORGANISATION))),
            reads: Arc::new(Semaphore::new(1)),
            requests: HashMap::new(),
            reads_by_account: HashMap::new(),
        };
        let tenant = all.organisations.entry(organisation).or_insert_with(new);
        let count = tenant.requests.get(&kind).copied().unwrap_or_default();
        let reads = tenant.reads_by_account.get(&account).copied().unwrap_or_default();
        let is_read = kind == RequestKind::Read;
        if kind != RequestKind::Export && count >= EXPENSIVE_PER_ORGANISATION + EXPENSIVE_WAITING_MAX
            || is_read && reads >= EXPENSIVE_PER_ORGANISATION + EXPENSIVE_WAITING_EACH_MAX
        {
            return Err(Problem::later(1));
        }
        *tenant.requests.entry(kind).or_default() += 1;
        if is_read {
            *tenant.reads_by_account.entry(account).or_default() += 1;
        }
        let places = &tenant.places[usize::from(kind == RequestKind::Change)];
        let (reads, places) = (Arc::clone(&tenant.reads), Arc::clone(places));
        let (of_account, requests) = all
            .accounts
            .entry((account, kind == RequestKind::Change))
            .or_insert_with(|| (Arc::new(Semaphore::new(1)), 0));
        *requests += 1;
        let of_account = Arc::clone(of_account);
        drop(all);
        Ok((BudgetGuard { budget: self.clone(), organisation, account, of_account, kind }, reads, places))
    }
}

async fn acquire(permits: Arc<Semaphore>) -> ApiResult<OwnedSemaphorePermit> {
    permits.acquire_owned().await.map_err(|_| Problem::later(1))
}

impl Drop for BudgetGuard {
    fn drop(&mut self) {
        let mut all = self.budget.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.account, self.kind == RequestKind::Change);
        if let Some((_, requests)) = all.accounts.get_mut(&key) {
            *requests -= 1;
            if *requests == 0 {
                all.accounts.remove(&key);
            }
        }
        let Some(tenant) = all.organisations.get_mut(&self.organisation) else { return };
        take_one(&mut tenant.requests, &self.kind);
        if self.kind == RequestKind::Read {
            take_one(&mut tenant.reads_by_account, &self.account);
        }
        if tenant.requests.is_empty() {
            all.organisations.remove(&self.organisation);
        }
    }
}

fn take_one<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::api::{self, PATH};

    #[test]
    fn each_expensive_read_is_one_of_the_api() {
        let described = api::openapi();
        let reads = described.paths.paths.iter().filter(|(_, item)| item.get.is_some());
        let reads: Vec<_> = reads.map(|(path, _)| format!("{PATH}{path}")).collect();
        for end in EXPENSIVE_READS {
            assert!(reads.iter().any(|path| path.ends_with(end)), "{end}");
        }
        let expensive = reads.iter().filter(|path| is_expensive(&Method::GET, path));
        assert_eq!(expensive.count(), 24);
        assert!(!is_expensive(&Method::GET, "/api/v1/me"));
        assert!(!is_expensive(&Method::DELETE, "/api/v1/x/sessions/{client_id}"));
    }

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_tenant_with_many_requests_leaves_places_to_others_and_is_told_to_come_later() {
        let (budget, one, other) = (RequestBudget::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        let people = || (10..).map(Uuid::from_u128);
        let mut turns: Vec<_> = people()
            .take(EXPENSIVE_PER_ORGANISATION)
            .map(|ann| now(budget.turn(one, ann)).unwrap().ok().unwrap())
            .collect();
        let ann = Uuid::from_u128(100);
        assert!(now(budget.turn(one, ann)).is_none(), "waits");
        assert!(now(budget.turn(other, ann)).unwrap().is_ok());
        let noted: Vec<_> = people()
            .take(EXPENSIVE_WAITING_MAX)
            .map(|ann| budget.note(one, ann, RequestKind::Read).ok().unwrap())
            .collect();
        assert!(now(budget.turn(one, ann)).unwrap().is_err(), "too many wait");
        assert!(now(budget.turn_of_export(one, ann)).is_none(), "an export waits all the same");
        drop(noted);
        turns.pop();
        assert!(now(budget.turn(one, ann)).unwrap().is_ok());
        turns.clear();
        assert!(budget.queues.lock().unwrap().organisations.is_empty());
    }

    #[test]
    fn one_person_has_half_of_the_waiting_requests_that_read() {
        let (budget, plant) = (RequestBudget::default(), Uuid::from_u128(1));
        let (eve, ann) = (Uuid::from_u128(2), Uuid::from_u128(3));
        let noted: Vec<_> =
            std::iter::from_fn(|| budget.note(plant, eve, RequestKind::Read).ok()).take(1_000).collect();
        assert_eq!(noted.len(), EXPENSIVE_PER_ORGANISATION + EXPENSIVE_WAITING_EACH_MAX);
        assert!(budget.note(plant, ann, RequestKind::Read).is_ok());
        assert!(budget.note(plant, eve, RequestKind::Change).is_ok());
    }

    #[test]
    fn a_person_with_many_organisations_has_one_of_the_common_permits() {
        let budget = RequestBudget::default();
        let (eve, ann) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let of = |number: u128| Uuid::from_u128(100 + number);
        let first = now(budget.turn(of(0), eve)).unwrap().ok().unwrap();
        let mut waiting: Vec<_> = (1..20).map(|number| Box::pin(budget.turn(of(number), eve))).collect();
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.iter_mut().all(|turn| turn.as_mut().poll(&mut context).is_pending()));
        assert!(now(budget.turn(of(20), ann)).unwrap().is_ok());
        drop(first);
        assert!(waiting[0].as_mut().poll(&mut context).is_ready());
        drop(waiting);
        assert!(budget.queues.lock().unwrap().accounts.is_empty());
    }

    #[test]
    fn no_change_waits_for_reads_of_other_organisations() {
        let budget = RequestBudget::default();
        let of = |number: u128| (Uuid::from_u128(100 + number), Uuid::from_u128(number));
        let reads: Vec<_> = (0..EXPENSIVE_AT_ONCE as u128)
            .map(|number| now(budget.turn(of(number).0, of(number).1)).unwrap().ok().unwrap())
            .collect();
        assert!(now(budget.turn(of(10).0, of(10).1)).is_none(), "waits");
        let mut context = Context::from_waker(Waker::noop());
        let (plant, ann) = of(11);
        let mut read = Box::pin(budget.turn(plant, ann));
        assert!(read.as_mut().poll(&mut context).is_pending());
        assert!(now(budget.turn_of_change(plant, ann)).unwrap().is_ok(), "its own organisation reads");
        drop(reads);
    }

    #[test]
    fn a_member_who_waits_for_a_read_elsewhere_keeps_no_other_member_waiting() {
        let budget = RequestBudget::default();
        let (agency, plant) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let (eve, ann) = (Uuid::from_u128(3), Uuid::from_u128(4));
        let elsewhere = now(budget.turn(agency, eve)).unwrap().ok().unwrap();
        let mut waits = Box::pin(budget.turn(plant, eve));
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(now(budget.turn(plant, ann)).unwrap().is_ok());
        drop(elsewhere);
    }

    #[test]
    fn a_change_waits_for_the_change_that_runs_and_for_no_read() {
        let (budget, plant) = (RequestBudget::default(), Uuid::from_u128(1));
        let (eve, ann) = (Uuid::from_u128(2), Uuid::from_u128(3));
        let _reads = now(budget.turn(plant, eve)).unwrap().ok().unwrap();
        let runs = now(budget.turn_of_change(plant, eve)).unwrap().ok().unwrap();
        assert!(now(budget.turn_of_change(plant, ann)).is_none(), "waits");
        drop(runs);
        assert!(now(budget.turn_of_change(plant, ann)).unwrap().is_ok());
    }
}
