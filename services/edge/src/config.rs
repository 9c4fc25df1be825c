//! What an edge process is started with.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use millrace_transport::addresses::Networks;
use millrace_transport::tls::files::Files;
use millrace_transport::ws::handshake::Origins;

use crate::broker::DEFAULT_BROKER;
use crate::limits::Limits;
use crate::traces::Tracer;

/// What an edge process is started with. [`Config::default`] listens nowhere.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Addresses for MQTT over TCP. Port 0 takes a free port, see [`crate::Edge::mqtt_addresses`].
    pub mqtt_listen: Vec<SocketAddr>,
    /// Addresses for MQTT over WebSocket, path `/mqtt`.
    pub ws_listen: Vec<SocketAddr>,
    /// Addresses for MQTT over TLS. A client may also open a WebSocket there.
    pub mqtts_listen: Vec<SocketAddr>,
    /// Addresses for MQTT over WebSocket over TLS. A client may also speak MQTT at once.
    pub wss_listen: Vec<SocketAddr>,
    /// Certificates for both; must be there where one of them is.
    pub tls: Option<Files>,
    /// Web pages that may open a WebSocket.
    pub ws_origins: Origins,
    /// Brokers that are made at the start if they are not there, beside `default`.
    pub brokers: Vec<String>,
    /// Addresses for the gateway: every connection starts with a PROXY protocol v2 header, then speaks MQTT or opens a
    /// WebSocket. On the other addresses such a header is an error.
    pub gateway_listen: Vec<SocketAddr>,
    /// Where the gateway's connections come from; on its addresses any other peer is refused.
    pub gateway_from: Vec<IpNet>,
    /// Networks whose addresses have no limits of their own.
    pub unlimited_from: Networks,
    /// The name of this process among several that share a store. `None`: it has its store for itself.
    pub pod: Option<String>,
    /// The network between them. Without it, pods hear of each other by the store alone: later, and only what it keeps.
    pub fabric: Option<millrace_fabric::Settings>,
    /// How services of tenants are called: key sets of issuers, webhooks that authenticate, webhooks that are told.
    pub outgoing: millrace_outgoing::Settings,
    /// Where clients are to go when this process stops: told to 5.0 clients as Server Reference.
    pub server_reference: Option<String>,
    /// Event loops; 0 is one a core.
    pub threads: usize,
    /// Who may connect.
    pub authentication: Authentication,
    /// Follows messages through the server; `None`: none is followed.
    pub tracer: Option<Arc<Tracer>>,
    /// Limits, all with defaults.
    pub limits: Limits,
    /// Milliseconds by which the wall clock of this process is ahead of the machine's. For tests.
    #[doc(hidden)]
    pub clock_ahead_ms: i64,
}

impl Config {
    /// Whether what this peer says of others is believed.
    pub(crate) fn is_gateway(&self, peer: IpAddr) -> bool {
        // A listener for both families has IPv4 peers mapped into IPv6.
        let peer = peer.to_canonical();
        self.gateway_from.iter().any(|network| network.contains(&peer))
    }
}

impl Config {
    /// The brokers that are there from the start on.
    pub(crate) fn broker_names(&self) -> impl Iterator<Item = &str> {
        [DEFAULT_BROKER].into_iter().chain(self.brokers.iter().map(String::as_str))
    }
}

/// Who may connect and what they may do.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// Accept clients without user name.
    pub allow_anonymous: bool,
    /// `user:hash` lines as `millrace passwd` writes them.
    pub password_file: Option<PathBuf>,
    /// Access rules, see `millrace_access::files::rules`.
    pub rules_file: Option<PathBuf>,
}

impl Default for Authentication {
    fn default() -> Self {
        Self { allow_anonymous: true, password_file: None, rules_file: None }
    }
}
