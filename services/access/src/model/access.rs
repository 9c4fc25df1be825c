//! The stored record of a broker's authentication methods, rules and limits.

use serde::{Deserialize, Serialize};

use super::invalid::{Checked, Findings};
use super::limits::Limits;
use super::rule::Rule;
use super::webhook::WebhookAuth;

/// One record per broker; [`crate::entry`] has the order in which the methods run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    pub anonymous: bool,
    pub passwords: bool,
    /// Also without `passwords`, MQTT 5.0 clients can prove by SCRAM-SHA-256 that they know the password.
    pub scram: bool,
    pub tokens: bool,
    pub certificates: CertificateUse,
    pub webhook: Option<WebhookAuth>,
    /// Rules of all clients, which follow all other rules.
    pub rules: Vec<Rule>,
    pub limits: Limits,
    /// The most that the tenant's plan allows of each limit; `None` without a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Limits>,
    /// The server's settings decide who may connect and the rules: of this record only the limits are in force.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_settings: bool,
}

/// How the broker uses certificates of its own authorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CertificateUse {
    #[default]
    Off,
    /// A certificate names the user; without one, another method authenticates the client.
    Accepted,
    /// A valid certificate is required, and names the user.
    Required,
    /// A valid certificate is required; another method names the user.
    Additional,
}

impl Access {
    /// The limits that apply: the broker's own, but none above the plan's.
    #[must_use]
    pub fn limits_in_force(&self) -> Limits {
        self.ceiling.as_ref().map_or_else(|| self.limits.clone(), |ceiling| self.limits.within(ceiling))
    }

    /// Whether a client without user name and certificate may connect.
    #[must_use]
    pub fn admits_anonymous(&self) -> bool {
        let needs_certificate =
            matches!(self.certificates, CertificateUse::Required | CertificateUse::Additional);
        self.anonymous && !needs_certificate && self.webhook.is_none()
    }

    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        if let Some(webhook) = &self.webhook {
            findings.within("webhook", |findings| webhook.check(findings));
        }
        Rule::check_new(&self.rules, &mut findings);
        findings.within("limits", |findings| self.limits.check(findings));
        findings.done()
    }

    /// Checks changed settings. Earlier versions stored longer rules, which stay valid until they change.
    pub fn validate_change(&self, before: &Self) -> Checked {
        let mut changed = self.clone();
        if changed.rules == before.rules {
            changed.rules.clear();
        }
        changed.validate()
    }
}

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
            by_settings: false,
        }
    }
}
