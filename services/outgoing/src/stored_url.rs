//! Checks a tenant's URL before it is stored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Uri;
use http::uri::Scheme;

use crate::connector::host_and_port;
use crate::guard::Guard;
use crate::{CallError, CallSettings};

impl CallSettings {
    /// Checks a host that is an address, or the name `localhost`; other names are resolved, and so checked, at each call.
    pub fn check(&self, url: &str) -> Result<(), CallError> {
        let Ok(uri) = url.parse::<Uri>() else { return Err(CallError::Url("is not valid")) };
        let (host, port) = host_and_port(&uri);
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let found = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            // RFC 6761 section 6.3
            Err(_) if host == "localhost" || host.ends_with(".localhost") => {
                vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
            }
            Err(_) => return Ok(()),
        };
        let guard = Guard { allow: self.allow.clone(), plain_http: self.plain_http };
        let found: Vec<_> = found.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        guard.pass(&found, uri.scheme() == Some(&Scheme::HTTPS)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_a_closed_address_is_refused_before_any_call() {
        let check = |allow: &[&str], url: &str| {
            let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
            CallSettings { allow, ..CallSettings::default() }.check(url).map_err(|error| error.reason())
        };
        for url in [
            "https://127.0.0.1/",
            "http://127.0.0.1:1/",
            "https://10.1.2.3",
            "https://169.254.169.254/latest",
            "https://[::1]:8443/",
            "https://[::ffff:10.0.0.1]/",
            "https://[fd00::1]/a",
            "https://localhost/",
            "https://LOCALHOST.:8443/",
            "https://a.localhost/",
        ] {
            assert_eq!(check(&[], url), Err("forbidden"), "{url}");
        }
        assert_eq!(check(&[], "http://8.8.8.8/"), Err("insecure"));
        for url in ["https://8.8.8.8/", "https://a.test/", "http://a.test/", "https://localhost.a.test/"] {
            assert_eq!(check(&[], url), Ok(()), "{url}");
        }
        for url in ["http://127.0.0.1:1/", "http://localhost/", "https://127.9.9.9"] {
            assert_eq!(check(&["127.0.0.0/8"], url), Ok(()), "{url}");
        }
        assert_eq!(check(&["127.0.0.0/8"], "http://[::1]/"), Err("forbidden"));
    }
}
