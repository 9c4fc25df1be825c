use std::net::IpAddr;

/// Clients that share one turn in the queue of password checks: those of an IPv4 address, or of a
/// /64 of IPv6, because providers commonly give one host a whole /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientSource(u64);

/// Stands for an unknown address. No IPv4 address and no public /64 has this number.
const UNKNOWN: u64 = u64::MAX;

impl ClientSource {
    pub fn new(address: Option<IpAddr>) -> Self {
        Self(match address.map(|address| address.to_canonical()) {
            None => UNKNOWN,
            Some(IpAddr::V4(address)) => u64::from(address.to_bits()),
            Some(IpAddr::V6(address)) => (address.to_bits() >> 64) as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_one_source() {
        let source = |text: &str| ClientSource::new(Some(text.parse().unwrap()));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.2"), source("10.0.0.1"));
        assert_ne!(source("::1"), ClientSource::new(None));
    }
}
