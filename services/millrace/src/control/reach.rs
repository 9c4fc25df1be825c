//! The addresses of brokers as the API reports them, from settings and from the listeners of this
//! process.

use std::net::SocketAddr;

use clap::Args;
use millrace_control::{Ports, Reach};
use millrace_edge::TlsFiles;

use crate::listeners::{BoundAddresses, bare, reachable};

/// A host name has at most 253 bytes: a broker's name of 63, a dot, and the domain.
const DOMAIN_BYTES_MAX: usize = 189;

#[derive(Clone, Debug, Args)]
pub(crate) struct ReachArgs {
    /// Name of the region, as the API shows it.
    #[arg(long, value_name = "NAME", default_value = "local", value_parser = region)]
    region: String,

    /// Domain of the brokers behind a gateway: the broker "acme" is at acme.DOMAIN, over TLS.
    /// Without it the API names the addresses of the listeners.
    #[arg(long, value_name = "DOMAIN", value_parser = domain)]
    endpoint_domain: Option<String>,

    /// Port of the gateway for MQTT over TLS, as the API shows it.
    #[arg(long, value_name = "PORT", default_value_t = 8883)]
    endpoint_mqtts_port: u16,

    /// Port of the gateway for secure WebSocket, as the API shows it.
    #[arg(long, value_name = "PORT", default_value_t = 443)]
    endpoint_wss_port: u16,

    /// File with the authority that issued the certificate of the gateway or of this server, PEM:
    /// the API shows it to clients [default: ca.crt in tls_dir, otherwise a public authority].
    #[arg(long, value_name = "FILE", value_parser = pem)]
    endpoint_ca_file: Option<Pem>,
}

#[derive(Clone, Debug)]
struct Pem(String);

impl ReachArgs {
    /// WebSocket origin of the gateway, for the Content-Security-Policy of pages: a pattern for any broker.
    pub(super) fn gateway_socket(&self) -> Option<String> {
        self.endpoint_domain.as_ref().map(|domain| format!("wss://*.{domain}:{}", self.endpoint_wss_port))
    }

    /// `at` has the listeners of this process; `public_host` is the host by which people reach it.
    pub(super) fn reach(
        &self,
        at: &BoundAddresses,
        public_host: Option<&str>,
        tls: Option<&TlsFiles>,
    ) -> Reach {
        let ca_pem = self.endpoint_ca_file.clone().map(|pem| pem.0);
        let (region, domain) = (self.region.clone(), self.endpoint_domain.clone());
        if domain.is_some() {
            let ports = Ports {
                mqtts: Some(self.endpoint_mqtts_port),
                wss: Some(self.endpoint_wss_port),
                ..Ports::default()
            };
            return Reach { region, domain, host: String::new(), ports, ca_pem };
        }
        let all = [&at.mqtts, &at.wss, &at.mqtt, &at.ws].into_iter().flatten();
        let widest = all.min_by_key(|at| (!at.ip().is_unspecified(), at.ip().is_loopback()));
        let host = widest.map_or_else(String::new, |at| reachable(*at, public_host));
        // Devices get one host, so a listener that has another one, such as loopback, is not named.
        let port = |all: &[SocketAddr]| {
            all.iter().find(|at| reachable(**at, public_host) == host).map(SocketAddr::port)
        };
        let ports =
            Ports { mqtt: port(&at.mqtt), mqtts: port(&at.mqtts), ws: port(&at.ws), wss: port(&at.wss) };
        let ca_pem = ca_pem.or_else(|| tls.and_then(authority_beside));
        Reach { region, domain, host: bare(&host), ports, ca_pem }
    }
}

/// `dev-certs` and the issuers of Kubernetes secrets write ca.crt beside tls.crt.
fn authority_beside(files: &TlsFiles) -> Option<String> {
    let is_pair = files.certificate.file_name().is_some_and(|name| name == "tls.crt");
    let path = is_pair.then(|| files.certificate.with_file_name("ca.crt"))?;
    pem(path.to_str()?).ok().map(|pem| pem.0)
}

