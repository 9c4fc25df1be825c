//! PROXY protocol, version 2 (haproxy's `proxy-protocol.txt`, section 2.2), as the gateway sends
//! it.
//!
//! Before it believes a header, the caller must make sure that the peer is the gateway. The
//! checksum (TLV 0x03) is ignored: TCP has its own, and the gateway sends none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Largest header: 16 fixed bytes and 16 KiB, enough for a certificate of 8 KiB with its details.
/// The format allows 64 KiB, which unknown peers could make the edge hold.
pub const HEADER_BYTES_MAX: usize = 16 + 16 * 1024;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const VERSION_1: &[u8] = b"PROXY ";

const AUTHORITY: u8 = 0x02;
const FINGERPRINT: u8 = 0xE0;
const SUBJECT: u8 = 0xE1;
const TLS_DETAILS: u8 = 0xE2;
const CERTIFICATE: u8 = 0xE3;

const KNOWN: [u8; 5] = [AUTHORITY, FINGERPRINT, SUBJECT, TLS_DETAILS, CERTIFICATE];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader<'a> {
    pub size: usize,
    /// `None` when the gateway sends no IP address.
    pub source: Option<SocketAddr>,
    /// The gateway speaks for itself (a health check), not for a client.
    pub local: bool,
    pub tlvs: Tlvs<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    #[error("the connection does not start with a PROXY protocol header")]
    NotProxy,
    #[error("the peer speaks PROXY protocol version 1; set it to version 2")]
    Version1,
    #[error("the PROXY protocol header has an unknown version")]
    Version,
    #[error("the PROXY protocol header has an unknown command")]
    Command,
    #[error("the PROXY protocol header has an unknown address family")]
    Family,
    #[error("the PROXY protocol header is too large")]
    TooLarge,
    #[error("the PROXY protocol header is shorter than its addresses")]
    Addresses,
    #[error("the PROXY protocol header ends within a TLV")]
    Tlv,
    #[error("the PROXY protocol header says TLV {0:#04x} twice")]
    Twice(u8),
}

/// `Ok(None)` means that the header is incomplete, which never happens once `buf` has
/// [`HEADER_BYTES_MAX`] bytes. An error shows as early as possible, before the header is complete.
pub fn parse(buf: &[u8]) -> Result<Option<ProxyHeader<'_>>, ProxyError> {
    let Some((&signature, after)) = buf.split_first_chunk() else { return begins(buf).map(|()| None) };
    if signature != SIGNATURE {
        return Err(begins(buf).err().unwrap_or(ProxyError::NotProxy));
    }
    let Some((&[version_command, family, len_high, len_low], after)) = after.split_first_chunk() else {
        return Ok(None);
    };
    if version_command >> 4 != 2 {
        return Err(ProxyError::Version);
    }
    let local = match version_command & 0x0F {
        0 => true,
        1 => false,
        _ => return Err(ProxyError::Command),
    };
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let size = SIGNATURE.len() + 4 + len;
    if size > HEADER_BYTES_MAX {
        return Err(ProxyError::TooLarge);
    }
    let Some(body) = after.get(..len) else { return Ok(None) };
    let (source, tlvs) = match local {
        // Its contents are ignored.
        true => (None, &[][..]),
        false => addresses(family, body)?,
    };
    Ok(Some(ProxyHeader { size, source, local, tlvs: Tlvs::check(tlvs)? }))
}

fn begins(buf: &[u8]) -> Result<(), ProxyError> {
    if buf.starts_with(VERSION_1) {
        Err(ProxyError::Version1)
    } else if SIGNATURE.starts_with(buf) || VERSION_1.starts_with(buf) {
        Ok(())
    } else {
        Err(ProxyError::NotProxy)
    }
}

