//! Stored records of users (credentials) and of their groups.

use serde::{Deserialize, Serialize};

use super::hidden::{HiddenBytes, HiddenText};
use super::invalid::{Checked, Findings};
use super::rule::Rule;
use crate::limits::{CLIENT_ID_BYTES_MAX, SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN};
use crate::phc;

/// A user of a broker. A user named by a certificate, token or webhook needs no record; if there is
/// one, its group, rules, `enabled` and `expires_at_ms` apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Credential {
    pub user: String,
    /// `None` refuses every password.
    pub secret: Option<Secret>,
    /// The secret before the last rotation, which devices may use until it ends.
    pub previous_secret: Option<PreviousSecret>,
    /// The SCRAM-SHA-256 verifier of the password in `secret`, replaced together with it.
    pub scram: Option<ScramVerifier>,
    /// Name of the [`Group`] whose rules follow the user's own.
    pub group: Option<String>,
    pub rules: Vec<Rule>,
    /// False refuses new clients of this user and disconnects connected ones.
    pub enabled: bool,
    /// Unix milliseconds after which the credential counts as disabled.
    pub expires_at_ms: Option<u64>,
    pub created_at_ms: u64,
    /// The only client id that may use this credential; `None` for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Id of the claim token by which a device made the credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_token: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Secret {
    Generated {
        /// Id of the region's key that made the hash, so that keys can be rotated.
        #[serde(default)]
        key: u32,
        hash: HiddenBytes<32>,
    },
    Chosen {
        phc: HiddenText,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousSecret {
    pub secret: Secret,
    pub until_ms: u64,
}

/// The SCRAM-SHA-256 verifier of a password (RFC 5802 section 3), which does not suffice to log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScramVerifier {
    pub iterations: u32,
    pub salt: HiddenBytes<16>,
    pub stored_key: HiddenBytes<32>,
    pub server_key: HiddenBytes<32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    pub name: String,
    pub rules: Vec<Rule>,
    pub created_at_ms: u64,
}

impl Credential {
    #[must_use]
    pub fn is_active(&self, now_ms: u64) -> bool {
        self.enabled && self.expires_at_ms.is_none_or(|at| now_ms < at)
    }

    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.user("user", &self.user);
        if let Some(secret) = &self.secret {
            findings.within("secret", |findings| secret.check(findings));
        }
        if let Some(previous) = &self.previous_secret {
            findings.within("previous_secret.secret", |findings| previous.secret.check(findings));
        }
        if let Some(scram) = &self.scram {
            let range = SCRAM_ITERATIONS_MIN..=SCRAM_ITERATIONS_MAX;
            if !range.contains(&scram.iterations) {
                findings
                    .add("scram.iterations", format!("is not between {} and {}", range.start(), range.end()));
            }
        }
        if let Some(group) = &self.group {
            findings.name("group", group);
        }
        if let Some(client_id) = &self.client_id {
            let is_one = (1..=CLIENT_ID_BYTES_MAX).contains(&client_id.len()) && !client_id.contains('\0');
            let what = format!("is not a client id: 1 to {CLIENT_ID_BYTES_MAX} bytes without U+0000");
            findings.require(is_one, "client_id", &what);
        }
        Rule::check_new(&self.rules, &mut findings);
        findings.done()
    }

    /// Checks a changed credential. Earlier versions stored longer rules and client ids, which stay valid until they change.
    pub fn validate_change(&self, before: &Self) -> Checked {
        let mut changed = self.clone();
        if changed.rules == before.rules {
            changed.rules.clear();
        }
        changed.client_id = changed.client_id.filter(|_| self.client_id != before.client_id);
        changed.validate()
    }
}

impl Secret {
    fn check(&self, findings: &mut Findings) {
        if let Self::Chosen { phc } = self
            && let Err(what) = phc::check(phc.expose())
        {
            findings.add("phc", what);
        }
    }
}

impl Group {
    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.name("name", &self.name);
        Rule::check_new(&self.rules, &mut findings);
        findings.done()
    }
}

impl Default for Credential {
    fn default() -> Self {
        Self {
            user: String::new(),
            secret: None,
            previous_secret: None,
            scram: None,
            group: None,
            rules: Vec::new(),
            enabled: true,
            expires_at_ms: None,
            created_at_ms: 0,
            client_id: None,
            claim_token: None,
        }
    }
}
