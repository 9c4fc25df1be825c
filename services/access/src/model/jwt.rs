//! Stored records of token issuers (JWT, RFC 7519).

use serde::{Deserialize, Serialize};

use super::hidden::HiddenText;
use super::invalid::{Checked, Findings};
use crate::limits::{
    AUDIENCES_MAX, CLAIM_BYTES_MAX, HS256_SECRET_BYTES_MIN, LEEWAY_S_MAX, SIGNING_KEY_BYTES_MAX,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JwtIssuer {
    pub name: String,
    pub enabled: bool,
    /// Algorithms that its tokens may be signed with. The key determines which of them applies,
    /// never the token.
    pub algorithms: Vec<JwtAlgorithm>,
    pub key: JwtKey,
    /// The required `iss`; `None` accepts any.
    pub issuer: Option<String>,
    /// `aud` must contain one of these; an empty list accepts any.
    pub audience: Vec<String>,
    pub claims: ClaimMapping,
    /// Allowed difference of the issuer's clock, seconds.
    pub leeway_s: u32,
    /// Name of the [`super::Group`] of its users, unless their credential names another.
    pub group: Option<String>,
    /// Disconnects clients when their token expires. A 5.0 client with enhanced authentication can
    /// send a new token before.
    pub disconnect_at_expiry: bool,
    pub created_at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum JwtAlgorithm {
    #[serde(rename = "HS256")]
    Hs256,
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "ES256")]
    Es256,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JwtKey {
    Secret {
        secret: HiddenText,
        /// `secret` is base64 of the key's bytes (only [`crate::jwt::Issuer`] decodes it); otherwise its text is the key.
        #[serde(default)]
        base64: bool,
    },
    /// A key of RS256 or ES256.
    Pem {
        /// A `PUBLIC KEY`, or a `CERTIFICATE`, whose key is used.
        pem: String,
    },
    /// For RS256 and ES256; the issuer rotates its keys by itself.
    Jwks { url: String },
}

/// Names of the token's claims that hold the user name, the client id and the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ClaimMapping {
    /// Claim with the user name. If the client sends a user name, it must be the same.
    pub user: String,
    /// Claim with the client id that the client must use. `None` allows any client id.
    pub client_id: Option<String>,
    /// Claim with a list of rules that precede all others. `None`, or a token without it, adds none.
    pub rules: Option<String>,
}

impl JwtIssuer {
    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.name("name", &self.name);
        findings.require(!self.algorithms.is_empty(), "algorithms", "is empty: name at least one");
        for (n, algorithm) in self.algorithms.iter().enumerate() {
            let fits = (*algorithm == JwtAlgorithm::Hs256) == matches!(self.key, JwtKey::Secret { .. });
            findings.require(fits, &format!("algorithms[{n}]"), "does not go with the kind of key");
        }
        findings.within("key", |findings| self.key.check(findings));
        findings.within("claims", |findings| self.claims.check(findings));
        if self.leeway_s > LEEWAY_S_MAX {
            findings.add("leeway_s", format!("is not between 0 and {LEEWAY_S_MAX}"));
        }
        if let Some(group) = &self.group {
            findings.name("group", group);
        }
        findings.done()
    }

    /// Refuses a new record that is too long. Pods do not check it, so that records of earlier builds keep working.
    pub fn check_lengths(&self) -> Checked {
        let mut findings = Findings::default();
        if let Some(issuer) = &self.issuer {
            findings.bytes("issuer", issuer, CLAIM_BYTES_MAX);
        }
        findings.each("audience", &self.audience, AUDIENCES_MAX, |one, findings| {
            findings.bytes("", one, CLAIM_BYTES_MAX);
        });
        if self.algorithms.len() > JwtAlgorithm::ALL.len() {
            findings.add(
                "algorithms",
                format!("has more than {} entries: name each algorithm once", JwtAlgorithm::ALL.len()),
            );
        }
        if let JwtKey::Secret { secret, .. } = &self.key {
            findings.bytes("key.secret", secret.expose(), SIGNING_KEY_BYTES_MAX);
        }
        findings.done()
    }
}

impl JwtAlgorithm {
    const ALL: [Self; 3] = [Self::Hs256, Self::Rs256, Self::Es256];
}

impl JwtKey {
    fn check(&self, findings: &mut Findings) {
        match self {
            Self::Secret { secret, base64 } => {
                let bytes = secret.expose().len() * if *base64 { 3 } else { 4 } / 4;
                if bytes < HS256_SECRET_BYTES_MIN {
                    findings.add(
                        "secret",
                        format!("is shorter than {HS256_SECRET_BYTES_MIN} bytes: use a longer one"),
                    );
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

/// An empty PEM, which validation refuses: a record without a key is invalid.
impl Default for JwtKey {
    fn default() -> Self {
        Self::Pem { pem: String::new() }
    }
}

impl Default for ClaimMapping {
    fn default() -> Self {
        Self { user: "sub".to_owned(), client_id: None, rules: None }
    }
}
