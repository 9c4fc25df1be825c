//! Binds the addresses of all listeners, with a socket for each event loop.

use std::io;
use std::net::SocketAddr;

use millrace_transport::listeners::{Listener, Speaks, join, listen};

use super::StartError;
use crate::config::Config;

/// The addresses of each kind of listener, and the listeners of each event loop.
pub(super) struct Bound {
    pub(super) mqtt: Vec<SocketAddr>,
    pub(super) ws: Vec<SocketAddr>,
    pub(super) mqtts: Vec<SocketAddr>,
    pub(super) wss: Vec<SocketAddr>,
    pub(super) gateway: Vec<SocketAddr>,
    pub(super) listeners: Vec<Vec<Listener>>,
}

impl Bound {
    pub(super) fn new(config: &Config, cores: usize) -> Result<Self, StartError> {
        let mut listeners: Vec<Vec<Listener>> = (0..cores).map(|_| Vec::new()).collect();
        Ok(Self {
            mqtt: bind_all(&config.mqtt_listen, Speaks::Mqtt, &mut listeners)?,
            ws: bind_all(&config.ws_listen, Speaks::WebSocket, &mut listeners)?,
            mqtts: bind_all(&config.mqtts_listen, Speaks::Mqtts, &mut listeners)?,
            wss: bind_all(&config.wss_listen, Speaks::Wss, &mut listeners)?,
            gateway: bind_all(&config.gateway_listen, Speaks::Proxy, &mut listeners)?,
            listeners,
        })
    }
}

/// Binds a socket for each event loop to each address; the kernel spreads new connections over them. Port 0 lets the kernel choose a
/// port for the first loop, and the other loops get the same one. Returns the addresses with their real ports.
fn bind_all(
    addresses: &[SocketAddr],
    speaks: Speaks,
    listeners: &mut [Vec<Listener>],
) -> Result<Vec<SocketAddr>, StartError> {
    let mut bound = Vec::new();
    for address in addresses {
        let failed = |error: io::Error| bind_error(*address, &error);
        let mut at = *address;
        for (index, core) in listeners.iter_mut().enumerate() {
            let open = if index == 0 { listen } else { join };
            let socket = open(at).map_err(failed)?;
            if let Some(local) = socket.local_addr().map_err(failed)?.as_socket() {
                at.set_port(local.port());
            }
            core.push(Listener::new(socket, speaks));
        }
        bound.push(at);
    }
    Ok(bound)
}

fn bind_error(address: SocketAddr, error: &io::Error) -> StartError {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there: stop it or choose another address",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address",
        _ => "choose another address",
    };
    StartError(format!("cannot listen on {address}: {error}; {advice}"))
}
