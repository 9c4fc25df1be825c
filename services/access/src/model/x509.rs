//! The stored record of a tenant's certificate authority.

use serde::{Deserialize, Serialize};

use super::invalid::{Checked, Findings};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientCa {
    pub name: String,
    pub enabled: bool,
    /// PEM: the authority's own certificates, and intermediate ones that clients do not send.
    pub pem: String,
    /// PEM of the authority's revocation lists (X509 CRL), each signed by that authority; `None`
    /// revokes nothing.
    pub revoked: Option<String>,
    pub user: CertificateUser,
    /// Name of the [`super::Group`] of its users, unless their credential names another.
    pub group: Option<String>,
    pub created_at_ms: u64,
}

/// The field of a certificate that holds the user name; the first of its kind is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CertificateUser {
    #[default]
    CommonName,
    /// DNS name among the alternative names.
    SanDns,
    /// URI among the alternative names, such as a SPIFFE id.
    SanUri,
    /// E-mail address among the alternative names.
    SanEmail,
}

impl ClientCa {
    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.name("name", &self.name);
        findings.pem("pem", &self.pem, "CERTIFICATE");
        if let Some(revoked) = &self.revoked {
            findings.pem("revoked", revoked, "X509 CRL");
        }
        if let Some(group) = &self.group {
            findings.name("group", group);
        }
        findings.done()
    }
}

impl Default for ClientCa {
    fn default() -> Self {
        Self {
            name: String::new(),
            enabled: true,
            pem: String::new(),
            revoked: None,
            user: CertificateUser::default(),
            group: None,
            created_at_ms: 0,
        }
    }
}
