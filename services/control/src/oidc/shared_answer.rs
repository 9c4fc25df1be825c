//! An answer of the provider that requests share. Strangers begin sign-ins, and each would otherwise cost the provider a request.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::OidcError;
use crate::limits::{PROVIDER_CONFIGURATION_S, PROVIDER_FAILED_S};

pub(super) struct SharedAnswer<T>(Mutex<Option<KnownAnswer<T>>>);

struct KnownAnswer<T> {
    answer: Result<Arc<T>, OidcError>,
    /// Unix seconds at which the provider is asked again.
    until_s: u64,
}

impl<T> SharedAnswer<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Asks the provider when the known answer is too old, one request at a time. While it fails, the old answer counts.
    pub(super) async fn get(
        &self,
        now_s: u64,
        ask: impl Future<Output = Result<T, OidcError>>,
    ) -> Result<Arc<T>, OidcError> {
        let mut known = self.0.lock().await;
        // A clock that was set back does not make an answer last longer.
        let is_new = |known: &&KnownAnswer<T>| {
            (1..=PROVIDER_CONFIGURATION_S).contains(&known.until_s.saturating_sub(now_s))
        };
        if let Some(known) = known.as_ref().filter(is_new) {
            return known.answer.clone();
        }
        let (answer, lasts_s) = match (ask.await, known.take()) {
            (Ok(answer), _) => (Ok(Arc::new(answer)), PROVIDER_CONFIGURATION_S),
            (Err(error), Some(KnownAnswer { answer: Ok(old), .. })) => {
                tracing::warn!(%error, "the provider's configuration cannot be read again: its last one counts");
                (Ok(old), PROVIDER_FAILED_S)
            }
            (Err(error), _) => (Err(error), PROVIDER_FAILED_S),
        };
        *known = Some(KnownAnswer { answer: answer.clone(), until_s: now_s + lasts_s });
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn one_answer_counts_for_ten_minutes_and_longer_while_the_provider_fails() {
        let (shared, asked) = (SharedAnswer::new(), Cell::new(0));
        let wrong = || Err(OidcError::Answer { what: "configuration", why: "x".into() });
        let get = async |now_s, answer: Result<u32, OidcError>| {
            let ask = async {
                asked.set(asked.get() + 1);
                answer
            };
            shared.get(now_s, ask).await.ok().map(|answer| *answer)
        };
        // (time, answer of the provider, answer to the request, how often the provider was asked)
        for (now_s, answer, expected, count) in [
            (1_000, wrong(), None, 1),
            (1_004, Ok(1), None, 1),
            (1_005, Ok(2), Some(2), 2),
            (1_604, Ok(3), Some(2), 2),
            (1_605, wrong(), Some(2), 3),
            (1_609, Ok(4), Some(2), 3),
            (1_610, Ok(5), Some(5), 4),
            (2_209, wrong(), Some(5), 4),
            (5, Ok(6), Some(6), 5),
        ] {
            assert_eq!((get(now_s, answer).await, asked.get()), (expected, count), "{now_s}");
        }
    }
}
