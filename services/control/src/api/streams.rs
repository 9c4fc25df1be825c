//! Limits the number and the duration of event streams.

use std::convert::Infallible;

use axum::http::StatusCode;
use axum::response::sse::Event;
use futures_util::stream::{self, Stream, StreamExt as _};
use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use super::Api;
use super::problem::{ApiResult, Problem};
use super::shares::{HolderShares, Share};
use crate::domain::{BrokerRef, Caller, Permission};
use crate::limits::{HOLDER_DIVISOR, STREAM_CHECKED_EVERY, STREAM_MAX, STREAMS_EACH_MAX, STREAMS_MAX};

#[derive(Clone, Default)]
pub(crate) struct StreamPermits(HolderShares);

impl StreamPermits {
    /// `person`: the one behind the caller; `None` for a token that does not say who made it.
    pub(crate) fn take(&self, organisation: Uuid, person: Option<Uuid>) -> ApiResult<Share> {
        let holders = [organisation].into_iter().chain(person).collect();
        self.0.take(holders, 1, |open, holders| {
            if open.all >= STREAMS_MAX {
                let detail = "this server has as many streams as it may: try again later";
                return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
            }
            let has = |least: usize| holders.iter().find(|id| open.of(**id) >= least);
            if let Some(full) = has(STREAMS_EACH_MAX) {
                let whose = if *full == organisation { "your organisation has" } else { "you have" };
                let detail =
                    format!("{whose} {STREAMS_EACH_MAX} streams on this server, and that is the most: close one");
                return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
            }
            // The more streams there are, the fewer one holder may have, so that a few holders never take all.
            let share = ((STREAMS_MAX - open.all) / HOLDER_DIVISOR).max(1);
            if has(share).is_some() {
                let detail =
                    "this server has so many streams that the rest are for others: close one, or try again later";
                return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
            }
            Ok(())
        })
    }
}

/// Passes the stream on while the caller may read the broker, checked every few seconds, and for [`STREAM_MAX`] at
/// most. The last event gives the reason for the end.
pub(crate) fn while_allowed<S>(
    api: &Api,
    caller: Caller,
    at: BrokerRef,
    permission: Permission,
    events: S,
    share: Share,
) -> impl Stream<Item = Result<Event, Infallible>> + use<S>
where
    S: Stream<Item = Event> + Send + 'static,
{
    let mut rounds = tokio::time::interval(STREAM_CHECKED_EVERY);
    rounds.reset();
    let until = Instant::now() + STREAM_MAX;
    let state = (api.clone(), caller, at, events.boxed(), rounds, share, false);
    stream::unfold(state, move |(api, caller, at, mut events, mut rounds, share, is_over)| async move {
        if is_over {
            return None;
        }
        loop {
            tokio::select! {
                event = events.next() => {
                    let event = event?;
                    return Some((Ok(event), (api, caller, at, events, rounds, share, false)));
                }
                _ = rounds.tick() => {
                    let reason = match api.control().may_go_on(&caller, &at, permission).await {
                        Err(error) => error.to_string(),
                        Ok(()) if Instant::now() >= until => "a stream lasts 12 hours at most: open it again".into(),
                        Ok(()) => continue,
                    };
                    let why = json!({ "reason": reason });
                    let end = Event::default().event("end").json_data(&why).ok()?;
                    return Some((Ok(end), (api, caller, at, events, rounds, share, true)));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_organisation_and_a_person_have_their_share_of_the_streams_and_get_it_back() {
        let (streams, one, other) = (StreamPermits::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        let ann = Some(Uuid::from_u128(3));
        let held: Vec<_> = (0..STREAMS_EACH_MAX).map(|_| streams.take(one, ann).unwrap()).collect();
        assert!(streams.take(one, None).is_err() && streams.take(other, ann).is_err());
        drop(streams.take(other, None).unwrap());
        drop(held);
        assert!(streams.take(one, ann).is_ok());
        let open = streams.0.lock();
        assert_eq!((open.all, open.holders()), (0, 0));
    }

    #[test]
    fn a_few_organisations_that_take_all_they_get_leave_streams_to_others() {
        let (streams, mut held) = (StreamPermits::default(), Vec::new());
        for id in 1..=8 {
            held.extend(std::iter::from_fn(|| streams.take(Uuid::from_u128(id), None).ok()));
            assert!(id > 1 || held.len() == STREAMS_EACH_MAX);
        }
        assert!(STREAMS_MAX - held.len() >= STREAMS_MAX / 5, "{}", held.len());
        assert!(streams.take(Uuid::from_u128(9), None).is_ok());
    }
}
