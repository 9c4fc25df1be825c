//! Who may enter a tenant's broker, and what they may do there, as the store says.
//!
//! A broker that the control plane has made or set up is *managed*: its records ([`Loaded`]) are read when it is opened, and again
//! when the store says that they have changed. For all others the files of the [`crate::authenticator`] count.
//!
//! Event loops leave CONNECTs at the [`Desk`]; its threads read credentials, many at once, check what was shown, and answer with mail
//! ([`Entered`], [`Reviewed`]). Passwords that people chose go on to threads of their own ([`passwords`]). A client that
//! authenticates by SCRAM comes twice ([`Attempt`]): with its name, and with its proof.
//!
//! Whose token needs keys that are not there waits on the [`shelf`] while they are fetched ([`fetch`]); whom a tenant's service is
//! asked about waits in [`webhooks`]. One thread makes these [`calls`]; what it brings goes back to the threads of the desk.

mod calls;
mod connect_token;
mod desk;
mod fetch;
mod limits;
mod passwords;
mod records;
mod scram;
mod shelf;
mod tally;
mod watch;
mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_access::entry::{BrokerAccess, Grant, Refusal, Standing};
use millrace_access::scram::{Enhanced, FakeKey};
use millrace_access::secrets::generated::HashKeys;
use millrace_authentication::Cancellation;

pub(crate) use connect_token::is_likely as is_connect_token;
pub(crate) use desk::Desk;
pub(crate) use passwords::{checker_threads, counts_as_metrics};
pub(crate) use records::load;
pub(crate) use scram::{Attempt, Attempted, Progress};

use crate::broker::Broker;
use crate::core::connection::ConnectionId;

/// What the store says of a managed broker.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) access: BrokerAccess,
    pub(crate) keys: HashKeys,
    /// What users that do not exist look like.
    pub(crate) fake: FakeKey,
    /// How often it had changed when it was read.
    pub(crate) changes: u64,
}

/// Who a client of a managed broker is, and what it may do.
pub(crate) struct Granted {
    pub(crate) standing: Arc<Standing>,
    pub(crate) grant: Grant,
    /// [`Loaded::changes`] of when that was found out.
    pub(crate) changes: u64,
    /// While it authenticates anew: whose turn it is.
    pub(crate) anew: Option<Turn>,
}

/// Whose turn it is in an exchange of SCRAM.
pub(crate) enum Turn {
    /// The client's.
    Client(Box<Enhanced>),
    /// The desk's.
    Desk,
}

pub(crate) struct Applicant {
    pub(crate) connection: ConnectionId,
    pub(crate) broker: Arc<Broker>,
    pub(crate) client_id: Arc<str>,
    /// We chose the client id.
    pub(crate) assigned: bool,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) password: Option<Box<[u8]>>,
    pub(crate) cancellation: Cancellation,
    /// DER.
    pub(crate) certificate: Option<Box<[u8]>>,
}

/// A client that has entered, and whose rules may have changed.
pub(crate) struct Review {
    pub(crate) connection: ConnectionId,
    pub(crate) broker: Arc<Broker>,
    pub(crate) standing: Arc<Standing>,
}

/// Why a client does not enter.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    For(#[from] Refusal),
    #[error("the store could not be asked")]
    Unread,
    #[error("too many clients wait to be checked")]
    Busy,
}

pub(crate) struct Entered {
    pub(crate) connection: ConnectionId,
    pub(crate) outcome: Result<Granted, Refused>,
}

pub(crate) struct Reviewed {
    pub(crate) connection: ConnectionId,
    pub(crate) outcome: Result<Grant, Refusal>,
}
