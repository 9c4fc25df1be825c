//! Whether a client may enter a broker: which method decides, and what its rules are then.
//!
//! A [`BrokerAccess`] is what the store says of a broker, made ready. An [`Entry`] is one CONNECT on its way through it: each call says
//! what is needed next ([`Step`]), until the client is accepted or refused. Reading a credential, hashing a password, fetching keys and
//! calling a webhook are done elsewhere.
//!
//! The order: a certificate, a token, a password, the webhook; the first that knows the client decides. Who shows nothing is
//! anonymous. A certificate of somebody else and a token of an unknown issuer say nothing, unless a certificate is required.
//!
//! What is kept of an accepted client is its [`Standing`]. [`BrokerAccess::review`] makes its rules of that, when it connects and again
//! whenever something has changed: so a change is for those who are connected what it is for those who come.

mod broker;
mod steps;

pub use broker::{BrokerAccess, Records};
pub use steps::{Entry, KeySets, Shown, Step};

use crate::rules::{Permissions, RuleList};
use crate::{connect_token, jwt, scram, x509};

/// How a client has shown who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Anonymous,
    /// By the password of its credential, in CONNECT or by SCRAM.
    Password,
    /// By a token of this issuer.
    Token(Box<str>),
    /// By a certificate of this authority.
    Certificate(Box<str>),
    /// The webhook knows it.
    Webhook,
    /// By a token of the control plane.
    ConnectToken,
}

/// Who an accepted client is: all that its rules are made of, but what stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How it has shown that.
    pub method: Method,
    /// Its user name; `None` for who is anonymous.
    pub user: Option<Box<str>>,
    /// Rules of its token, or of the webhook: they come first.
    pub rules: Option<std::sync::Arc<RuleList>>,
    /// Name of its group, when it has no credential that says one.
    pub group: Option<Box<str>>,
    /// When its token ends, or what the webhook has said does. Unix milliseconds.
    pub until_ms: Option<u64>,
}

/// What a client that may be connected may do.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Its rules.
    pub permissions: Permissions,
    /// When it is to be disconnected. Unix milliseconds.
    pub until_ms: Option<u64>,
}

/// Why a client may not enter, or not stay. The tenant may see it. The client is told no more than "bad user name or password" or "not
/// authorized", but for [`Refusal::is_passing`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It shows nothing.
    #[error("the broker does not take anonymous clients")]
    Anonymous,
    /// No method that is on takes what it shows.
    #[error("the broker has no method switched on that takes what the client shows")]
    NoMethod,
    /// No such user, or another password.
    #[error("the user name or the password is wrong")]
    Password,
    /// Its credential is not enabled or has expired.
    #[error("the credential of this user name is disabled or has expired")]
    Disabled,
    /// A token.
    #[error("the token is refused: {0}")]
    Token(#[source] jwt::Refusal),
    /// A token of the control plane.
    #[error("the connect token is refused: {0}")]
    ConnectToken(#[source] connect_token::Refusal),
    /// No certificate, where one is required.
    #[error("the broker requires a client certificate, and the client has shown none")]
    NoCertificate,
    /// A certificate.
    #[error("the certificate is refused: {0}")]
    Certificate(#[source] x509::Refusal),
    /// It calls itself by another name than its certificate, or its enhanced authentication, does.
    #[error("the user name is not the one that the client shows to be")]
    OtherUser,
    /// Its credential is bound to another client id.
    #[error("the credential of this user name is for another client id")]
    OtherClient,
    /// Its enhanced authentication.
    #[error("the enhanced authentication is refused: {0}")]
    Enhanced(#[from] scram::Refusal),
    /// The webhook says no.
    #[error("the webhook has refused the client")]
    Webhook,
    /// There was no answer of the webhook.
    #[error("the webhook has failed: {0}")]
    WebhookFailed(&'static str),
    /// Keys could not be had.
    #[error("the keys of the token's issuer cannot be fetched now")]
    NoKeys,
    /// What it was let in by is gone or switched off.
    #[error("the method that the client was let in by is not there any more")]
    MethodGone,
    /// Its token, or what the webhook has said, has ended.
    #[error("the time for which the client was let in is over")]
    Over,
    /// Half of its rules are no rules.
    #[error("the client's group {0:?} is not there, or its rules cannot be read")]
    Group(Box<str>),
    /// Its credential cannot be used.
    #[error("the rules of the client's credential cannot be read")]
    Rules,
}

impl Refusal {
    /// Whether it may be otherwise in a while: the client is told that the server is unavailable, so it comes again.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::WebhookFailed(_) | Self::NoKeys)
    }
}

#[cfg(test)]
mod tests;
