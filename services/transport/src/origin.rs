//! The origin of a client: its address, server name and certificate. They come from the TLS
//! handshake with this process, or from the gateway's PROXY header.

use std::fmt;
use std::fmt::Write;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

use crate::proxy::ProxyHeader;
use crate::tls::session::Peer;

/// Longest host name (RFC 1035 section 2.3.4), bytes.
const NAME_BYTES_MAX: usize = 253;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub address: Option<SocketAddr>,
    /// The server name of the client's TLS handshake (SNI), in lower case; `None` if it is no valid
    /// host name.
    pub server_name: Option<Box<str>>,
    /// The client's certificate, dropped once the CONNECT is accepted.
    pub certificate: Option<Box<Certificate>>,
    is_in_process: bool,
}

/// A certificate whose key the client has, because it signed the handshake; the issuer is not
/// checked yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    pub fingerprint: Box<str>,
    /// The certificate's subject as RFC 2253 writes it, if the gateway sends it.
    pub subject: Option<Box<str>>,
    pub der: Option<Box<[u8]>>,
}

impl Origin {
    /// A client inside this process, opened by the API.
    #[must_use]
    pub fn in_process(broker: &str) -> Self {
        let server_name = Some(format!("{broker}.inside").into());
        Self { address: None, server_name, certificate: None, is_in_process: true }
    }

    #[must_use]
    pub const fn is_in_process(&self) -> bool {
        self.is_in_process
    }

    pub fn of_peer(peer: Peer, address: Option<SocketAddr>) -> Self {
        let certificate = peer.certificate.map(|der| {
            let digest = ring::digest::digest(&ring::digest::SHA256, &der);
            let fingerprint = digest.as_ref().iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            Box::new(Certificate { fingerprint: fingerprint.into(), subject: None, der: Some(der) })
        });
        let server_name = peer.server_name.as_deref().and_then(host_name);
        Self { address, server_name, certificate, is_in_process: false }
    }

    /// `None` when the gateway speaks for itself (a health check) or sends no address.
    pub fn of(header: &ProxyHeader<'_>) -> Option<Self> {
        let tlvs = &header.tlvs;
        let certificate = tlvs.fingerprint().map(|fingerprint| {
            Box::new(Certificate {
                fingerprint: fingerprint.into(),
                subject: tlvs.subject().map(Into::into),
                der: tlvs.certificate().and_then(der),
            })
        });
        let server_name = tlvs.authority().and_then(host_name);
        let address = header.source;
        let is_client = address.is_some() || server_name.is_some() || certificate.is_some();
        (!header.local && is_client).then_some(Self {
            address,
            server_name,
            certificate,
            is_in_process: false,
        })
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("fingerprint", &self.fingerprint)
            .field("subject", &self.subject)
            .field("bytes", &self.der.as_ref().map(|der| der.len()))
            .finish()
    }
}

/// `None` for an invalid name, because a client can write anything into its handshake.
fn host_name(name: &str) -> Option<Box<str>> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (name.len() <= NAME_BYTES_MAX && name.bytes().all(is_allowed)).then(|| name.to_ascii_lowercase().into())
}

