//! Limits expensive requests at once, per organisation and in all, so that no tenant occupies all threads and cores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::Method;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::problem::{ApiResult, Problem};
use crate::limits::{EXPENSIVE_AT_ONCE, EXPENSIVE_PER_ORGANISATION, EXPENSIVE_WAITING_MAX};

/// Ends of the templates of routes whose answers to `GET` need a turn that counts for all organisations.
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

/// Whether a request reads so much that others should not wait for it. `route` is the template of its route.
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
    /// Requests that run or wait, but exports.
    requests: usize,
    exports: usize,
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
    kind: RequestKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Request,
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

    /// The caller must be a member of the organisation, so that strangers cannot use up its permits.
    pub(crate) async fn turn(&self, organisation: Uuid) -> ApiResult<Turn> {
        self.wait(organisation, RequestKind::Request).await
    }

    /// As [`RequestBudget::turn`], however many requests of the organisation wait: an answer that has begun cannot be refused any more. The
    /// shares of streams limit how many such answers there are.
    pub(crate) async fn turn_of_export(&self, organisation: Uuid) -> ApiResult<Turn> {
        self.wait(organisation, RequestKind::Export).await
    }

    /// A turn without a shared permit, so that others need not wait for it. For a request that waits for pods, for seconds if one
    /// does not answer, or that takes shared permits later by [`Turn::shared`].
    pub(crate) async fn own_turn(&self, organisation: Uuid) -> ApiResult<Turn> {
        self.own(organisation, RequestKind::Request).await
    }

    async fn wait(&self, organisation: Uuid, kind: RequestKind) -> ApiResult<Turn> {
        // The organisation's own permit comes first: while a request waits for it, it holds no permit of the shared
        // ones.
        let own = self.own(organisation, kind).await?;
        let all = own.shared().await?;
        Ok(Turn { _all: Some(all), ..own })
    }

    async fn own(&self, organisation: Uuid, kind: RequestKind) -> ApiResult<Turn> {
        let (noted, own) = self.note(organisation, kind)?;
        let own = own.acquire_owned().await.map_err(|_| Problem::later(1))?;
        Ok(Turn { _all: None, _own: own, noted })
    }

    fn note(&self, organisation: Uuid, kind: RequestKind) -> ApiResult<(BudgetGuard, Arc<Semaphore>)> {
        let mut all = self.organisations.lock().unwrap_or_else(PoisonError::into_inner);
        let places = || Arc::new(Semaphore::new(EXPENSIVE_PER_ORGANISATION));
        let new = || TenantBudget { places: places(), requests: 0, exports: 0 };
        let tenant = all.entry(organisation).or_insert_with(new);
        match kind {
            RequestKind::Request if tenant.requests >= EXPENSIVE_PER_ORGANISATION + EXPENSIVE_WAITING_MAX => {
                return Err(Problem::later(1));
            }
            RequestKind::Request => tenant.requests += 1,
            RequestKind::Export => tenant.exports += 1,
        }
        let own = Arc::clone(&tenant.places);
        drop(all);
        Ok((BudgetGuard { budget: self.clone(), organisation, kind }, own))
    }
}

impl Drop for BudgetGuard {
    fn drop(&mut self) {
        let mut all = self.budget.organisations.lock().unwrap_or_else(PoisonError::into_inner);
        let left = all.get_mut(&self.organisation).map(|tenant| {
            match self.kind {
                RequestKind::Request => tenant.requests -= 1,
                RequestKind::Export => tenant.exports -= 1,
            }
            tenant.requests + tenant.exports
        });
        if left == Some(0) {
            all.remove(&self.organisation);
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
        let mut turns: Vec<_> =
            (0..EXPENSIVE_PER_ORGANISATION).map(|_| now(budget.turn(one)).unwrap().ok().unwrap()).collect();
        assert!(now(budget.turn(one)).is_none(), "waits");
        assert!(now(budget.turn(other)).unwrap().is_ok());
        let noted: Vec<_> = (0..EXPENSIVE_WAITING_MAX)
            .map(|_| budget.note(one, RequestKind::Request).ok().unwrap())
            .collect();
        assert!(now(budget.turn(one)).unwrap().is_err(), "too many wait");
        assert!(now(budget.turn_of_export(one)).is_none(), "an export waits all the same");
        drop(noted);
        turns.pop();
        assert!(now(budget.turn(one)).unwrap().is_ok());
        turns.clear();
        assert!(budget.organisations.lock().unwrap().is_empty());
    }
}
