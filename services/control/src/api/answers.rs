//! Limits the bytes of answers that a server holds for clients that have not read them.
//!
//! An answer is made whole, and stays in memory until its client has read it. Without a limit, a caller with many
//! connections that reads none of its answers would take any amount of memory.

use std::convert::Infallible;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use uuid::Uuid;

use super::problem::{ApiResult, Problem};
use super::shares::{HeldAmounts, HolderShares, Share};
use crate::domain::Caller;
use crate::limits::{
    ANSWER_BYTES_COUNTED, ANSWER_BYTES_EACH_MAX, ANSWER_BYTES_MAX, ANSWER_BYTES_WRITTEN, HOLDER_DIVISOR,
};

/// Answers of changes are counted apart, because they are never refused: they must not take the room of reads.
#[derive(Clone, Default)]
pub(crate) struct AnswerPermits {
    reads: HolderShares,
    changes: HolderShares,
}

impl AnswerPermits {
    /// Refuses a change with a long answer if the account has not read earlier ones; otherwise counts the answer while the change is
    /// made.
    pub(super) fn reserve(&self, account: Uuid, bytes: usize) -> ApiResult<Share> {
        self.changes.take(vec![account], bytes, |held, _| has_room(held, account, bytes))
    }

    /// Counts a long answer until its client has read it, unless too much waits already, of the account or in all.
    fn take(&self, account: Uuid, bytes: usize, is_change: bool) -> ApiResult<Share> {
        match is_change {
            true => self.changes.take(vec![account], bytes, |_, _| Ok(())),
            false => self.reads.take(vec![account], bytes, |held, _| has_room(held, account, bytes)),
        }
    }

    /// Replaces an answer by a problem if too much waits, unless a change was made: its answer may have the only copy of a
    /// secret, so it is counted all the same.
    pub(super) async fn hold(
        &self,
        caller: Option<&Caller>,
        is_change: bool,
        response: Response,
    ) -> Response {
        let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        let (Some(caller), Some(bytes)) = (caller, bytes.filter(|bytes| *bytes > ANSWER_BYTES_COUNTED))
        else {
            return response;
        };
        let share = match self.take(caller.account(), bytes, is_change) {
            Ok(share) => share,
            Err(problem) => return problem.into_response(),
        };
        let (mut head, body) = response.into_parts();
        let Ok(whole) = to_bytes(body, bytes).await else { return Problem::given_up().into_response() };
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
        // Copies of small parts, so that the answer is freed when the connection has taken the last one: a part that is not a
        // copy would keep the whole answer.
        let parts = stream::unfold((whole, share), async |(mut left, share)| {
            let length = left.len().min(ANSWER_BYTES_WRITTEN);
            let part = Bytes::copy_from_slice(&left.split_to(length));
            (length > 0).then(|| (Ok::<_, Infallible>(part), (left, share)))
        });
        Response::from_parts(head, Body::from_stream(parts))
    }
}

fn has_room(held: &HeldAmounts, account: Uuid, bytes: usize) -> ApiResult<()> {
    let (free, own) = (ANSWER_BYTES_MAX.saturating_sub(held.all), held.of(account));
    // The more is held, the less one account may have, so that a few accounts never take all; an account's first may
    // exceed its part, because a caller with no other could not make room for it by reading.
    let most = ANSWER_BYTES_EACH_MAX.min(free / HOLDER_DIVISOR);
    if own > 0 && own + bytes > most {
        let detail = "earlier answers to you wait until you read them: read them, and then ask again";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
    }
    if bytes > free {
        let detail = "this server holds as many unread answers as it may: try again later";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Principal;

    fn caller(id: u128) -> Caller {
        let who = Principal::Person { user: Uuid::from_u128(id), email: String::new(), sign_in: [0; 32] };
        Caller { who, address: None, agent: None }
    }

    fn long(bytes: usize) -> Response {
        Response::new(Body::from(vec![b'x'; bytes]))
    }

    #[tokio::test]
    async fn a_caller_who_does_not_read_gets_no_more_until_an_answer_is_read() {
        const BYTES: usize = ANSWER_BYTES_EACH_MAX / 4;
        let answers = AnswerPermits::default();
        let ask = async |id: u128| answers.hold(Some(&caller(id)), false, long(BYTES)).await;
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(ask(1).await);
        }
        assert!(held.iter().all(|answer| answer.status() == StatusCode::OK));
        assert_eq!(ask(1).await.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(ask(2).await.status(), StatusCode::OK);
        let short = answers.hold(Some(&caller(1)), false, long(ANSWER_BYTES_COUNTED)).await;
        assert_eq!(short.status(), StatusCode::OK, "a short answer is not counted");
        let read = to_bytes(held.pop().unwrap().into_body(), usize::MAX).await.unwrap();
        assert_eq!(read.len(), BYTES);
        assert_eq!(ask(1).await.status(), StatusCode::OK);
        drop(held);
        let left = answers.reads.lock();
        assert_eq!((left.all, left.holders()), (0, 0));
    }

    #[tokio::test]
    async fn a_few_callers_who_do_not_read_leave_room_for_others() {
        let (answers, mut held) = (AnswerPermits::default(), Vec::new());
        for id in 0..16 {
            loop {
                let answer = answers.hold(Some(&caller(id)), false, long(1 << 20)).await;
                if answer.status() != StatusCode::OK {
                    break;
                }
                held.push(answer);
            }
        }
        let all = answers.reads.lock().all;
        assert!(all <= ANSWER_BYTES_MAX, "{all}");
        assert_eq!(answers.hold(Some(&caller(100)), false, long(1 << 20)).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_caller_with_nothing_to_read_hears_that_the_server_is_full() {
        let (answers, mut held) = (AnswerPermits::default(), Vec::new());
        for id in 0..4 {
            held.push(answers.hold(Some(&caller(id)), false, long(ANSWER_BYTES_MAX / 4 - 1)).await);
        }
        let refused = answers.hold(Some(&caller(4)), false, long(1 << 20)).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn answers_of_changes_are_never_refused_and_take_no_room_of_reads() {
        let answers = AnswerPermits::default();
        let (ann, eve) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(answers.hold(Some(&caller(2)), true, long(ANSWER_BYTES_MAX / 4)).await);
        }
        assert!(held.iter().all(|answer| answer.status() == StatusCode::OK));
        for (account, status) in
            [(eve, StatusCode::TOO_MANY_REQUESTS), (ann, StatusCode::SERVICE_UNAVAILABLE)]
        {
            let refused = answers.reserve(account, 1 << 20).err().unwrap().into_response();
            assert_eq!(refused.status(), status);
        }
        assert_eq!(answers.hold(Some(&caller(1)), false, long(1 << 20)).await.status(), StatusCode::OK);
        held.clear();
        let shares: Vec<_> = std::iter::from_fn(|| answers.reserve(eve, 2 << 20).ok()).take(100).collect();
        assert!((8..=16).contains(&shares.len()), "{}", shares.len());
        assert!(answers.reserve(ann, 2 << 20).is_ok());
    }

    #[tokio::test]
    async fn the_parts_of_an_answer_are_the_answer() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let answer = AnswerPermits::default()
            .hold(Some(&caller(1)), false, Response::new(Body::from(text.clone())))
            .await;
        assert_eq!(answer.headers()[header::CONTENT_LENGTH], text.len().to_string());
        assert_eq!(to_bytes(answer.into_body(), usize::MAX).await.unwrap(), text);
    }
}
