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
//! [`BrokerAccess::review`] derives an accepted client's rules from its [`Standing`] at CONNECT and
//! after every change of the records. So a change applies to connected and new clients alike.

mod broker;
mod steps;
mod token_standing;

pub use broker::{BrokerAccess, Records};
pub use steps::{AuthenticationStep, ConnectAuthentication, KeySets, PresentedCredentials};

use crate::rules::{Permissions, RuleList};
use crate::{connect_token, jwt, scram, x509};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    Anonymous,
    Password,
    Token(Box<str>),
    Certificate(Box<str>),
    Webhook,
    ConnectToken,
}

/// The proven identity of a client; with the stored records it determines the client's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub method: Method,
    pub user: Option<Box<str>>,
    /// Rules of the client's token or of the webhook's answer, which precede all others.
    pub rules: Option<std::sync::Arc<RuleList>>,
    /// The group that the method named, unless the user's credential names another.
    pub group: Option<Box<str>>,
    /// Unix milliseconds at which the client's token or the webhook's permission expires.
    pub until_ms: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub permissions: Permissions,
    pub until_ms: Option<u64>,
}

/// The tenant sees the text; the client sees only "bad user name or password" or "not authorized",
/// except for [`AccessRefusal::is_temporary`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessRefusal {
    #[error("the broker does not take anonymous clients")]
    Anonymous,
    #[error("the broker has no method switched on that takes what the client shows")]
    NoMethod,
    #[error("the user name or the password is wrong")]
    Password,
    #[error("the credential of this user name is disabled or has expired")]
    Disabled,
    #[error("the token is refused: {0}")]
    Token(#[source] jwt::TokenRefusal),
    #[error("the connect token is refused: {0}")]
    ConnectToken(#[source] connect_token::ConnectTokenRefusal),
    #[error("the broker requires a client certificate, and the client has presented none")]
    NoCertificate,
    #[error("the certificate is refused: {0}")]
    Certificate(#[source] x509::CertificateRefusal),
    #[error("the user name is not the one that the client shows to be")]
    OtherUser,
    #[error("the credential of this user name is for another client id")]
    OtherClient,
    #[error("the enhanced authentication is refused: {0}")]
    Enhanced(#[from] scram::ScramRefusal),
    #[error("the webhook has refused the client")]
    Webhook,
    #[error("the webhook has failed: {0}")]
    WebhookFailed(&'static str),
    #[error("the keys of the token's issuer cannot be fetched now")]
    NoKeys,
    #[error("the method that authenticated the client was deleted or switched off")]
    MethodRemoved,
    #[error("the client's token, or the webhook's permission, has expired")]
    Expired,
    /// The record of the client's group is missing or invalid, and the other rules alone could
    /// allow too much.
    #[error("the client's group {0:?} is not there, or its rules cannot be read")]
    Group(Box<str>),
    #[error("the rules of the client's credential cannot be read")]
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
