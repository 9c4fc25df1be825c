//! The broker and the client of a request to [`Live`](crate::Live), which the API makes after a check of the caller.

use millrace_layers::BrokerId;

use crate::secret::Secret;

/// A broker that the caller may look into: the API makes one only after authorising the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveBroker {
    pub id: BrokerId,
    pub name: String,
}

/// The client that a request of the control plane acts as: the broker authenticates it as any other client.
#[derive(Clone, Debug)]
pub struct Visit {
    pub broker: LiveBroker,
    pub client_id: String,
    pub user: String,
    /// A connect token.
    pub password: Secret,
}