fn pem(file: &str) -> Result<Pem, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("a file that can be read is allowed ({error})"))?;
    match text.contains("-----BEGIN CERTIFICATE-----") {
        true => Ok(Pem(text)),
        false => Err("a file with a certificate in PEM is allowed".into()),
    }
}

fn region(text: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if (1..=63).contains(&text.len()) && text.bytes().all(is_allowed) {
        return Ok(text.to_owned());
    }
    Err("a name of 1 to 63 letters, digits and hyphens is allowed, such as eu-1".into())
}

fn domain(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(is_inner)
    };
    if text.len() <= DOMAIN_BYTES_MAX && text.split('.').all(is_label) {
        return Ok(text.to_ascii_lowercase());
    }
    Err("a domain is allowed, without a scheme and a port, such as mqtt.example.org".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        reach: ReachArgs,
    }

    #[test]
    fn an_ipv6_address_has_brackets_in_urls_only() {
        let args = Command::try_parse_from(["millrace"]).unwrap().reach;
        for (listens, asked) in [("[::1]:1883", None), ("[::]:1883", Some("[::1]:8080"))] {
            let mqtt = vec![listens.parse().unwrap()];
            let at = BoundAddresses { mqtt, ws: Vec::new(), mqtts: Vec::new(), wss: Vec::new() };
            let endpoints = args.reach(&at, asked, None).endpoints("default");
            assert_eq!(endpoints.host, "::1");
            assert_eq!(endpoints.mqtt.unwrap().url, "mqtt://[::1]:1883");
        }
    }

    #[test]
    fn listeners_with_tls_are_named_with_their_authority_and_those_of_another_host_are_not() {
        let args = Command::try_parse_from(["millrace"]).unwrap().reach;
        let folder = tempfile::tempdir().unwrap();
        let certificate = folder.path().join("tls.crt");
        let files = TlsFiles {
            key: certificate.clone(),
            certificate,
            client_authorities: None,
            asks_browsers: false,
        };
        let at = |mqtt: &str| BoundAddresses {
            mqtt: vec![mqtt.parse().unwrap()],
            ws: Vec::new(),
            mqtts: vec!["0.0.0.0:8883".parse().unwrap()],
            wss: vec!["0.0.0.0:8443".parse().unwrap()],
        };
        let local = args.reach(&at("127.0.0.1:1883"), None, Some(&files)).endpoints("default");
        assert_eq!(local.mqtts.unwrap().url, "mqtts://127.0.0.1:8883");
        assert_eq!(local.wss.unwrap().url, "wss://127.0.0.1:8443/mqtt");
        assert_eq!((local.mqtt.unwrap().port, local.ca_pem), (1883, None));

        std::fs::write(folder.path().join("ca.crt"), "-----BEGIN CERTIFICATE-----").unwrap();
        let public = args.reach(&at("127.0.0.1:1883"), Some("mqtt.example.org"), Some(&files));
        let public = public.endpoints("default");
        assert_eq!(public.mqtts.unwrap().url, "mqtts://mqtt.example.org:8883");
        assert_eq!((public.mqtt, public.ca_pem.is_some()), (None, true));

        let behind_proxy =
            BoundAddresses { mqtts: vec!["127.0.0.1:8883".parse().unwrap()], ..at("0.0.0.0:1883") };
        let behind_proxy = BoundAddresses { wss: Vec::new(), ..behind_proxy };
        let found = args.reach(&behind_proxy, Some("mqtt.example.org"), None).endpoints("default");
        assert_eq!((found.mqtt.unwrap().url, found.mqtts), ("mqtt://mqtt.example.org:1883".into(), None));
    }

    #[test]
    fn a_domain_has_labels_only() {
        assert_eq!(domain("Mqtt.Example.org").as_deref(), Ok("mqtt.example.org"));
        for wrong in ["", ".", "a..b", "-a.b", "a.b-", "https://a.b", "a.b:8883", "a_b.c"] {
            assert!(domain(wrong).is_err(), "{wrong}");
        }
    }
}