fn addresses(family: u8, body: &[u8]) -> Result<(Option<SocketAddr>, &[u8]), ProxyError> {
    // A datagram address is accepted, too, because the listener determines the transport.
    if family & 0x0F > 2 {
        return Err(ProxyError::Family);
    }
    match family >> 4 {
        // An address without family has no defined length, so nothing after it can be found.
        0 => Ok((None, &[])),
        1 => {
            let (block, tlvs) = body.split_first_chunk::<12>().ok_or(ProxyError::Addresses)?;
            let [a, b, c, d, .., p, q, _, _] = *block;
            Ok((Some(address(Ipv4Addr::new(a, b, c, d), [p, q])), tlvs))
        }
        2 => {
            let (block, tlvs) = body.split_first_chunk::<36>().ok_or(ProxyError::Addresses)?;
            let mut source = [0; 16];
            source.copy_from_slice(&block[..16]);
            Ok((Some(address(Ipv6Addr::from(source), [block[32], block[33]])), tlvs))
        }
        3 => body.split_first_chunk::<216>().map(|(_, tlvs)| (None, tlvs)).ok_or(ProxyError::Addresses),
        _ => Err(ProxyError::Family),
    }
}

fn address(ip: impl Into<IpAddr>, port: [u8; 2]) -> SocketAddr {
    SocketAddr::new(ip.into(), u16::from_be_bytes(port))
}

/// Further fields of type, length and value, all complete; an unknown value (`-`), an empty value and invalid UTF-8 become
/// `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    fn check(bytes: &'a [u8]) -> Result<Self, ProxyError> {
        let mut left = bytes;
        let mut seen = [false; KNOWN.len()];
        while !left.is_empty() {
            let (kind, _, after) = split(left).ok_or(ProxyError::Tlv)?;
            left = after;
            let known = KNOWN.iter().position(|k| *k == kind);
            if known.is_some_and(|at| std::mem::replace(&mut seen[at], true)) {
                return Err(ProxyError::Twice(kind));
            }
        }
        Ok(Self(bytes))
    }

    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let (kind, value, after) = split(left)?;
            left = after;
            Some((kind, value))
        })
    }

    /// The server name of the client's TLS handshake (SNI).
    pub fn authority(&self) -> Option<&'a str> {
        self.text(AUTHORITY)
    }

    /// SHA-256 of the client's certificate in hexadecimal (0xE0). It does not authenticate the
    /// client: the edge must check the chain against the broker's own CA.
    pub fn fingerprint(&self) -> Option<&'a str> {
        self.text(FINGERPRINT)
    }

    pub fn subject(&self) -> Option<&'a str> {
        self.text(SUBJECT)
    }

    /// More about the TLS connection, in the gateway's own format (0xE2).
    pub fn tls_details(&self) -> Option<&'a str> {
        self.text(TLS_DETAILS)
    }

    /// The client's certificate as percent-encoded PEM (0xE3).
    pub fn certificate(&self) -> Option<&'a str> {
        self.text(CERTIFICATE)
    }

    fn text(&self, kind: u8) -> Option<&'a str> {
        let (_, value) = self.iter().find(|(k, _)| *k == kind)?;
        std::str::from_utf8(value).ok().filter(|text| !matches!(*text, "" | "-"))
    }
}

fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, len_high, len_low], after) = bytes.split_first_chunk()?;
    let (value, after) = after.split_at_checked(usize::from(u16::from_be_bytes([len_high, len_low])))?;
    Some((kind, value, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[version_command, family], &len, body].concat()
    }

    fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        [&[kind][..], &u16::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 1, 0xD4, 0x31, 0x22, 0xB3];

    #[test]
    fn a_tcp4_header_tells_the_client_and_what_the_gateway_knows() {
        let tlvs = [
            tlv(0x02, b"b1.example.com"),
            tlv(0x03, &[1, 2, 3, 4]),
            tlv(0x04, b""),
            tlv(0xE0, b"00ff"),
            tlv(0xE1, b"-"),
        ]
        .concat();
        let mut bytes = header(0x21, 0x11, &[&V4[..], &tlvs].concat());
        let size = bytes.len();
        bytes.extend_from_slice(&[0x10, 0]);
        let header = parse(&bytes).unwrap().unwrap();
        assert_eq!(header.size, size);
        assert_eq!(header.source, Some("192.0.2.1:54321".parse().unwrap()));
        assert!(!header.local);
        assert_eq!(header.tlvs.authority(), Some("b1.example.com"));
        assert_eq!(header.tlvs.fingerprint(), Some("00ff"));
        assert_eq!(header.tlvs.subject(), None, "a dash is nothing");
        assert_eq!(header.tlvs.tls_details(), None);
        assert_eq!(header.tlvs.iter().count(), 5);
    }

    #[test]
    fn addresses_of_each_family() {
        let v6 = [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[1], &[9; 16], &[0, 80, 0, 81]].concat();
        let name = tlv(2, b"n");
        for (family, block, source, named) in [
            (0x11, &V4[..], Some("192.0.2.1:54321"), true),
            (0x12, &V4, Some("192.0.2.1:54321"), true),
            (0x21, &v6, Some("[2001:db8::1]:80"), true),
            (0x22, &v6, Some("[2001:db8::1]:80"), true),
            (0x31, &[7; 216], None, true),
            (0x00, &[], None, false),
        ] {
            let bytes = header(0x21, family, &[block, &name].concat());
            let header = parse(&bytes).unwrap().unwrap();
            assert_eq!(header.source, source.map(|s| s.parse().unwrap()), "{family:#x}");
            assert_eq!(header.tlvs.authority(), named.then_some("n"), "{family:#x}");
        }
    }

    #[test]
    fn a_local_header_says_nothing_of_a_client() {
        for body in [&[][..], &V4, &[1, 2, 3]] {
            let bytes = header(0x20, 0x11, body);
            let header = parse(&bytes).unwrap().unwrap();
            assert_eq!((header.size, header.source, header.local), (16 + body.len(), None, true));
            assert_eq!(header.tlvs.iter().count(), 0);
        }
    }

    #[test]
    fn a_header_cut_anywhere_waits_for_the_rest() {
        let bytes = header(0x21, 0x11, &[&V4[..], &tlv(2, b"name")].concat());
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len]), Ok(None), "{len}");
        }
        assert!(parse(&bytes).unwrap().is_some());
    }

    #[test]
    fn inconsistent_headers_are_refused() {
        let body = |tlvs: &[u8]| [&V4[..], tlvs].concat();
        let twice = [tlv(0xE0, b"a"), tlv(4, b""), tlv(4, b""), tlv(0xE0, b"b")].concat();
        for (bytes, error) in [
            (b"\x10\x0e\0\x04MQTT\x05".to_vec(), ProxyError::NotProxy),
            (b"\r\n\r\n\0\r\nQUIT ".to_vec(), ProxyError::NotProxy),
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 54321 8883\r\n".to_vec(), ProxyError::Version1),
            (b"PROXY ".to_vec(), ProxyError::Version1),
            (header(0x11, 0x11, &V4), ProxyError::Version),
            (header(0x31, 0x11, &V4), ProxyError::Version),
            (header(0x22, 0x11, &V4), ProxyError::Command),
            (header(0x21, 0x41, &V4), ProxyError::Family),
            (header(0x21, 0x13, &V4), ProxyError::Family),
            (header(0x21, 0x11, &V4[..11]), ProxyError::Addresses),
            (header(0x21, 0x21, &[0; 35]), ProxyError::Addresses),
            (header(0x21, 0x31, &[0; 215]), ProxyError::Addresses),
            (header(0x21, 0x11, &body(&[2])), ProxyError::Tlv),
            (header(0x21, 0x11, &body(&[2, 0, 2, b'x'])), ProxyError::Tlv),
            (header(0x21, 0x11, &body(&twice)), ProxyError::Twice(0xE0)),
        ] {
            assert_eq!(parse(&bytes), Err(error), "{bytes:x?}");
        }
    }

    #[test]
    fn too_large_is_known_before_it_arrives() {
        let bytes = header(0x21, 0x11, &[0; 16 * 1024 + 1]);
        assert_eq!(parse(&bytes[..16]), Err(ProxyError::TooLarge));
        let padding = tlv(4, &[0; 16 * 1024 - 12 - 3]);
        let bytes = header(0x21, 0x11, &[&V4[..], &padding].concat());
        assert_eq!(parse(&bytes).unwrap().unwrap().size, HEADER_BYTES_MAX);
    }

    #[test]
    fn one_byte_is_enough_to_know_a_stranger() {
        for first in 0..=u8::MAX {
            let expected = match first {
                b'\r' | b'P' => Ok(None),
                _ => Err(ProxyError::NotProxy),
            };
            assert_eq!(parse(&[first]), expected, "{first:#x}");
        }
    }
}
