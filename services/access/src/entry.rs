//! Authentication of a CONNECT: which method decides, and which rules then apply to the client.
//!
//! Each call on a [`ConnectAuthentication`] returns the next [`AuthenticationStep`], until the
//! client is accepted or refused. The caller reads credentials, hashes passwords, fetches keys and
//! calls the webhook.
//!
//! The methods run in this order: certificate, token, password, webhook. The first method that
//! knows the client decides; a client that presents nothing is anonymous. A certificate of another
//! authority and a token of an unknown issuer are ignored, unless a certificate is required.
//!
//! [`BrokerAccess::review`] derives an accepted client's rules from its [`ProvenIdentity`] at CONNECT and
//! after every change of the records. So a change applies to connected and new clients alike.

mod broker;
mod connect_token_identity;
mod shared_rules;
mod steps;

pub use broker::{AccessRecords, BrokerAccess};
pub use steps::{AuthenticationStep, ConnectAuthentication, KeySets, PresentedCredentials};

use crate::limits::USER_BYTES_MAX;
use crate::rules::{Permissions, RuleList};
use crate::x509::CertificateId;
use crate::{connect_token, jwt, scram, x509};

/// A token or certificate comes with the name of the issuer's or the authority's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    Anonymous,
    Password,
    Token(Box<str>),
    Certificate(Box<str>),
    Webhook,
    /// A short-lived password that the control plane signs, for example for a page of the console.
    ConnectToken {
        may_share: bool,
    },
}

/// The proven identity of a client; with the stored records it determines the client's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenIdentity {
    pub method: Method,
    pub user: Option<Box<str>>,
    /// Rules of the client's token or of the webhook's answer, which precede all others.
    pub rules: Option<std::sync::Arc<RuleList>>,
    /// The group that the method named, unless the user's credential names another.
    pub group: Option<Box<str>>,
    /// Unix milliseconds at which the client's token or the webhook's permission expires.
    pub until_ms: Option<u64>,
    /// `created_at_ms` of the credential, issuer or authority that admitted the client: a later record of the same name is another.
    pub since_ms: Option<u64>,
    /// The client's certificate, if the broker demanded one or it admitted the client.
    pub certificate: Option<Box<ProvenCertificate>>,
}

impl ProvenIdentity {
    #[must_use]
    pub fn new(method: Method, user: Option<Box<str>>) -> Self {
        let (rules, group, until_ms, since_ms, certificate) = Default::default();
        Self { method, user, rules, group, until_ms, since_ms, certificate }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenCertificate {
    pub id: CertificateId,
    /// Name and `created_at_ms` of the authority that has verified it.
    pub authority: (Box<str>, u64),
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub permissions: Permissions,
    /// Unix milliseconds at which the edge must disconnect the client; `None`: never.
    pub until_ms: Option<u64>,
}

/// The tenant sees the text; the client sees only "bad user name or password" or "not authorized",
/// except for [`AccessRefusal::is_temporary`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessRefusal {
    #[error(
        "the broker admits no anonymous clients: connect with a user name and password, or switch anonymous clients on"
    )]
    Anonymous,
    #[error(
        "no method of the broker accepts what the client presents: switch on the method that the client uses"
    )]
    NoMethod,
    #[error(
        "the user name or the password is wrong: compare the client's settings with the credential, or set a new password"
    )]
    Password,
    #[error("the user name has more than {USER_BYTES_MAX} bytes: give the client a shorter one")]
    LongUserName,
    #[error("the credential of this user name is disabled or has expired: enable it, or move its expiry")]
    Disabled,
    #[error("the token is refused: {0}")]
    Token(#[source] jwt::TokenRefusal),
    #[error("the connect token is refused: {0}")]
    ConnectToken(#[source] connect_token::ConnectTokenRefusal),
    #[error(
        "the broker requires a certificate, and the client presented none: give the client one, or make certificates optional"
    )]
    NoCertificate,
    #[error("the certificate is refused: {0}")]
    Certificate(#[source] x509::CertificateRefusal),
    #[error("the user name of the CONNECT differs from the proven one: leave it empty, or make both equal")]
    OtherUser,
    #[error(
        "the credential of this user name is bound to another client id: connect with that id, or remove it from the credential"
    )]
    OtherClient,
    #[error("the enhanced authentication is refused: {0}")]
    Enhanced(#[from] scram::ScramRefusal),
    #[error("the webhook refused the client: look for the reason in the logs of its service")]
    Webhook,
    #[error("the webhook failed, and the client was asked to try again later: {0}")]
    WebhookFailed(&'static str),
    #[error(
        "the keys of the token's issuer cannot be fetched now, and the client was asked to try again later: check the issuer's key set URL"
    )]
    NoKeys,
    #[error(
        "the method that authenticated the client was deleted or switched off: the client must connect by another method"
    )]
    MethodRemoved,
    #[error(
        "the client's token, or the webhook's permission, has expired: the client must connect with a new one"
    )]
    Expired,
    #[error(
        "the client's group {0:?} is missing or invalid, and the other rules alone could allow too much: make the group again"
    )]
    Group(Box<str>),
    #[error("the rules of the client's credential are invalid: store them again")]
    Rules,
}

impl AccessRefusal {
    /// True when the cause is temporary: the client gets "server unavailable" and tries again.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::WebhookFailed(_) | Self::NoKeys)
    }
}

#[cfg(test)]
mod tests;
