//! Limits expensive requests at once, per organisation and in all, so that no tenant occupies all threads and cores.

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
const EXPENSIVE_READS: [&str; 13] = [
    "/{organisation}/audit",
    "/{organisation}/brokers",
    "/{organisation}/export",
    "/me/audit",
    "/{broker}/messages",
    "/{broker}/retained",
    "/{broker}/sessions",
    "/sessions/{client_id}",
    "/spend-cap",
    "/{broker}/streams",
    "/streams/stream",
    "/{broker}/topics",
    "/usage",
];

/// Whether a request reads so much that the server runs it with low priority. `route` is the template of its route.
#[must_use]
pub fn is_expensive(method: &Method, route: &str) -> bool {
    method.is_safe() && EXPENSIVE_READS.iter().any(|end| route.ends_with(end))
}

#[derive(Clone)]
pub(crate) struct RequestBudget {
    all: Arc<Semaphore>,
    organisations: Arc<Mutex<HashMap<Uuid, TenantBudget>>>,
}

struct TenantBudget {
    places: Arc<Semaphore>,
    /// The request that reads and is next; the others wait behind it, so that a change waits for two requests at most.
    reads: Arc<Semaphore>,
    /// Requests that run or wait, by kind.
    requests: HashMap<RequestKind, usize>,
    reads_by_account: HashMap<Uuid, usize>,
}

pub(crate) struct Turn {
    _all: Option<OwnedSemaphorePermit>,
    _own: OwnedSemaphorePermit,
    noted: BudgetGuard,
}

impl Turn {
    /// A shared permit for the holder of an organisation's own turn.
    pub(crate) async fn shared(&self) -> ApiResult<OwnedSemaphorePermit> {
        Arc::clone(&self.noted.budget.all).acquire_owned().await.map_err(|_| Problem::later(1))
    }
}

struct BudgetGuard {
    budget: RequestBudget,
    organisation: Uuid,
    account: Uuid,
    kind: RequestKind,
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
    /// `at_once`: requests of all organisations that run at once.
    pub(crate) fn of(at_once: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(at_once)), organisations: Arc::default() }
    }

    /// The caller must be a member of the organisation, so that strangers cannot use up its permits. `account`: the person behind the
    /// caller, who may have half of the waiting requests.
    pub(crate) async fn turn(&self, organisation: Uuid, account: Uuid) -> ApiResult<Turn> {
        self.wait(organisation, account, RequestKind::Read).await
    }

    /// A turn that does not wait for the requests that read, but for one: people change bans and spend caps in a hurry.
    pub(crate) async fn turn_of_change(&self, organisation: Uuid, account: Uuid) -> ApiResult<Turn> {
        self.wait(organisation, account, RequestKind::Change).await
    }

    /// As [`RequestBudget::turn`], however many requests of the organisation wait: an answer that has begun cannot be refused any more. The
    /// shares of streams limit how many such answers there are.
    pub(crate) async fn turn_of_export(&self, organisation: Uuid, account: Uuid) -> ApiResult<Turn> {
        self.wait(organisation, account, RequestKind::Export).await
    }

    /// A turn without a shared permit, so that others need not wait for it. For a request that waits for pods, for seconds if one
    /// does not answer, or that takes shared permits later by [`Turn::shared`].
    pub(crate) async fn own_turn(&self, organisation: Uuid, account: Uuid) -> ApiResult<Turn> {
        self.own(organisation, account, RequestKind::Read).await
    }

    pub(crate) async fn own_turn_of_change(&self, organisation: Uuid, account: Uuid) -> ApiResult<Turn> {
        self.own(organisation, account, RequestKind::Change).await
    }

    async fn wait(&self, organisation: Uuid, account: Uuid, kind: RequestKind) -> ApiResult<Turn> {
        // The organisation's own permit comes first: while a request waits for it, it holds no permit of the shared
        // ones.
        let own = self.own(organisation, account, kind).await?;
        let all = own.shared().await?;
        Ok(Turn { _all: Some(all), ..own })
    }

    async fn own(&self, organisation: Uuid, account: Uuid, kind: RequestKind) -> ApiResult<Turn> {
        let (noted, reads, places) = self.note(organisation, account, kind)?;
        let _next = match kind {
            RequestKind::Change => None,
            RequestKind::Read | RequestKind::Export => Some(acquire(reads).await?),
        };
        Ok(Turn { _all: None, _own: acquire(places).await?, noted })
    }

    #[allow(clippy::type_complexity, reason = "both queues of the organisation")]
    fn note(
        &self,
        organisation: Uuid,
        account: Uuid,
        kind: RequestKind,
    ) -> ApiResult<(BudgetGuard, Arc<Semaphore>, Arc<Semaphore>)> {
        let mut all = self.organisations.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || TenantBudget {
            places: Arc::new(Semaphore::new(EXPENSIVE_PER_ORGANISATION)),
            reads: Arc::new(Semaphore::new(1)),
            requests: HashMap::new(),
            reads_by_account: HashMap::new(),
        };
        let tenant = all.entry(organisation).or_insert_with(new);
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
        let (reads, places) = (Arc::clone(&tenant.reads), Arc::clone(&tenant.places));
        drop(all);
        Ok((BudgetGuard { budget: self.clone(), organisation, account, kind }, reads, places))
    }
}

async fn acquire(permits: Arc<Semaphore>) -> ApiResult<OwnedSemaphorePermit> {
    permits.acquire_owned().await.map_err(|_| Problem::later(1))
}

impl Drop for BudgetGuard {
    fn drop(&mut self) {
        let mut all = self.budget.organisations.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tenant) = all.get_mut(&self.organisation) else { return };
        take_one(&mut tenant.requests, &self.kind);
        if self.kind == RequestKind::Read {
            take_one(&mut tenant.reads_by_account, &self.account);
        }
        if tenant.requests.is_empty() {
            all.remove(&self.organisation);
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
        assert_eq!(expensive.count(), 15);
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
        assert!(budget.organisations.lock().unwrap().is_empty());
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

    #[tokio::test]
    async fn a_change_waits_for_the_request_that_runs_and_not_for_those_that_read_after_it() {
        let (budget, plant) = (RequestBudget::default(), Uuid::from_u128(1));
        let (eve, ann) = (Uuid::from_u128(2), Uuid::from_u128(3));
        let (asked, mut order) = tokio::sync::mpsc::channel(100);
        let runs = budget.turn(plant, eve).await.ok().unwrap();
        for number in 0..10 {
            let (budget, asked) = (budget.clone(), asked.clone());
            tokio::spawn(async move {
                let turn = budget.turn(plant, eve).await.ok().unwrap();
                asked.send(number).await.unwrap();
                drop(turn);
            });
        }
        // On one thread, all have asked when this task continues.
        tokio::task::yield_now().await;
        let changes = tokio::spawn(async move {
            let _turn = budget.turn_of_change(plant, ann).await.ok().unwrap();
            asked.send(100).await.unwrap();
        });
        tokio::task::yield_now().await;
        drop(runs);
        changes.await.unwrap();
        let mut before = 0;
        while order.recv().await.is_some_and(|number| number != 100) {
            before += 1;
        }
        assert!(before <= 1, "{before}");
    }
}
