//! Endpoints of a broker: host, ports and URLs for its clients, computed from the server's settings and listeners.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Control;

/// The broker of each client that names none.
const DEFAULT: &str = "default";

/// How clients of any broker reach this server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    pub region: String,
    /// Domain of the brokers, each with its own host name below it; `None`: all brokers share
    /// `host`.
    pub domain: Option<String>,
    /// Host name or address of brokers without a host name of their own.
    pub host: String,
    pub ports: Ports,
    /// PEM of the authority that issued the server's certificate; `None`: a public authority.
    pub ca_pem: Option<String>,
}

/// Ports of the transports; `None`: the server does not listen for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    pub mqtt: Option<u16>,
    pub mqtts: Option<u16>,
    pub ws: Option<u16>,
    pub wss: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "region": "eu-1", "host": "k3v9x2mwqd7r.mqtt.example.org", "user_prefix": null, "ca_pem": null,
    "mqtt": { "port": 1883, "url": "mqtt://k3v9x2mwqd7r.mqtt.example.org:1883" },
    "mqtts": { "port": 8883, "url": "mqtts://k3v9x2mwqd7r.mqtt.example.org:8883" },
    "ws": { "port": 80, "url": "ws://k3v9x2mwqd7r.mqtt.example.org:80/mqtt" },
    "wss": { "port": 443, "url": "wss://k3v9x2mwqd7r.mqtt.example.org:443/mqtt" },
}))]
pub struct Endpoints {
    pub region: String,
    /// Host name or address. Over TLS it is also the server name (SNI).
    pub host: String,
    /// Prefix of user names, if the host name does not identify the broker: `k3v9x2mwqd7r/pump-7` is the user `pump-7`.
    /// Null: no prefix.
    pub user_prefix: Option<String>,
    /// MQTT over TCP, without TLS; null: not offered.
    pub mqtt: Option<Endpoint>,
    /// MQTT over TLS; null: not offered.
    pub mqtts: Option<Endpoint>,
    /// MQTT over WebSocket, without TLS; null: not offered.
    pub ws: Option<Endpoint>,
    /// MQTT over WebSocket with TLS; null: not offered.
    pub wss: Option<Endpoint>,
    /// PEM of the authority that clients must trust; null: a public authority issued the server's certificate.
    pub ca_pem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Endpoint {
    #[schema(example = 8883)]
    pub port: u16,
    /// URL in the form that most client libraries accept.
    #[schema(example = "mqtts://k3v9x2mwqd7r.mqtt.example.org:8883")]
    pub url: String,
}

impl Reach {
    #[must_use]
    pub fn endpoints(&self, broker: &str) -> Endpoints {
        let (host, is_named) = match &self.domain {
            Some(domain) => (format!("{broker}.{domain}"), true),
            None => (self.host.clone(), broker == DEFAULT),
        };
        let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let endpoint = |port: Option<u16>, scheme: &str, path: &str| {
            port.map(|port| Endpoint { port, url: format!("{scheme}://{shown}:{port}{path}") })
        };
        Endpoints {
            region: self.region.clone(),
            user_prefix: (!is_named).then(|| format!("{broker}/")),
            mqtt: endpoint(self.ports.mqtt, "mqtt", ""),
            mqtts: endpoint(self.ports.mqtts, "mqtts", ""),
            ws: endpoint(self.ports.ws, "ws", "/mqtt"),
            wss: endpoint(self.ports.wss, "wss", "/mqtt"),
            ca_pem: self.ca_pem.clone(),
            host,
        }
    }
}

impl Control {
    /// Sets the addresses of the region; only the first call counts.
    pub fn reached_at(&self, reach: Reach) {
        let _ = self.0.reach.set(reach);
    }

    pub(crate) fn reach(&self) -> &Reach {
        static NOWHERE: Reach = Reach {
            region: String::new(),
            domain: None,
            host: String::new(),
            ports: Ports { mqtt: None, mqtts: None, ws: None, wss: None },
            ca_pem: None,
        };
        self.0.reach.get().unwrap_or(&NOWHERE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(domain: Option<&str>, host: &str) -> Reach {
        let ports = Ports { mqtt: Some(1883), wss: Some(443), ..Ports::default() };
        let domain = domain.map(Into::into);
        Reach { region: "eu-1".into(), domain, host: host.into(), ports, ca_pem: None }
    }

    #[test]
    fn a_broker_is_named_by_its_host_name_or_by_the_user_name() {
        for (domain, host, broker, url, prefix) in [
            (Some("mqtt.test"), "", "acme", "mqtt://acme.mqtt.test:1883", None),
            (None, "127.0.0.1", "acme", "mqtt://127.0.0.1:1883", Some("acme/")),
            (None, "127.0.0.1", "default", "mqtt://127.0.0.1:1883", None),
            (None, "::1", "default", "mqtt://[::1]:1883", None),
        ] {
            let found = reach(domain, host).endpoints(broker);
            assert_eq!(found.mqtt.map(|at| at.url).as_deref(), Some(url));
            assert_eq!(found.user_prefix.as_deref(), prefix);
            assert_eq!((found.mqtts, found.ws), (None, None));
        }
        let wss = reach(Some("mqtt.test"), "").endpoints("acme").wss.unwrap();
        assert_eq!((wss.port, &*wss.url), (443, "wss://acme.mqtt.test:443/mqtt"));
    }
}
