//! Streams of server-sent events: how many there may be, and how long each goes on.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use axum::response::sse::Event;
use futures_util::stream::{self, Stream, StreamExt as _};
use serde_json::json;
use uuid::Uuid;

use super::Api;
use super::problem::{Answer, Problem};
use crate::domain::{BrokerRef, Caller, Permission};
use crate::limits::{STREAM_CHECKED_EVERY, STREAMS_MAX, STREAMS_PER_ORGANISATION_MAX};

/// The streams of a server, by organisation.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    all: usize,
    by_organisation: HashMap<Uuid, usize>,
}

/// The right to one stream. Dropped with it.
pub(crate) struct Share {
    streams: Streams,
    organisation: Uuid,
}

impl Streams {
    /// Lets an organisation have one more stream.
    pub(crate) fn take(&self, organisation: Uuid) -> Answer<Share> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.all >= STREAMS_MAX {
            let detail = "this server has as many streams as it may: try again later";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
        }
        let own = open.by_organisation.entry(organisation).or_default();
        if *own >= STREAMS_PER_ORGANISATION_MAX {
            let detail = format!(
                "your organisation has {STREAMS_PER_ORGANISATION_MAX} streams on this server, and that is the most: close one"
            );
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
        }
        *own += 1;
        open.all += 1;
        drop(open);
        Ok(Share { streams: self.clone(), organisation })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.all -= 1;
        let own = open.by_organisation.entry(self.organisation).or_default();
        *own -= 1;
        if *own == 0 {
            open.by_organisation.remove(&self.organisation);
        }
    }
}

/// Goes on while the caller may see the broker, which is looked at every few seconds. Then it says why it ends.
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
                    let Err(error) = api.control().may_go_on(&caller, &at, permission).await else { continue };
                    let why = json!({ "reason": error.to_string() });
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
    fn an_organisation_has_its_share_of_the_streams_and_gets_it_back() {
        let (streams, one, other) = (Streams::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        let held: Vec<_> = (0..STREAMS_PER_ORGANISATION_MAX).map(|_| streams.take(one).unwrap()).collect();
        assert!(streams.take(one).is_err());
        drop(streams.take(other).unwrap());
        drop(held);
        assert!(streams.take(one).is_ok());
        let open = streams.0.lock().unwrap();
        assert_eq!((open.all, open.by_organisation.len()), (0, 0));
    }
}
