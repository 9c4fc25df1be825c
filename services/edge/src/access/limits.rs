//! Limits of what clients wait for at tenants' services. They bound what tenants can cost each other, so they are no settings.

use std::time::Duration;

use millrace_access::limits::KEY_SET_TIMEOUT_MS;

/// Key sets that are kept, some 10 KiB each at the most. Beyond it the one that was not used for the longest time goes.
pub(super) const KEY_SETS_MAX: usize = 10_000;
/// Clients that wait for one key set, with a token of 16 KiB at the most each. More are told that the server is unavailable.
pub(super) const WAITING_PER_KEY_SET_MAX: usize = 2_000;
/// Clients that wait for any key set.
pub(super) const WAITING_FOR_KEYS_MAX: usize = 10_000;
/// See [`KEY_SET_TIMEOUT_MS`].
pub(super) const KEY_SET_TIMEOUT: Duration = Duration::from_millis(KEY_SET_TIMEOUT_MS as u64);

/// Questions of one broker under way. A service that answers in 50 ms answers as many in less than a second.
pub(super) const QUESTIONS_PER_BROKER_MAX: usize = 1_000;
/// Questions of all brokers under way.
pub(super) const QUESTIONS_MAX: usize = 10_000;
/// Clients that wait for the answer to one question: the same client again and again.
pub(super) const WAITING_PER_QUESTION_MAX: usize = 100;
/// Answers that are remembered, some 200 bytes each as a rule, and 64 KiB with the longest rules.
pub(super) const ANSWERS_MAX: usize = 20_000;
