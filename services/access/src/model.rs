//! The records that the control plane stores and the edge reads, as JSON: one [`Access`] per
//! broker, [`Credential`]s by user name, and [`Group`]s, [`JwtIssuer`]s and [`ClientCa`]s by name.
//! Times are unix milliseconds.
//!
//! Decoding is tolerant: a missing field gets its default, and an unknown field is skipped. A new
//! field therefore needs a default that means what older records meant. An unknown *variant* fails,
//! and an unreadable record authenticates nobody. The control plane validates before it stores, so
//! readers need not.
//!
//! No `Debug` output shows a secret. The JSON contains hashes and keys, so it belongs in the store
//! only.

mod access;
pub(crate) mod ban;
mod credential;
mod hidden;
mod invalid;
mod jwt;
mod limits;
pub(crate) mod rule;
mod webhook;
mod x509;

pub use access::{Access, CertificateUse};
pub use ban::Ban;
pub use credential::{Credential, Group, PreviousSecret, ScramVerifier, Secret};
pub use hidden::{HiddenBytes, HiddenText};
pub use invalid::{Checked, Invalid, is_invisible};
pub use jwt::{ClaimMapping, JwtAlgorithm, JwtIssuer, JwtKey};
pub use limits::{BrokerLimits, ClientLimits, Limits};
pub use rule::{Action, Effect, Rule};
pub use webhook::{PreviousKey, Webhook, WebhookAuth, WebhookEvent};
pub use x509::{CertificateUser, ClientCa};

#[cfg(test)]
mod tests;
