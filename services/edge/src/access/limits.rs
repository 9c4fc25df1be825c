//! Limits of clients that wait for tenants' services: constants rather than settings, because they bound the cost that
//! tenants can cause each other.

use std::time::Duration;

use millrace_access::limits::{KEY_SET_AGE_S_MAX, KEY_SET_STALE_S_MAX, KEY_SET_TIMEOUT_MS};

/// Cached key sets; the least recently used one is evicted. A set of a few keys has some 2 KiB, the largest 50 KiB.
pub(super) const KEY_SETS_MAX: usize = 10_000;
pub(super) const KEY_SETS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// A key set that nobody has used for this long is forgotten, seconds. Its keys may be needed while its issuer is down for a day.
pub(super) const KEY_SET_UNUSED_S_MAX: u64 = (KEY_SET_AGE_S_MAX + KEY_SET_STALE_S_MAX) as u64;
/// Interval between two looks for such key sets, seconds.
pub(super) const KEY_SETS_LOOK_S: u64 = 600;
/// Clients that wait for key sets, with a token of 16 KiB at most each; more get "server unavailable".
pub(super) const WAITING_FOR_KEYS_MAX: usize = 10_000;
/// A tenant's waiting clients may be this part (1/n) of the free places, so 2,000 of its clients fit while no others wait.
pub(super) const WAITING_FOR_KEYS_PART: usize = 4;
pub(super) const KEY_SET_TIMEOUT: Duration = Duration::from_millis(KEY_SET_TIMEOUT_MS as u64);

/// Webhook requests (questions to a tenant's service) of one tenant in progress. A service that responds in 50 ms handles them
/// in less than a second.
pub(super) const QUESTIONS_PER_TENANT_MAX: usize = 1_000;
pub(super) const QUESTIONS_MAX: usize = 10_000;
/// The same part (1/n) for requests.
pub(super) const QUESTIONS_PART: usize = 8;
/// Clients that wait for the same response: one client that reconnects again and again.
pub(super) const WAITING_PER_QUESTION_MAX: usize = 100;
/// Cached responses, some 200 bytes each as a rule, and 4 KiB with the longest rules that are cached.
pub(super) const ANSWERS_MAX: usize = 20_000;
pub(super) const ANSWERS_BYTES_MAX: usize = 32 * 1024 * 1024;
