//! Repeats a request until it is answered, or refused for good.

use std::time::{Duration, Instant};

use super::client::FailedRequest;

/// Repeats of a request that the server refuses for the moment, naming when to come again.
const REPEATS_MAX: usize = 20;
/// Longest wait before such a repeat, seconds.
const REPEAT_AFTER_S_MAX: u64 = 120;
/// Waits before the repeats of a request whose result is unknown, seconds.
const BACK_OFF_S: [u64; 8] = [1, 2, 4, 8, 15, 30, 30, 30];
/// How long a request with an unknown result is repeated.
const UNKNOWN_MAX: Duration = Duration::from_secs(120);

/// Only for a request that has the same effect when the server receives it twice. `wait` reports the refusal and sleeps for
/// the number of seconds. A refusal that names no seconds means that the result is unknown.
#[allow(clippy::disallowed_methods, reason = "the time that a person at a terminal waits")]
pub(super) fn patiently<T>(
    mut send: impl FnMut() -> Result<T, FailedRequest>,
    mut wait: impl FnMut(&FailedRequest, u64),
) -> Result<T, FailedRequest> {
    let mut back_off = BACK_OFF_S.into_iter();
    let (mut repeats, mut unknown) = (0, Duration::ZERO);
    loop {
        let sent_at = Instant::now();
        let refused = match send() {
            Err(refused) if refused.is_for_now => refused,
            answered => return answered,
        };
        let seconds = match refused.retry_after_s {
            Some(seconds) => {
                repeats += 1;
                (repeats <= REPEATS_MAX && seconds <= REPEAT_AFTER_S_MAX).then_some(seconds)
            }
            None => {
                unknown += sent_at.elapsed();
                back_off.next().filter(|_| unknown < UNKNOWN_MAX)
            }
        };
        let Some(seconds) = seconds else { return Err(refused) };
        if refused.retry_after_s.is_none() {
            unknown += Duration::from_secs(seconds);
        }
        wait(&refused, seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    fn refused(is_for_now: bool, retry_after_s: Option<u64>) -> FailedRequest {
        FailedRequest {
            kind: None,
            status: None,
            is_for_now,
            retry_after_s,
            failure: Failure::Run("no".into()),
        }
    }

    /// The waits of a request that is refused `times` times, and whether it was answered then.
    fn waits(times: usize, is_for_now: bool, retry_after_s: Option<u64>) -> (Vec<u64>, bool) {
        let (mut sent, mut waited) = (0, Vec::new());
        let send = || {
            sent += 1;
            if sent > times { Ok(()) } else { Err(refused(is_for_now, retry_after_s)) }
        };
        let is_answered = patiently(send, |_, seconds| waited.push(seconds)).is_ok();
        (waited, is_answered)
    }

    #[test]
    fn a_request_is_repeated_after_the_time_that_the_server_names() {
        assert_eq!(waits(2, true, Some(5)), (vec![5, 5], true));
        assert_eq!(waits(1_000, true, Some(1)), (vec![1; REPEATS_MAX], false));
        assert_eq!(waits(1, true, Some(REPEAT_AFTER_S_MAX + 1)), (vec![], false));
    }

    #[test]
    fn a_request_without_an_answer_is_repeated_for_two_minutes() {
        assert_eq!(waits(3, true, None), (vec![1, 2, 4], true));
        assert_eq!(waits(1_000, true, None), (BACK_OFF_S.to_vec(), false));
        assert_eq!(BACK_OFF_S.iter().sum::<u64>(), UNKNOWN_MAX.as_secs());
    }

    #[test]
    fn a_request_that_is_refused_for_good_is_not_repeated() {
        assert_eq!(waits(1, false, None), (vec![], false));
    }
}
