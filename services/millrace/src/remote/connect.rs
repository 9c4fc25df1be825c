//! Explains how a client connects to a broker: host, port, user name, and commands of mosquitto.

use serde_json::{Value, json};

use crate::text::quoted;

/// User for the example of a broker that has no credential yet.
const EXAMPLE: &str = "pump-7";

pub(super) struct BrokerEndpoints<'a>(pub(super) &'a Value);

impl BrokerEndpoints<'_> {
    /// Includes the broker's name if the host name does not select the broker.
    pub(super) fn username(&self, user: &str) -> String {
        format!("{}{user}", self.0["user_prefix"].as_str().unwrap_or_default())
    }

    /// The credential with `username`, the user name that a client sends.
    pub(super) fn with_username(&self, mut credential: Value) -> Value {
        let username = self.username(credential["user"].as_str().unwrap_or_default());
        credential["username"] = json!(username);
        credential
    }

    /// Text for the end of `brokers create`.
    pub(super) fn of_new_broker(&self, broker: &str) -> String {
        let broker = quoted(broker);
        let (host, port) = (self.0["host"].as_str().unwrap_or_default(), self.port_text());
        let mut text = format!(
            "\nHow to connect\n  host       {host}\n  port       {port}\n  user name  {}, where USER is the user of a credential\n",
            self.username("USER")
        );
        text += "\nMake a credential, and publish a message with its secret:\n";
        text += &format!("  millrace credentials create {EXAMPLE} --broker {broker}\n");
        text + &self.publish(&broker, EXAMPLE, "SECRET", None)
    }

    /// Text for the end of `credentials create`; empty if the server has no port for mosquitto.
    pub(super) fn of_credential(&self, broker: &str, made: &Value) -> String {
        let text = |name: &str| made[name].as_str();
        let secret = text("secret").unwrap_or("PASSWORD");
        let line = self.publish(&quoted(broker), text("user").unwrap_or_default(), secret, text("client_id"));
        if line.is_empty() { line } else { format!("\nPublish a message with it:\n{line}") }
    }

    fn port_text(&self) -> String {
        let kinds =
            [("mqtts", "TLS"), ("mqtt", "no TLS"), ("wss", "WebSocket with TLS"), ("ws", "WebSocket")];
        let ports = kinds.iter().filter_map(|(name, kind)| {
            let port = self.0[*name]["port"].as_u64()?;
            Some(format!("{port} ({kind})"))
        });
        let ports = ports.collect::<Vec<_>>().join(", ");
        if ports.is_empty() { "none: this server listens for no clients".into() } else { ports }
    }

    /// Prefers TLS; the clients of mosquitto speak no WebSocket.
    fn publish(&self, broker: &str, user: &str, secret: &str, client: Option<&str>) -> String {
        let found = ["mqtts", "mqtt"].iter().find_map(|name| Some((*name, self.0[*name]["port"].as_u64()?)));
        let Some((scheme, port)) = found else { return String::new() };
        let host = quoted(self.0["host"].as_str().unwrap_or_default());
        let (mut text, mut tls) = (String::new(), "");
        if scheme == "mqtts" {
            tls = " --tls-use-os-certs";
            if self.0["ca_pem"].is_string() {
                tls = " --cafile ca.pem";
                text +=
                    &format!("  millrace brokers show {broker} --json | jq -r .endpoints.ca_pem > ca.pem\n");
            }
        }
        let client = client.map(|id| format!(" -i {}", quoted(id))).unwrap_or_default();
        let (user, secret) = (quoted(&self.username(user)), quoted(secret));
        text + &format!(
            "  mosquitto_pub -h {host} -p {port}{tls}{client} -u {user} -P {secret} -q 1 -t hello/world -m hi\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16) -> Value {
        json!({ "port": port, "url": format!("mqtt://127.0.0.1:{port}") })
    }

    #[test]
    fn a_broker_without_a_host_name_of_its_own_is_selected_by_the_user_name() {
        let of = json!({ "host": "127.0.0.1", "user_prefix": "k3/", "mqtt": endpoint(1883), "ws": endpoint(8083) });
        let text = BrokerEndpoints(&of).of_new_broker("k3");
        for line in [
            "  host       127.0.0.1\n",
            "  port       1883 (no TLS), 8083 (WebSocket)\n",
            "  user name  k3/USER,",
            "  millrace credentials create pump-7 --broker k3\n",
            "  mosquitto_pub -h 127.0.0.1 -p 1883 -u k3/pump-7 -P SECRET -q 1 -t hello/world -m hi\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let made = json!({ "user": "a b", "secret": "s$1", "client_id": "c" });
        let text = BrokerEndpoints(&of).of_credential("k3", &made);
        assert!(text.contains(" -i c -u 'k3/a b' -P 's$1' "), "{text}");
        assert_eq!(BrokerEndpoints(&of).with_username(made)["username"], "k3/a b");
    }

    #[test]
    fn the_line_uses_tls_where_the_server_offers_it() {
        let mut of = json!({ "host": "k3.mqtt.test", "user_prefix": null, "mqtt": endpoint(1883), "mqtts": endpoint(8883) });
        let made = json!({ "user": "pump-7", "secret": null, "client_id": null });
        let text = BrokerEndpoints(&of).of_credential("k3", &made);
        let line = "  mosquitto_pub -h k3.mqtt.test -p 8883 --tls-use-os-certs -u pump-7 -P PASSWORD ";
        assert!(text.contains(line), "{text}");
        of["ca_pem"] = json!("-----BEGIN CERTIFICATE-----");
        let text = BrokerEndpoints(&of).of_credential("k3", &made);
        assert!(text.contains("ca_pem > ca.pem") && text.contains("-p 8883 --cafile ca.pem "), "{text}");
        let of = json!({ "host": "h", "ws": endpoint(8083) });
        assert_eq!(BrokerEndpoints(&of).of_credential("k3", &made), "");
    }
}
