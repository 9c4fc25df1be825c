//! Every limit of calls: name, unit, why.

use std::time::Duration;

/// Longest URL, bytes: what browsers and proxies take.
pub const URL_BYTES_MAX: usize = 2_048;
/// Calls under way. Each may hold an answer in memory, of a few KiB as a rule.
pub const CALLS_MAX: usize = 1_024;
/// Calls under way to one host and port. A service that answers in 50 ms is asked 1,280 times a second then.
pub const CALLS_PER_HOST_MAX: usize = 64;
/// Calls under way or waiting for a place, to one host and port; more are refused at once.
pub const WAITING_PER_HOST_MAX: usize = 1_024;
/// Calls under way or waiting for a place; more are refused at once.
pub const WAITING_MAX: usize = 16_384;
/// Connections, idle ones too: a file descriptor and some 20 KiB each.
pub const CONNECTIONS_MAX: usize = 2_048;
/// Idle connections to one host.
pub const IDLE_PER_HOST_MAX: usize = 16;
/// How long an idle connection is kept: long enough for a service that is asked all the time, and few servers close sooner.
pub const IDLE_MAX: Duration = Duration::from_secs(15);
/// How long a connection may take to be made, with TLS. A call whose own time is shorter does not wait for it.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long one address of a host is tried, before its next one is.
pub const ADDRESS_MAX: Duration = Duration::from_secs(3);
/// Addresses of a host that are tried.
pub const ADDRESSES_MAX: usize = 4;
/// Addresses of a host that are looked at.
pub const RESOLVED_MAX: usize = 32;
/// Names that are resolved at once: each takes a thread of the runtime until the system's resolver gives up.
pub const LOOKUPS_MAX: usize = 256;
/// Names of one zone that are resolved at once: 64 zones with slow name servers are needed to hold all places.
pub const LOOKUPS_PER_ZONE_MAX: usize = 4;
/// How long a name may take to be resolved, with waiting for a place.
pub const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// Largest head of an answer, bytes.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
