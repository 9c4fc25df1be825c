//! What an edge process is started with.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::limits::Limits;

/// What an edge process is started with. [`Config::default`] listens nowhere.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Addresses for MQTT over TCP. Port 0 takes a free port, see [`crate::Edge::mqtt_addresses`].
    pub mqtt_listen: Vec<SocketAddr>,
    /// Addresses for MQTT over WebSocket, path `/mqtt`.
    pub ws_listen: Vec<SocketAddr>,
    /// Brokers that are made at the start if they are not there, beside `default`.
    pub brokers: Vec<String>,
    /// Event loops; 0 is one a core.
    pub threads: usize,
    /// When not empty, every connection on every listener starts with a PROXY protocol v2 header, believed only from
    /// these peers; a connection from another address is refused.
    pub proxy_protocol_from: Vec<IpAddr>,
    /// Who may connect.
    pub authentication: Authentication,
    /// Limits, all with defaults.
    pub limits: Limits,
}

/// Who may connect and what they may do.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// Accept clients without user name.
    pub allow_anonymous: bool,
    /// `user:hash` lines as `millrace passwd` writes them.
    pub password_file: Option<PathBuf>,
    /// Access rules, see `auth::rules`.
    pub rules_file: Option<PathBuf>,
}

impl Default for Authentication {
    fn default() -> Self {
        Self { allow_anonymous: true, password_file: None, rules_file: None }
    }
}
