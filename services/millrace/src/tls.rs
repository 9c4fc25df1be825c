//! Settings of TLS in this process, of web pages that may connect, and of addresses without limits.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use ipnet::IpNet;
use millrace_edge::{Networks, Origins, TlsFiles};

use crate::values::{Listen, addresses, listen, network, yes_or_no};

/// Used when a certificate is set and the settings name no listener.
const MQTTS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8883);
const WSS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8443);

#[derive(Clone, Debug, Args)]
pub(crate) struct TlsArgs {
    /// Addresses for MQTT over TLS, or "off" [default: 127.0.0.1:8883 when a certificate is set].
    #[arg(long, value_name = "IP:PORT", value_delimiter = ',', value_parser = listen)]
    mqtts_listen: Vec<Listen>,

    /// Addresses for MQTT over WebSocket over TLS (path /mqtt), or "off" [default: 127.0.0.1:8443
    /// when a certificate is set].
    #[arg(long, value_name = "IP:PORT", value_delimiter = ',', value_parser = listen)]
    wss_listen: Vec<Listen>,

    /// Folder with the server's certificate chain tls.crt and its key tls.key, as `millrace
    /// dev-certs` makes them. The files are read again when they change. The API shows ca.crt, if
    /// it is there, to clients.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["tls_cert", "tls_key"])]
    tls_dir: Option<PathBuf>,

    /// The server's certificate chain, PEM; read again when it changes.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The key of the server's certificate, PEM; read again when it changes.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Authorities of client certificates, PEM: only clients with a certificate of one of them can
    /// connect to mqtts_listen [default: a client may present any certificate or none, and its
    /// broker's own authorities decide].
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,

    /// Ask clients of wss_listen for certificates, too; browsers then ask their user.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(default_value = "false", value_parser = yes_or_no, action = clap::ArgAction::Set)]
    wss_client_certificates: bool,

    /// Web pages that may open a WebSocket: "same-host", "any", or origins (scheme, host and port),
    /// which may connect beside pages of the same host. At a loopback address the same host is
    /// localhost or the address, so name the origins behind a proxy on this machine.
    #[arg(long, value_name = "ORIGIN", default_value = "same-host", value_delimiter = ',', value_parser = origin)]
    ws_origins: Vec<String>,

    /// Networks whose addresses have no limits per address, such as that of a proxy that connects
    /// many clients.
    #[arg(long, value_name = "NETWORK", default_value = "127.0.0.0/8,::1/128", value_delimiter = ',')]
    #[arg(value_parser = network)]
    unlimited_from: Vec<IpNet>,
}

pub(crate) struct TlsSettings {
    pub(crate) mqtts_listen: Vec<SocketAddr>,
    pub(crate) wss_listen: Vec<SocketAddr>,
    pub(crate) files: Option<TlsFiles>,
    pub(crate) ws_origins: Origins,
    pub(crate) unlimited_from: Networks,
}

