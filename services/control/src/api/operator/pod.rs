//! The pod that serves the operator API: how the API asks its process, and how it shows the pod.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::StoreRecovery;

/// Requests of the operator API to the server process that it runs in.
pub trait Operations: Send + Sync + 'static {
    /// `None` while the pod stops.
    fn pod(&self) -> Option<OwnPod>;

    /// Starts to disconnect a pod's clients at the rate of the server's settings; `false`: this process has no such
    /// pod.
    fn drain(&self, pod: &str) -> bool;
}

/// The pod that serves this API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OwnPod {
    /// Its name; `self` for a server without a name.
    pub name: String,
    pub version: String,
    /// When the process started, in unix milliseconds.
    pub started_at_ms: u64,
    /// The data folder at the start; null: the data is in a cluster.
    pub recovery: Option<StoreRecovery>,
    /// Why the pod accepts no new clients; null: it accepts them.
    pub problem: Option<String>,
    pub is_draining: bool,
    pub connections: u64,
    /// Addresses at which the pod expects a gateway. Empty: clients connect to it directly.
    pub gateway: Vec<String>,
    /// The last 64 addresses that connected there.
    pub gateway_peers: Vec<GatewayPeer>,
    /// The last 64 addresses that asked `/healthz`, as gateways do every few seconds.
    pub health_checks: Vec<HealthCheck>,
    /// The network to the other pods; null: the server runs alone.
    pub fabric: Option<FabricState>,
    /// Minimum rate of a drain, in clients per second; 0: all at once.
    pub drain_per_second: u32,
    /// Maximum duration of a drain, in seconds.
    pub drain_s_max: u64,
}

/// Connections of an address to the pod's gateway port since the pod started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct GatewayPeer {
    pub address: String,
    pub accepted: u64,
    /// Connections that the pod closed because the address is not in `gateway_from`.
    pub refused: u64,
    /// Time of the last connection, in unix milliseconds.
    pub last_at_ms: u64,
}

/// Requests of an address for the pod's health since the pod started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HealthCheck {
    pub address: String,
    /// Requests that the pod answered with 200.
    pub healthy: u64,
    /// Requests that the pod answered with 503.
    pub unhealthy: u64,
    /// Time of the last request, in unix milliseconds.
    pub last_at_ms: u64,
}

/// A pod's connection to the network between pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Fabric)]
pub struct FabricState {
    #[schema(example = true)]
    pub is_connected: bool,
    #[schema(example = "connected to nats-1 for 3600 s, with 1 other pods")]
    pub state: String,
    /// Number of other pods that are alive.
    pub pods: usize,
}
