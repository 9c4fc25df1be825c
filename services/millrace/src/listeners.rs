//! The addresses at which a pod listens for clients, and the host by which others reach them.

use std::net::{IpAddr, SocketAddr};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BoundAddresses {
    pub(crate) mqtt: Vec<SocketAddr>,
    pub(crate) ws: Vec<SocketAddr>,
    pub(crate) mqtts: Vec<SocketAddr>,
    pub(crate) wss: Vec<SocketAddr>,
}

impl BoundAddresses {
    pub(crate) fn of(edge: &millrace_edge::Edge) -> Self {
        Self {
            mqtt: edge.mqtt_addresses().to_vec(),
            ws: edge.ws_addresses().to_vec(),
            mqtts: edge.mqtts_addresses().to_vec(),
            wss: edge.wss_addresses().to_vec(),
        }
    }
}

/// The host of `at`; for "all addresses" the name that the browser used. Only valid host names are
/// repeated, because the page shows the name.
pub(crate) fn reachable(at: SocketAddr, asked: Option<&str>) -> String {
    match at.ip() {
        ip if ip.is_unspecified() => asked.and_then(host_name).unwrap_or("127.0.0.1").to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// The host as an argument of its own, where an IPv6 address has no brackets.
pub(crate) fn bare(host: &str) -> String {
    host.trim_matches(['[', ']']).to_owned()
}

fn host_name(host: &str) -> Option<&str> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    (!name.is_empty() && name.bytes().all(allowed)).then_some(name)
}
