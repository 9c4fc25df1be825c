//! Authentication and authorization of the clients of managed brokers, from the records in the store.
//!
//! A broker that the control plane has created, or whose access has been set there, is *managed*: its records
//! ([`crate::authorization::LoadedAccess`]) are read when it is opened, and again when the store reports a change. All other
//! brokers use the files of the [`crate::authenticator`]. Limits and bans apply to both.
//!
//! Event loops queue CONNECTs at the [`AuthenticationService`]. Its threads read many credentials at once, check them, and reply
//! by mail ([`crate::authorization`]). Chosen passwords go to threads of their own ([`passwords`]). A client that
//! authenticates by SCRAM is queued twice ([`ScramAttempt`]): with its name, and with its proof.
//!
//! A client whose token needs missing keys waits on the [`key_set_cache`] while they are fetched ([`fetch`]). A client that waits
//! for its webhook is in [`webhooks`]. One thread makes these [`calls`] and returns the clients to the queue.

mod calls;
mod connect_token;
mod fetch;
mod job_queue;
mod key_set_cache;
mod limits;
mod passwords;
mod records;
mod result_counters;
mod scram;
mod service;
mod watch;
mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_access::entry::ProvenIdentity;
use millrace_authentication::Cancellation;

pub(crate) use connect_token::is_likely as is_connect_token;
pub(crate) use passwords::{checker_threads, counts_as_metrics};
pub(crate) use records::load;
pub(crate) use scram::ScramAttempt;
pub(crate) use service::AuthenticationService;

use crate::broker::Broker;
use crate::connection_id::ConnectionId;

pub(crate) struct AuthenticationRequest {
    pub(crate) connection: ConnectionId,
    pub(crate) broker: Arc<Broker>,
    pub(crate) client_id: Arc<str>,
    /// The server chose the client id.
    pub(crate) assigned: bool,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) password: Option<Box<[u8]>>,
    pub(crate) cancellation: Cancellation,
    /// DER.
    pub(crate) certificate: Option<Box<[u8]>>,
}

/// A connected client whose permissions may have changed.
pub(crate) struct Review {
    pub(crate) connection: ConnectionId,
    pub(crate) broker: Arc<Broker>,
    pub(crate) client_id: Arc<str>,
    pub(crate) identity: Arc<ProvenIdentity>,
}