impl TlsArgs {
    pub(crate) fn settings(self) -> Result<TlsSettings, String> {
        let said = |name, listen: &[Listen]| match listen {
            [] => Ok(None),
            some => addresses(name, some).map(Some),
        };
        let mqtts_listen = said("mqtts_listen", &self.mqtts_listen)?;
        let wss_listen = said("wss_listen", &self.wss_listen)?;
        let pair = match (self.tls_dir, self.tls_cert, self.tls_key) {
            (Some(dir), _, _) => Some((dir.join("tls.crt"), dir.join("tls.key"))),
            (None, Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None, None) => None,
            (None, Some(_), None) => return Err("tls_cert is set without tls_key: set both".into()),
            (None, None, Some(_)) => return Err("tls_key is set without tls_cert: set both".into()),
        };
        let Some((certificate, key)) = pair else {
            let listens = [&mqtts_listen, &wss_listen].into_iter().flatten().any(|all| !all.is_empty());
            if listens || self.tls_client_ca.is_some() || self.wss_client_certificates {
                return Err("TLS needs a certificate: set tls_dir, or tls_cert and tls_key (`millrace dev-certs` makes them for \
                            a developer's machine)"
                    .into());
            }
            return Ok(TlsSettings {
                mqtts_listen: Vec::new(),
                wss_listen: Vec::new(),
                files: None,
                ws_origins: origins(self.ws_origins),
                unlimited_from: Networks(self.unlimited_from),
            });
        };
        Ok(TlsSettings {
            mqtts_listen: mqtts_listen.unwrap_or_else(|| vec![MQTTS]),
            wss_listen: wss_listen.unwrap_or_else(|| vec![WSS]),
            files: Some(TlsFiles {
                certificate,
                key,
                client_authorities: self.tls_client_ca,
                asks_browsers: self.wss_client_certificates,
            }),
            ws_origins: origins(self.ws_origins),
            unlimited_from: Networks(self.unlimited_from),
        })
    }
}

fn origins(said: Vec<String>) -> Origins {
    match &said[..] {
        [one] if one == "same-host" => Origins::SameHost,
        all if all.iter().any(|one| one == "any") => Origins::Any,
        _ => Origins::These(said),
    }
}

fn origin(text: &str) -> Result<String, String> {
    let is_origin = || {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', '*']))
    };
    if matches!(text, "same-host" | "any") || is_origin() {
        return Ok(text.to_owned());
    }
    Err("\"same-host\", \"any\" or an origin is allowed, such as https://app.example or http://localhost:5173".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::load;

    fn of(flags: &[&str]) -> Result<millrace_edge::Config, String> {
        let args = ["millrace", "serve"].iter().chain(flags).map(std::ffi::OsString::from).collect();
        load(args, std::iter::empty()).map(|(all, _)| all.edge).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn a_certificate_is_enough_for_both_listeners() {
        let config = of(&["--tls-dir=certs"]).unwrap();
        assert_eq!((config.mqtts_listen, config.wss_listen), (vec![MQTTS], vec![WSS]));
        assert_eq!(config.tls.unwrap().key, PathBuf::from("certs/tls.key"));
        let config =
            of(&["--tls-cert=c", "--tls-key=k", "--wss-listen=off", "--mqtts-listen=[::1]:1"]).unwrap();
        assert_eq!((config.mqtts_listen.len(), config.wss_listen.len()), (1, 0));
        let config = of(&[]).unwrap();
        assert!(config.mqtts_listen.is_empty() && config.wss_listen.is_empty() && config.tls.is_none());
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let cases: [(&[&str], &str); 7] = [
            (&["--tls-cert=c"], "tls_key"),
            (&["--tls-key=k"], "tls_cert"),
            (&["--mqtts-listen=127.0.0.1:1"], "TLS needs a certificate"),
            (&["--tls-client-ca=ca"], "TLS needs a certificate"),
            (&["--tls-dir=d", "--tls-cert=c", "--tls-key=k"], "--tls-dir"),
            (&["--tls-dir=d", "--mqtts-listen=0.0.0.0:8883"], "nothing says who may connect"),
            (&["--ws-origins=app.example"], "an origin is allowed"),
        ];
        for (flags, expected) in cases {
            let refused = of(flags).unwrap_err();
            assert!(refused.contains(expected), "{flags:?}: {refused}");
        }
    }

    #[test]
    fn origins_are_those_of_the_host_or_those_that_are_said() {
        assert_eq!(of(&[]).unwrap().ws_origins, Origins::SameHost);
        assert_eq!(of(&["--ws-origins=any"]).unwrap().ws_origins, Origins::Any);
        let these = of(&["--ws-origins=https://a.example,http://localhost:5173"]).unwrap().ws_origins;
        assert!(matches!(&these, Origins::These(these) if these.len() == 2), "{these:?}");
    }
}
