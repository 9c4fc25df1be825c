//! Decides which addresses may be called, so that a tenant's URL cannot reach a private network: public ones, and those of the
//! operator's `allow`, which alone are called without TLS unless `plain_http` is set.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::CallError;

/// IPv4 outside of the public internet: networks that IANA's registry (RFC 6890) calls not globally
/// reachable, multicast, reserved networks, and the one public address that a cloud uses for its
/// own service.
const CLOSED_V4: [Ipv4Net; 16] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([168, 63, 129, 16], 32), // Azure's platform, from each of its machines
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
];

/// The only allocated IPv6 space. Loopback, unique local, link-local, multicast and IPv4-compatible
/// addresses are outside of it.
const OPEN_V6: Ipv6Net = v6([0x2000, 0, 0], 3);

/// Special networks within [`OPEN_V6`]: protocols such as Teredo, and documentation.
const CLOSED_V6: [Ipv6Net; 3] = [v6([0x2001, 0, 0], 23), v6([0x2001, 0xdb8, 0], 32), v6([0x3fff, 0, 0], 20)];

/// NAT64 (RFC 6052): the last four bytes are an IPv4 address. Other prefixes for NAT64 cannot be
/// known.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0], 96);
/// 6to4 (RFC 3056): an IPv4 address follows the first two bytes.
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0, 0], 16);

#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) allow: Vec<IpNet>,
    pub(crate) plain_http: bool,
}

impl Guard {
    pub(crate) fn pass(&self, found: &[SocketAddr], is_https: bool) -> Result<Vec<SocketAddr>, CallError> {
        let may = |address: &&SocketAddr| self.is_allowed(address.ip()) || is_public(address.ip());
        let passed: Vec<SocketAddr> = found.iter().filter(may).copied().collect();
        if passed.is_empty() {
            return Err(CallError::Forbidden);
        }
        if is_https || self.plain_http {
            return Ok(passed);
        }
        let allowed: Vec<_> = passed.into_iter().filter(|address| self.is_allowed(address.ip())).collect();
        if allowed.is_empty() { Err(CallError::Insecure) } else { Ok(allowed) }
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        let meant = meant(address).map_or(address, IpAddr::V4);
        self.allow.iter().any(|net| net.contains(&address) || net.contains(&meant))
    }
}

fn is_public(address: IpAddr) -> bool {
    match (meant(address), address) {
        (Some(meant), _) => !CLOSED_V4.iter().any(|net| net.contains(&meant)),
        (None, IpAddr::V6(six)) => OPEN_V6.contains(&six) && !CLOSED_V6.iter().any(|net| net.contains(&six)),
        (None, IpAddr::V4(_)) => false,
    }
}

/// The IPv4 address that `address` is or contains, which a gateway of the network would connect to.
fn meant(address: IpAddr) -> Option<Ipv4Addr> {
    let six = match address {
        IpAddr::V4(four) => return Some(four),
        IpAddr::V6(six) => six,
    };
    let bytes = six.octets();
    let four = |at: usize| Some(Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]));
    if NAT64.contains(&six) {
        return four(12);
    }
    if SIX_TO_FOUR.contains(&six) {
        return four(2);
    }
    six.to_ipv4_mapped()
}

const fn v4([a, b, c, d]: [u8; 4], bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6([a, b, c]: [u16; 3], bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(guard: &Guard, address: &str, is_https: bool) -> Result<(), &'static str> {
        let address = SocketAddr::new(address.parse().unwrap(), 443);
        guard.pass(&[address], is_https).map(|_| ()).map_err(|error| error.reason())
    }

    fn guard(allow: &[&str]) -> Guard {
        Guard { allow: allow.iter().map(|net| net.parse().unwrap()).collect(), plain_http: false }
    }

    #[test]
    fn only_the_public_internet_is_called() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "168.63.129.15",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:200::1",
            "64:ff9b::808:808",
            "::ffff:8.8.8.8",
            "2002:808:808::1",
            "3ffe::1",
        ] {
            assert_eq!(passes(&guard(&[]), address, true), Ok(()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "169.254.170.2",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "192.168.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:10.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::808:808",
            "100::1",
            "2001::1",
            "2001:0:53aa:64c:0:0:f5ff:fffe",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:a00:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
            "ffff::1",
        ] {
            assert_eq!(passes(&guard(&[]), address, true), Err("forbidden"), "{address}");
            assert_eq!(passes(&guard(&["192.0.2.128/32"]), address, true), Err("forbidden"), "{address}");
        }
    }

    #[test]
    fn addresses_that_the_operator_allows_are_called_even_without_tls() {
        let guard = guard(&["127.0.0.0/8", "fd00::/8"]);
        for address in ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "fd00::1"] {
            assert_eq!(passes(&guard, address, false), Ok(()), "{address}");
        }
        for address in ["10.0.0.1", "::1", "fc00::1"] {
            assert_eq!(passes(&guard, address, false), Err("forbidden"), "{address}");
        }
    }

    #[test]
    fn the_public_internet_needs_tls_unless_the_operator_says_otherwise() {
        assert_eq!(passes(&guard(&["127.0.0.0/8"]), "8.8.8.8", false), Err("insecure"));
        assert_eq!(passes(&Guard { allow: Vec::new(), plain_http: true }, "8.8.8.8", false), Ok(()));
        assert_eq!(
            passes(&Guard { allow: Vec::new(), plain_http: true }, "10.0.0.1", false),
            Err("forbidden")
        );
    }

    #[test]
    fn of_a_host_with_many_addresses_only_the_public_ones_are_called() {
        let found = ["127.0.0.1:443", "8.8.8.8:443", "[::1]:443"].map(|address| address.parse().unwrap());
        assert_eq!(guard(&[]).pass(&found, true).unwrap(), [found[1]]);
        assert_eq!(guard(&["127.0.0.0/8"]).pass(&found, false).unwrap(), [found[0]]);
        assert!(matches!(guard(&[]).pass(&[], true), Err(CallError::Forbidden)));
    }
}
