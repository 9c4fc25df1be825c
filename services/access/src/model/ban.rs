//! The stored record of a ban.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::invalid::{Checked, Findings};
use crate::limits::{BAN_REASON_BYTES_MAX, CLIENT_ID_BYTES_MAX, USER_BYTES_MAX};

/// A ban from one broker, by exactly one of client id, user and address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ban {
    pub name: String,
    pub client_id: Option<String>,
    pub user: Option<String>,
    /// An address or a network: `192.0.2.7`, `2001:db8::/32`.
    pub address: Option<String>,
    pub until_ms: Option<u64>,
    pub reason: Option<String>,
    pub created_at_ms: u64,
}

impl Ban {
    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.name("name", &self.name);
        let ways = [("client_id", &self.client_id), ("user", &self.user), ("address", &self.address)];
        let set = ways.iter().filter(|(_, value)| value.is_some()).count();
        for (field, value) in ways {
            let is_wrong = set == 0 || (set > 1 && value.is_some());
            findings.require(!is_wrong, field, "set one of client_id, user and address, and no more");
        }
        // A token, a certificate or a webhook may name users that no credential can have: each of them can be banned.
        for (field, value, bytes_max) in
            [("client_id", &self.client_id, CLIENT_ID_BYTES_MAX), ("user", &self.user, USER_BYTES_MAX)]
        {
            let fits = value.as_ref().is_none_or(|text| (1..=bytes_max).contains(&text.len()));
            if !fits {
                findings.add(field, format!("must have 1 to {bytes_max} bytes"));
            }
        }
        if let Some(address) = &self.address {
            let what = "is not an address or a network, such as 192.0.2.7 or 2001:db8::/32";
            findings.require(network(address).is_some(), "address", what);
        }
        let reason = self.reason.as_deref().unwrap_or_default();
        findings.bytes("reason", reason, BAN_REASON_BYTES_MAX);
        findings.visible("reason", reason);
        findings.done()
    }
}

pub(crate) fn network(text: &str) -> Option<IpNet> {
    match text.parse::<IpAddr>() {
        Ok(address) => Some(IpNet::from(address.to_canonical())),
        Err(_) => text.parse().ok(),
    }
}
