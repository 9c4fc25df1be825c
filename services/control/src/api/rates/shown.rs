//! The header fields `RateLimit-Policy` and `RateLimit` of answers (draft-ietf-httpapi-ratelimit-headers-10): the rate
//! limits that have counted a request, and what is left of each.

use std::cell::RefCell;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use governor::Quota;

pub(crate) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

tokio::task_local! {
    static COUNTED: RefCell<Vec<Counted>>;
}

pub(super) struct Counted {
    pub(super) policy: &'static str,
    pub(super) quota: Quota,
    pub(super) left: u32,
}

/// Does nothing in work that a request has started beside itself.
pub(super) fn note(counted: Counted) {
    let _ = COUNTED.try_with(|all| {
        let mut all = all.borrow_mut();
        match all.iter_mut().find(|other| other.policy == counted.policy) {
            Some(other) => other.left = other.left.min(counted.left),
            None => all.push(counted),
        }
    });
}

pub(crate) async fn with_rate_limits(request: Request, next: Next) -> Response {
    let answered = async {
        let mut response = next.run(request).await;
        COUNTED.with(|all| write(&all.borrow(), &mut response));
        response
    };
    COUNTED.scope(RefCell::default(), answered).await
}

fn write(all: &[Counted], response: &mut Response) {
    for (name, one) in [(POLICY, Counted::policy as fn(&Counted) -> String), (LIMIT, Counted::limit)] {
        let items = all.iter().map(one).collect::<Vec<_>>().join(", ");
        if let Ok(value) = HeaderValue::try_from(items)
            && !value.is_empty()
        {
            response.headers_mut().insert(name, value);
        }
    }
}

impl Counted {
    /// `q`: permits at most; `w`: seconds in which that many come back.
    fn policy(&self) -> String {
        let window = self.quota.burst_size_replenished_in();
        format!("\"{}\";q={};w={}", self.policy, self.quota.burst_size(), whole_seconds(window))
    }

    /// `r`: permits left; `t`: seconds until all are back.
    fn limit(&self) -> String {
        let taken = self.quota.burst_size().get().saturating_sub(self.left);
        let until_full = self.quota.replenish_interval().saturating_mul(taken);
        format!("\"{}\";r={};t={}", self.policy, self.left, whole_seconds(until_full))
    }
}

/// Rounded up, so that a client that waits as long does not come too early.
fn whole_seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[tokio::test]
    async fn an_answer_shows_each_limit_once_with_the_least_that_is_left() {
        let quota = Quota::per_minute(NonZeroU32::new(20).unwrap());
        let counted = |policy, left| Counted { policy, quota, left };
        let shown = COUNTED.scope(RefCell::default(), async {
            for one in [counted("passwords", 20), counted("mails", 7), counted("passwords", 19)] {
                note(one);
            }
            let mut response = Response::default();
            COUNTED.with(|all| write(&all.borrow(), &mut response));
            response
        });
        let shown = shown.await;
        assert_eq!(shown.headers()[POLICY], "\"passwords\";q=20;w=60, \"mails\";q=20;w=60");
        assert_eq!(shown.headers()[LIMIT], "\"passwords\";r=19;t=3, \"mails\";r=7;t=39");
    }

    #[test]
    fn a_request_that_no_limit_has_counted_shows_none() {
        note(Counted { policy: "requests", quota: Quota::per_minute(NonZeroU32::MIN), left: 0 });
        let mut response = Response::default();
        write(&[], &mut response);
        assert!(response.headers().is_empty());
    }
}
