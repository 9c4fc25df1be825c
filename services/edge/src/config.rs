//! The configuration of an edge process, as its caller assembles it from settings.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use millrace_transport::addresses::Networks;
use millrace_transport::tls::files::Files;
use millrace_transport::ws::handshake::Origins;

use crate::limits::EdgeLimits;
use crate::traces::Tracer;

pub(crate) const DEFAULT_BROKER: &str = "default";

/// Name of a process that shares its store with no other.
const ALONE: &str = "edge";

/// [`Config::default`] listens nowhere.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// MQTT over TCP; port 0 takes a free port, see [`crate::Edge::mqtt_addresses`].
    pub mqtt_listen: Vec<SocketAddr>,
    /// MQTT over WebSocket, path `/mqtt`.
    pub ws_listen: Vec<SocketAddr>,
    /// A client can also open a WebSocket there.
    pub mqtts_listen: Vec<SocketAddr>,
    /// A client can also speak MQTT at once.
    pub wss_listen: Vec<SocketAddr>,
    /// Certificates, required for `mqtts_listen` and `wss_listen`.
    pub tls: Option<Files>,
    /// Web pages that may connect, by default those of the same host.
    pub ws_origins: Origins,
    /// Brokers that are created at the start if they are missing, besides `default`.
    pub brokers: Vec<String>,
    /// Addresses for the gateway: every connection starts with a PROXY protocol v2 header, then speaks MQTT or opens a WebSocket.
    /// On the other addresses such a header is an error.
    pub gateway_listen: Vec<SocketAddr>,
    /// Addresses of the gateway; other peers are refused on `gateway_listen`.
    pub gateway_from: Vec<IpNet>,
    /// Networks without the limits per address.
    pub unlimited_from: Networks,
    /// The name of this process among several that share a store; `None`: its store is its own.
    pub pod: Option<String>,
    /// The network between pods. Without it, pods notice each other's changes through the store alone: later, and only stored
    /// ones.
    pub fabric: Option<millrace_fabric::FabricSettings>,
    /// How tenants' services are called: key sets of issuers, and webhooks.
    pub outgoing: millrace_outgoing::CallSettings,
    /// The Server Reference for 5.0 clients when this process stops.
    pub server_reference: Option<String>,
    /// Event loops; 0: one per core.
    pub threads: usize,
    pub authentication: Authentication,
    /// Samples messages and traces them; `None`: no traces.
    pub tracer: Option<Arc<Tracer>>,
    pub limits: EdgeLimits,
    /// Offset of this process's wall clock from the machine's, in milliseconds, for tests.
    #[doc(hidden)]
    pub clock_ahead_ms: i64,
}

impl Config {
    /// True when the PROXY headers of this peer are trusted.
    pub(crate) fn is_gateway(&self, peer: IpAddr) -> bool {
        // A listener for both families has IPv4 peers mapped into IPv6.
        let peer = peer.to_canonical();
        self.gateway_from.iter().any(|network| network.contains(&peer))
    }
}

impl Config {
    pub(crate) fn listens_with_tls(&self) -> bool {
        !self.mqtts_listen.is_empty() || !self.wss_listen.is_empty()
    }

    /// The certificates, unless all listeners with TLS are off.
    pub(crate) fn tls_in_use(&self) -> Option<&Files> {
        self.tls.as_ref().filter(|_| self.listens_with_tls())
    }

    /// Owner of this process's sessions, webhook queues and usage in the store.
    pub(crate) fn pod_name(&self) -> &str {
        self.pod.as_deref().unwrap_or(ALONE)
    }

    pub(crate) fn broker_names(&self) -> impl Iterator<Item = &str> {
        [DEFAULT_BROKER].into_iter().chain(self.brokers.iter().map(String::as_str))
    }
}

#[derive(Clone, Debug)]
pub struct Authentication {
    pub allow_anonymous: bool,
    /// `user:hash` lines as `millrace passwd` writes them.
    pub password_file: Option<PathBuf>,
    pub rules_file: Option<PathBuf>,
}

impl Default for Authentication {
    fn default() -> Self {
        Self { allow_anonymous: true, password_file: None, rules_file: None }
    }
}
