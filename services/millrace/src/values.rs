//! Kinds of values that several settings take, with their parsers. A parser's error says what is
//! allowed.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Off,
    At(SocketAddr),
}

/// Empty when the setting is off.
pub(crate) fn addresses(name: &str, listen: &[Listen]) -> Result<Vec<SocketAddr>, String> {
    let at: Vec<_> = listen
        .iter()
        .filter_map(|listen| match listen {
            Listen::Off => None,
            Listen::At(address) => Some(*address),
        })
        .collect();
    if !at.is_empty() && at.len() < listen.len() {
        return Err(format!("{name} has \"off\" beside addresses: \"off\" stands alone"));
    }
    Ok(at)
}

pub(crate) fn listen(text: &str) -> Result<Listen, String> {
    if text == "off" {
        return Ok(Listen::Off);
    }
    text.parse().map(Listen::At).map_err(|_| {
        "an IP address with a port is allowed, such as 127.0.0.1:1883, 0.0.0.0:1883 or [::]:1883, or \"off\"".into()
    })
}

pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| {
        "an IP address or a network is allowed, such as 10.0.0.7, 10.0.0.0/16 or fd00::/64".into()
    })
}

pub(crate) fn yes_or_no(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "true or false is allowed".into())
}

pub(crate) fn public_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.trim_end_matches('/'));
    if host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', ' '])) {
        return Ok(text.trim_end_matches('/').to_owned());
    }
    Err("http:// or https:// and a host, without a path, is allowed, such as https://console.example.org"
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_has_a_scheme_and_a_host_and_no_path() {
        assert_eq!(public_url("https://a.example/").as_deref(), Ok("https://a.example"));
        assert_eq!(public_url("http://127.0.0.1:8080").as_deref(), Ok("http://127.0.0.1:8080"));
        for wrong in ["", "a.example", "https://", "https://a.example/console", "ftp://a", "https://a b"] {
            assert!(public_url(wrong).is_err(), "{wrong}");
        }
    }
}
