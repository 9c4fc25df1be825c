//! How a broker lets clients in.

use serde::{Deserialize, Serialize};

use super::invalid::{Checked, Findings};
use super::limits::Limits;
use super::rule::Rule;
use super::webhook::WebhookAuth;

/// How a broker lets clients in, and what all of them may do. One a broker.
///
/// A client is asked for what it shows, in this order: a certificate, a token, a password, the webhook; the first method that knows
/// it decides. A client that shows nothing is anonymous.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// Clients without user name and certificate may connect.
    pub anonymous: bool,
    /// Clients may show the password of a [`super::Credential`] in CONNECT.
    pub passwords: bool,
    /// 5.0 clients may prove that they know it by SCRAM-SHA-256.
    pub scram: bool,
    /// Clients may show a token of a [`super::JwtIssuer`].
    pub tokens: bool,
    /// Whether clients show a certificate of a [`super::ClientCa`].
    pub certificates: CertificateUse,
    /// A service of the tenant's that is asked last. `None`: nobody is asked.
    pub webhook: Option<WebhookAuth>,
    /// Rules of all clients: they come last. When a client has no rule at all, here, of its group or its own, it may do everything;
    /// when it has one, it may do nothing but what they allow.
    pub rules: Vec<Rule>,
    /// What the broker and its clients may use.
    pub limits: Limits,
    /// The most that limits may be, by the plan of the tenant. `None`: no plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Limits>,
}

/// Whether clients show a certificate of the broker's own authorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CertificateUse {
    /// Certificates mean nothing.
    #[default]
    Off,
    /// A certificate says who the client is; without one, another method does.
    Accepted,
    /// Without a good certificate nobody connects. It says who the client is.
    Required,
    /// Without a good certificate nobody connects; another method says who the client is.
    Additional,
}

impl Access {
    /// The limits that count: none is above the plan's.
    #[must_use]
    pub fn limits_in_force(&self) -> Limits {
        self.ceiling.as_ref().map_or_else(|| self.limits.clone(), |ceiling| self.limits.within(ceiling))
    }

    /// Says all that is wrong with it.
    ///
    /// # Errors
    /// A list, by fields.
    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        if let Some(webhook) = &self.webhook {
            findings.within("webhook", |findings| webhook.check(findings));
        }
        Rule::check_all("rules", &self.rules, &mut findings);
        findings.within("limits", |findings| self.limits.check(findings));
        findings.done()
    }
}

/// Passwords and SCRAM, for those who have a credential.
impl Default for Access {
    fn default() -> Self {
        Self {
            anonymous: false,
            passwords: true,
            scram: true,
            tokens: false,
            certificates: CertificateUse::Off,
            webhook: None,
            rules: Vec::new(),
            limits: Limits::default(),
            ceiling: None,
        }
    }
}
