//! Where clients can connect, and whether they need credentials there.

use std::net::SocketAddr;

use crate::tls::TlsSettings;

pub(super) struct ClientListeners {
    pub(super) mqtt: Vec<SocketAddr>,
    pub(super) ws: Vec<SocketAddr>,
    pub(super) gateway: Vec<SocketAddr>,
    pub(super) tls: TlsSettings,
}

impl ClientListeners {
    pub(super) fn check(&self) -> Result<(), String> {
        let direct_is_off = self.mqtt.is_empty() && self.ws.is_empty() && self.over_tls().next().is_none();
        if direct_is_off && self.gateway.is_empty() {
            return Err(
                "mqtt_listen, ws_listen and gateway_listen are off, so no client could connect: leave one of them on, or set \
                 mqtts_listen or wss_listen"
                    .into(),
            );
        }
        Ok(())
    }

    fn over_tls(&self) -> impl Iterator<Item = &SocketAddr> {
        self.tls.mqtts_listen.iter().chain(&self.tls.wss_listen)
    }

    /// An address that clients on other machines can reach.
    pub(super) fn exposed(&self) -> Option<SocketAddr> {
        let mut direct = self.mqtt.iter().chain(&self.ws).chain(self.over_tls());
        // The gateway's clients are on other machines, even if the gateway is on this one.
        let exposed = self.gateway.first();
        exposed.or_else(|| direct.find(|at| !at.ip().to_canonical().is_loopback())).copied()
    }
}

/// Whether clients may connect without credentials. An error asks the operator to say who may connect, when nobody could or
/// everybody would.
pub(super) fn accepts_anonymous(
    said: Option<bool>,
    has_passwords: bool,
    has_api: bool,
    exposed: Option<SocketAddr>,
) -> Result<bool, String> {
    match (said, has_passwords, exposed) {
        (Some(false), false, _) if !has_api => Err(
            "allow_anonymous is false, no password_file is set, and there is no API (it wants http_listen and a store), \
             so no client could connect: set --password-file FILE (made with `millrace passwd FILE USER`)"
                .into(),
        ),
        (None, false, Some(at)) => Err(format!(
            "{at} can be reached by others, and nothing says who may connect. Set --password-file FILE (made with \
             `millrace passwd FILE USER`), or --allow-anonymous=false to have only clients of brokers that are made \
             with the API, or --allow-anonymous to accept everybody, or listen on 127.0.0.1 only"
        )),
        (Some(said), _, _) => Ok(said),
        (None, has_passwords, _) => Ok(!has_passwords),
    }
}
