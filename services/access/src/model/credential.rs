//! Who may connect with a user name: credentials, and the groups that they are in.

use serde::{Deserialize, Serialize};

use super::hidden::{HiddenBytes, HiddenText};
use super::invalid::{Checked, Findings};
use super::rule::Rule;
use crate::limits::{SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN};
use crate::secrets::chosen;

/// A user of a broker.
///
/// Certificates, tokens and webhooks name users too. When there is a credential of that name its group, rules, `enabled` and
/// `expires_at_ms` count for them as well; there need not be one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Credential {
    /// User name, unique in its broker.
    pub user: String,
    /// What the client's password is checked against. `None`: no password is right.
    pub secret: Option<Secret>,
    /// The secret before the last rotation, while devices still have it.
    pub previous_secret: Option<PreviousSecret>,
    /// What SCRAM-SHA-256 is done with: of the same password as `secret`, so it is made anew with it.
    pub scram: Option<ScramVerifier>,
    /// Name of the [`Group`] whose rules come after these.
    pub group: Option<String>,
    /// The user's own rules; they come first.
    pub rules: Vec<Rule>,
    /// False: nobody may connect by this name, and who is connected is disconnected.
    pub enabled: bool,
    /// From then on it is as if it were not enabled.
    pub expires_at_ms: Option<u64>,
    /// When it was made.
    pub created_at_ms: u64,
    /// The only client id that may connect by this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
}

/// What a password is checked against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Secret {
    /// We made it, with full entropy, so a fast hash is as good as a slow one.
    Generated {
        /// Which of the region's keys the hash is made with, so that the key can be replaced.
        #[serde(default)]
        key: u32,
        /// Keyed BLAKE3 of the secret.
        hash: HiddenBytes<32>,
    },
    /// A person chose it.
    Chosen {
        /// PHC string of Argon2id.
        phc: HiddenText,
    },
}

/// A secret that is being replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousSecret {
    /// The secret.
    pub secret: Secret,
    /// From then on it is wrong.
    pub until_ms: u64,
}

/// What SCRAM-SHA-256 needs to know of a password (RFC 5802 section 3): not enough to log in with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScramVerifier {
    /// Rounds of PBKDF2.
    pub iterations: u32,
    /// Random, of this verifier.
    pub salt: HiddenBytes<16>,
    /// `StoredKey`.
    pub stored_key: HiddenBytes<32>,
    /// `ServerKey`.
    pub server_key: HiddenBytes<32>,
}

/// Users with rules in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// Its name, unique in its broker.
    pub name: String,
    /// Rules of its members: they come after a member's own and before the broker's.
    pub rules: Vec<Rule>,
    /// When it was made.
    pub created_at_ms: u64,
}

impl Credential {
    /// True when somebody may connect by this name.
    #[must_use]
    pub fn is_active(&self, now_ms: u64) -> bool {
        self.enabled && self.expires_at_ms.is_none_or(|at| now_ms < at)
    }

    /// Says all that is wrong with it.
    ///
    /// # Errors
    /// A list, by fields.
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
            let is_one = (1..=usize::from(u16::MAX)).contains(&client_id.len()) && !client_id.contains('\0');
            findings.require(is_one, "client_id", "is no client id: 1 to 65535 bytes without U+0000");
        }
        Rule::check_all("rules", &self.rules, &mut findings);
        findings.done()
    }
}

impl Secret {
    fn check(&self, findings: &mut Findings) {
        if let Self::Chosen { phc } = self
            && let Err(what) = chosen::check(phc.expose())
        {
            findings.add("phc", what);
        }
    }
}

impl Group {
    /// Says all that is wrong with it.
    ///
    /// # Errors
    /// A list, by fields.
    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.name("name", &self.name);
        Rule::check_all("rules", &self.rules, &mut findings);
        findings.done()
    }
}

/// Nobody's, and enabled.
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
        }
    }
}