fn der(encoded: &str) -> Option<Box<[u8]>> {
    let pem = percent_decode_str(encoded).decode_utf8().ok()?;
    let body = pem.trim().strip_prefix("-----BEGIN CERTIFICATE-----")?;
    let body = body.strip_suffix("-----END CERTIFICATE-----")?;
    let base64: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(base64).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::parse;

    const V4: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 1, 0xD4, 0x31, 0x22, 0xB3];

    fn header(command: u8, tlvs: &[(u8, &str)]) -> Vec<u8> {
        let mut body = V4.to_vec();
        for (kind, value) in tlvs {
            body.push(*kind);
            body.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
            body.extend(value.as_bytes());
        }
        let len = u16::try_from(body.len()).unwrap().to_be_bytes();
        [b"\r\n\r\n\0\r\nQUIT\n", &[0x20 | command, 0x11][..], &len, &body].concat()
    }

    fn origin(command: u8, tlvs: &[(u8, &str)]) -> Option<Origin> {
        Origin::of(&parse(&header(command, tlvs)).unwrap().unwrap())
    }

    #[test]
    fn a_client_of_the_gateway_is_known_with_name_and_certificate() {
        let pem = "-----BEGIN%20CERTIFICATE-----%0AMAMC%0AAQc%3D%0A-----END%20CERTIFICATE-----%0A";
        let origin =
            origin(1, &[(0x02, "Acme.Example"), (0xE0, "00ff"), (0xE1, "CN=ann"), (0xE3, pem)]).unwrap();
        assert_eq!(origin.address, Some("192.0.2.1:54321".parse().unwrap()));
        assert_eq!(origin.server_name.as_deref(), Some("acme.example"));
        let certificate = origin.certificate.unwrap();
        assert_eq!((&*certificate.fingerprint, certificate.subject.as_deref()), ("00ff", Some("CN=ann")));
        assert_eq!(certificate.der.as_deref(), Some(&[0x30, 0x03, 0x02, 0x01, 0x07][..]));
    }

    #[test]
    fn unknown_properties_of_a_client_are_none() {
        let origin = origin(1, &[(0x02, "-"), (0xE0, "-"), (0xE1, "-"), (0xE2, "-"), (0xE3, "-")]).unwrap();
        assert_eq!((origin.server_name, origin.certificate), (None, None));
    }

    #[test]
    fn a_client_of_this_process_is_known_by_its_handshake() {
        let peer = Peer {
            server_name: Some("Acme.Mqtt.Example".into()),
            certificate: Some(b"abc"[..].into()),
            is_resumed: false,
        };
        let origin = Origin::of_peer(peer, None);
        assert_eq!(origin.server_name.as_deref(), Some("acme.mqtt.example"));
        let certificate = origin.certificate.unwrap();
        assert_eq!(certificate.der.as_deref(), Some(&b"abc"[..]));
        // FIPS 180-2, appendix B.1.
        assert!(certificate.fingerprint.starts_with("ba7816bf8f01cfea"), "{}", certificate.fingerprint);
    }

    #[test]
    fn no_server_name_of_a_client_makes_it_one_inside_the_process() {
        let name = Origin::in_process("acme").server_name;
        let peer = Peer { server_name: name.clone(), certificate: None, is_resumed: false };
        let over_proxy = Origin { address: None, ..origin(1, &[(0x02, name.as_deref().unwrap())]).unwrap() };
        for origin in [Origin::of_peer(peer, None), over_proxy] {
            assert_eq!((&origin.server_name, origin.is_in_process()), (&name, false));
        }
        assert!(Origin::in_process("acme").is_in_process());
    }

    #[test]
    fn the_gateway_itself_is_no_client() {
        assert_eq!(origin(0, &[]), None);
        let unknown = [b"\r\n\r\n\0\r\nQUIT\n", &[0x21, 0, 0, 0][..]].concat();
        assert_eq!(Origin::of(&parse(&unknown).unwrap().unwrap()), None);
    }

    #[test]
    fn a_name_that_no_host_has_is_none() {
        let long = "a".repeat(254);
        for name in ["a b", "a\nb", "a/b", "ä", "a\"", &long] {
            assert_eq!(origin(1, &[(0x02, name)]).unwrap().server_name, None, "{name:?}");
        }
    }

    #[test]
    fn a_certificate_that_cannot_be_read_is_left_out() {
        for pem in [
            "x",
            "%FF",
            "-----BEGIN%20CERTIFICATE-----%0AMAMC",
            "-----BEGIN CERTIFICATE-----?-----END CERTIFICATE-----",
        ] {
            let certificate = origin(1, &[(0xE0, "00ff"), (0xE3, pem)]).unwrap().certificate.unwrap();
            assert_eq!(certificate.der, None, "{pem}");
        }
    }
}
