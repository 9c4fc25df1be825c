//! Who may issue tokens (JWT, RFC 7519) for a broker.

use serde::{Deserialize, Serialize};

use super::hidden::HiddenText;
use super::invalid::{Checked, Findings};
use crate::limits::{HS256_SECRET_BYTES_MIN, LEEWAY_S_MAX};

/// An issuer of tokens. A client shows one as its password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JwtIssuer {
    /// Its name, unique in its broker.
    pub name: String,
    /// False: its tokens are not taken.
    pub enabled: bool,
    /// Algorithms that its tokens may be signed with. The key says which of them it can be used for, never the token.
    pub algorithms: Vec<JwtAlgorithm>,
    /// What signatures are checked with.
    pub key: JwtKey,
    /// What `iss` must be. `None`: anything.
    pub issuer: Option<String>,
    /// One of these must be in `aud`. Empty: anything.
    pub audience: Vec<String>,
    /// What its claims are called and mean here.
    pub claims: ClaimMapping,
    /// By how much the issuer's clock may be off, seconds.
    pub leeway_s: u32,
    /// Name of the [`super::Group`] whose rules its users have, when no credential of their name says another.
    pub group: Option<String>,
    /// Clients are disconnected when their token expires (5.0 clients with enhanced authentication may bring a new one before).
    pub disconnect_at_expiry: bool,
    /// When it was made.
    pub created_at_ms: u64,
}

/// How a token is signed (RFC 7518 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum JwtAlgorithm {
    /// HMAC with SHA-256.
    #[serde(rename = "HS256")]
    Hs256,
    /// RSA, PKCS#1 v1.5, with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
}

/// What signatures are checked with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JwtKey {
    /// HS256.
    Secret {
        /// The secret as it is, or its base64.
        secret: HiddenText,
        /// `secret` is base64 of what signs.
        #[serde(default)]
        base64: bool,
    },
    /// RS256 or ES256, whichever the key is for.
    Pem {
        /// `PUBLIC KEY`, or a `CERTIFICATE` with one.
        pem: String,
    },
    /// RS256 and ES256: the issuer replaces its keys by itself.
    Jwks {
        /// Where the key set (RFC 7517 section 5) is.
        url: String,
    },
}

/// Names of claims, and what they mean here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ClaimMapping {
    /// The user name. The client need not send one; if it does, it must be this one.
    pub user: String,
    /// The client id, which the client must have. `None`: any.
    pub client_id: Option<String>,
    /// A list of [`super::Rule`]s that come first. `None`, or not in the token: none.
    pub rules: Option<String>,
}

impl JwtIssuer {
    /// Says all that is wrong with it.
    ///
    /// # Errors
    /// A list, by fields.
    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.name("name", &self.name);
        findings.require(!self.algorithms.is_empty(), "algorithms", "is empty");
        for (n, algorithm) in self.algorithms.iter().enumerate() {
            let fits = (*algorithm == JwtAlgorithm::Hs256) == matches!(self.key, JwtKey::Secret { .. });
            findings.require(fits, &format!("algorithms[{n}]"), "does not go with the kind of key");
        }
        findings.within("key", |findings| self.key.check(findings));
        findings.within("claims", |findings| self.claims.check(findings));
        if self.leeway_s > LEEWAY_S_MAX {
            findings.add("leeway_s", format!("more than {LEEWAY_S_MAX}"));
        }
        if let Some(group) = &self.group {
            findings.name("group", group);
        }
        findings.done()
    }
}

impl JwtKey {
    fn check(&self, findings: &mut Findings) {
        match self {
            Self::Secret { secret, base64 } => {
                let bytes = secret.expose().len() * if *base64 { 3 } else { 4 } / 4;
                if bytes < HS256_SECRET_BYTES_MIN {
                    findings.add("secret", format!("shorter than {HS256_SECRET_BYTES_MIN} bytes"));
                }
            }
            Self::Pem { pem } if pem.contains("-----BEGIN CERTIFICATE-----") => {
                findings.pem("pem", pem, "CERTIFICATE");
            }
            Self::Pem { pem } => findings.pem("pem", pem, "PUBLIC KEY"),
            Self::Jwks { url } => findings.url("url", url),
        }
    }
}

impl ClaimMapping {
    fn check(&self, findings: &mut Findings) {
        findings.name("user", &self.user);
        for (field, claim) in [("client_id", &self.client_id), ("rules", &self.rules)] {
            if let Some(claim) = claim {
                findings.name(field, claim);
            }
        }
    }
}

impl Default for JwtIssuer {
    fn default() -> Self {
        Self {
            name: String::new(),
            enabled: true,
            algorithms: Vec::new(),
            key: JwtKey::default(),
            issuer: None,
            audience: Vec::new(),
            claims: ClaimMapping::default(),
            leeway_s: 30,
            group: None,
            disconnect_at_expiry: true,
            created_at_ms: 0,
        }
    }
}

/// None that could be right.
impl Default for JwtKey {
    fn default() -> Self {
        Self::Pem { pem: String::new() }
    }
}

/// `sub` is the user.
impl Default for ClaimMapping {
    fn default() -> Self {
        Self { user: "sub".to_owned(), client_id: None, rules: None }
    }
}
