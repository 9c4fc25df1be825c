//! Fetches key sets of token issuers. A client whose token needs keys that are not in the cache waits here until the fetch ends.
//!
//! The authentication thread calls [`KeySetLookup`], which never waits and starts missing fetches. If keys were missing, it hands the client to
//! [`wait`]. The end of a fetch queues the waiting clients for authentication again.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::{ACCEPT, AGE, CACHE_CONTROL, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use millrace_access::entry;
use millrace_access::jwt::KeySet;
use millrace_access::limits::KEY_SET_BYTES_MAX;
use millrace_outgoing::Call;

use super::AuthenticationRequest;
use super::job_queue::AccessJob;
use super::key_set_cache::{Fetched, KeySetCache, KeySetId, Waits};
use super::limits::KEY_SET_TIMEOUT;
use super::result_counters::{ResultCounters, Results, gauge, results};
use super::service::AccessContext;
use crate::authorization::AccessDecision;
use crate::metrics::Metric;

const RESULTS: Results = results!("fetched" "status" "invalid" "url" "forbidden" "insecure" "resolve" "connect" "tls" "timeout"
    "too_long" "busy" "http");

pub(super) struct KeySetFetcher {
    cache: Mutex<KeySetCache<Box<AuthenticationRequest>>>,
    fetches: ResultCounters,
}

pub(super) struct KeySetLookup<'a> {
    shared: &'a Arc<AccessContext>,
    tenant: Arc<str>,
    /// [`KeySetCache::fetches`] (of all key sets) at its first lookup.
    fetches: Cell<Option<u64>>,
}

impl KeySetFetcher {
    pub(super) fn new() -> Self {
        let help = "Fetches of key sets of issuers, by result.";
        Self {
            cache: Mutex::new(KeySetCache::new()),
            fetches: ResultCounters::new("millrace_key_set_fetches_total", help, RESULTS),
        }
    }

    pub(super) fn metrics(&self) -> Vec<(Metric, u64)> {
        let (sets, waiting) = self.cache().sizes();
        let sizes = [
            gauge("millrace_key_sets", "Key sets of issuers in the cache, fetched or pending.", sets),
            gauge("millrace_key_set_waiting", "Clients that wait for a key set.", waiting),
        ];
        self.fetches.metrics().chain(sizes).collect()
    }

    fn cache(&self) -> MutexGuard<'_, KeySetCache<Box<AuthenticationRequest>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl entry::KeySets for KeySetLookup<'_> {
    fn get(&self, url: &str) -> Option<Arc<KeySet>> {
        let id = KeySetId { tenant: self.tenant.clone(), url: url.into() };
        let mut cache = self.shared.key_sets.cache();
        self.fetches.set(self.fetches.get().or(Some(cache.fetches())));
        let (keys, needs_fetch) = cache.get(&id, self.shared.now_s());
        drop(cache);
        if needs_fetch {
            fetch(self.shared, id);
        }
        keys
    }
}

impl<'a> KeySetLookup<'a> {
    pub(super) fn new(shared: &'a Arc<AccessContext>, tenant: Arc<str>) -> Self {
        Self { shared, tenant, fetches: Cell::new(None) }
    }

    pub(super) fn fetches(&self) -> u64 {
        self.fetches.get().unwrap_or_default()
    }
}

/// Keeps a client waiting until the key set of one of `urls` is fetched. If a fetch has ended since the client's lookup
/// ([`KeySetLookup::fetches`]), the client is authenticated again at once. If none is under way or too many clients wait, it is refused.
pub(super) fn wait(
    shared: &Arc<AccessContext>,
    request: Box<AuthenticationRequest>,
    urls: Vec<Box<str>>,
    fetches: u64,
) {
    let tenant = request.broker.tenant();
    let ids: Vec<_> = urls.into_iter().map(|url| KeySetId { tenant: tenant.clone(), url }).collect();
    let (to_fetch, waits) = shared.key_sets.cache().wait(&ids, request, fetches, shared.now_s());
    for id in to_fetch {
        fetch(shared, id);
    }
    match waits {
        Waits::Yes => {}
        Waits::Again(request) => shared.queue_again(AccessJob::Connect(request)),
        Waits::No(request, refusal) => {
            shared.report(AccessDecision { connection: request.connection, outcome: Err(refusal.into()) });
        }
    }
}

fn fetch(shared: &Arc<AccessContext>, id: KeySetId) {
    let to = shared.clone();
    shared.calls.spawn(async move {
        let fetched = get(&to, &id).await;
        let waited = to.key_sets.cache().fetched(&id, fetched, to.now_s());
        for request in waited {
            to.queue_again(AccessJob::Connect(request));
        }
    });
}

async fn get(shared: &AccessContext, id: &KeySetId) -> Fetched {
    let call = Call {
        method: Method::GET,
        url: &id.url,
        share: &id.tenant,
        headers: HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]),
        body: Bytes::new(),
        timeout: KEY_SET_TIMEOUT,
        answer_bytes_max: KEY_SET_BYTES_MAX,
    };
    let failed = |result: &str, what: &dyn std::fmt::Display| {
        shared.key_sets.fetches.add(result);
        // The cache fetches a key set every 30 s at most, so this warning needs no limit. The query may hold a secret.
        let url = id.url.split('?').next();
        tracing::warn!(url, reason = result, error = %what, "the key set of an issuer cannot be fetched: clients whose tokens need its keys are refused and may try again, so its tenant must check the URL");
        None
    };
    match shared.calls.call(call).await {
        Err(error) => failed(error.reason(), &error),
        Ok(answer) if answer.status != StatusCode::OK => failed("status", &answer.status),
        Ok(answer) => match KeySet::parse(&answer.body) {
            Err(error) => failed("invalid", &error),
            Ok(keys) => {
                shared.key_sets.fetches.add("fetched");
                Some((keys, age_s(&answer.headers)))
            }
        },
    }
}

/// The `max-age` of a response (RFC 9111 sections 4.2.1 and 5.1).
fn age_s(headers: &HeaderMap) -> Option<u32> {
    let says = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let directives: Vec<_> = says.flat_map(|value| value.split(',')).map(str::trim).collect();
    let is = |name: &str| directives.iter().any(|directive| directive.eq_ignore_ascii_case(name));
    if is("no-store") || is("no-cache") {
        return Some(0);
    }
    let max_age = directives.iter().find_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        name.eq_ignore_ascii_case("max-age").then(|| value.trim_matches('"').parse().unwrap_or(0))
    })?;
    let age = headers.get(AGE).and_then(|age| age.to_str().ok()?.parse::<u32>().ok());
    Some(u32::saturating_sub(max_age, age.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_a_key_set_counts_is_what_its_answer_says() {
        for (cache_control, age, expected) in [
            (None, None, None),
            (Some("public, Max-Age=600"), None, Some(600)),
            (Some("max-age=\"600\", must-revalidate"), Some("100"), Some(500)),
            (Some("max-age=600"), Some("700"), Some(0)),
            (Some("max-age=99999999999"), None, Some(0)),
            (Some("max-age=600, no-cache"), None, Some(0)),
            (Some("no-store"), None, Some(0)),
            (Some("private"), Some("5"), None),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(cache_control.map(|value| (CACHE_CONTROL, HeaderValue::from_static(value))));
            headers.extend(age.map(|value| (AGE, HeaderValue::from_static(value))));
            assert_eq!(age_s(&headers), expected, "{cache_control:?} {age:?}");
        }
    }
}
