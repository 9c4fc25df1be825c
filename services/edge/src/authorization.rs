//! Data of authentication: the access settings of a broker, and the results that event loops get by mail.
//!
//! The types stand here because brokers own the settings and mail carries the results. [`crate::access`] and
//! [`crate::authenticator`] create them, event loops apply them, and nothing here reads the store or checks a password.

use std::sync::Arc;

use millrace_access::entry::{AccessRefusal, BrokerAccess, Grant, ProvenIdentity};
use millrace_access::model::Limits;
use millrace_access::scram::{Enhanced, FakeKey};
use millrace_access::secrets::generated::HashKeys;

use crate::connection_id::ConnectionId;

#[derive(Debug)]
pub(crate) struct LoadedAccess {
    pub(crate) access: BrokerAccess,
    pub(crate) hash_keys: HashKeys,
    /// The key of fake SCRAM verifiers for unknown users.
    pub(crate) fake: FakeKey,
    /// The broker's change counter when the records were read.
    pub(crate) changes: u64,
}

/// A broker's records as they are in the store now.
pub(crate) struct BrokerRecords {
    /// `None`: the server's settings decide who may connect.
    pub(crate) access: Option<LoadedAccess>,
    pub(crate) limits: Limits,
    /// Somebody can see the broker's incidents.
    pub(crate) has_tenant: bool,
    pub(crate) changes: u64,
}

pub(crate) struct Granted {
    pub(crate) identity: Arc<ProvenIdentity>,
    pub(crate) grant: Grant,
    /// [`LoadedAccess::changes`] of the records that decided.
    pub(crate) changes: u64,
    /// The state of a re-authentication, while it lasts.
    pub(crate) anew: Option<ExchangeTurn>,
}

/// The side whose step comes next: the client's AUTH with the state to check it, or the server's check.
pub(crate) enum ExchangeTurn {
    Client(Box<Enhanced>),
    Server,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Denied {
    #[error(transparent)]
    For(#[from] AccessRefusal),
    #[error("the store could not be asked")]
    Unread,
    #[error("too many clients wait to be checked")]
    Busy,
}

pub(crate) struct AccessDecision {
    pub(crate) connection: ConnectionId,
    pub(crate) outcome: Result<Granted, Denied>,
}

pub(crate) struct Reviewed {
    pub(crate) connection: ConnectionId,
    pub(crate) outcome: Result<Grant, AccessRefusal>,
}

pub(crate) struct Attempted {
    pub(crate) connection: ConnectionId,
    pub(crate) outcome: Result<ExchangeStep, Denied>,
}

/// Enhanced authentication after one packet of the client, with the data of the answer.
pub(crate) enum ExchangeStep {
    Challenged(Box<Enhanced>, Box<[u8]>),
    Granted(Box<Granted>, Box<[u8]>),
    Renewed(Grant, Box<[u8]>),
}

/// Result of a login at a broker that is not managed, and so uses the password file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginOutcome {
    Accepted,
    Refused,
    Anonymous,
    /// A [`crate::mailbox::Mail::Authenticated`] brings the result.
    Later,
    Busy,
}
