//! Limits of all calls: constants, because together they bound memory, threads and file
//! descriptors.

use std::time::Duration;

/// Longest URL, bytes, as browsers and proxies accept it.
pub const URL_BYTES_MAX: usize = 2_048;
/// Calls in progress; as a rule each holds a connection and a response of a few KiB.
pub const CALLS_MAX: usize = 8_192;
/// Calls in progress of one share (a tenant): one slow host leaves a third of them, and exhausting all calls takes 86 tenants.
pub const CALLS_PER_SHARE_MAX: usize = 96;
/// Calls of a share in progress to one host and port: 1,280 a second if each takes 50 ms.
pub const CALLS_PER_HOST_MAX: usize = 64;
/// Calls in progress or queued to one host and port, and (below) to all hosts; further calls fail at once.
pub const WAITING_PER_HOST_MAX: usize = 1_024;
pub const WAITING_MAX: usize = 16_384;
/// Unused connections: a file descriptor and some 20 KiB each. With more of them, a call closes its own at its end.
pub const CONNECTIONS_IDLE_MAX: usize = 2_048;
pub const CONNECTIONS_MAX: usize = CALLS_MAX + CONNECTIONS_IDLE_MAX;
pub const IDLE_PER_HOST_MAX: usize = 16;
/// How long an unused connection stays open. Busy services reuse it sooner, and few servers close
/// it sooner.
pub const IDLE_MAX: Duration = Duration::from_secs(15);
/// Longest connection attempt, with TLS, unless the call's own timeout is shorter.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest attempt to connect to one address of a host.
pub const ADDRESS_MAX: Duration = Duration::from_secs(3);
/// Addresses of a host that a call tries, and (below) that a lookup keeps.
pub const ADDRESSES_MAX: usize = 4;
pub const RESOLVED_MAX: usize = 32;
/// Concurrent name lookups: while name servers are silent, up to twelve sockets each.
pub const LOOKUPS_MAX: usize = 1_024;
/// Concurrent lookups of one share: exhausting all lookups takes 128 tenants.
pub const LOOKUPS_PER_SHARE_MAX: usize = 8;
/// After this time a name server is asked again.
pub const TRY_MAX: Duration = Duration::from_secs(2);
/// Longest wait for addresses of one family, once there are some of the other.
pub const OTHER_FAMILY_MAX: Duration = Duration::from_millis(500);
/// How long the system's name servers and hosts are used before their files are read again.
pub const RESOLVER_KEPT: Duration = Duration::from_secs(60);
/// How long the result of a lookup is used. A call looks its host up before it takes a connection.
pub const LOOKUP_KEPT: Duration = Duration::from_secs(5);
/// How long a result is used while the host cannot be resolved, as RFC 8767 section 5 allows.
pub const LOOKUP_STALE_MAX: Duration = Duration::from_secs(3_600);
/// After this time a lookup that has an older result uses it, as RFC 8767 section 5 recommends: most calls have two seconds.
pub const LOOKUP_STALE_AFTER: Duration = Duration::from_secs(1);
pub const LOOKUPS_KEPT_MAX: usize = 4_096;
/// Longest lookup of a name, the time in the queue included.
pub const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// Status line and headers of a response.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
