//! The records that the control plane stores and the edge reads, as JSON.
//!
//! One [`Access`] a broker; its [`Credential`]s by user name, [`Group`]s, [`JwtIssuer`]s and [`ClientCa`]s by name. All are
//! decoded tolerantly: a field that is missing has its default, one that is not known is skipped. So a field may be added at any
//! time, and its default must mean what the record meant before. A *variant* that is not known does fail: half a rule
//! is no rule, and who cannot read a record lets nobody in by it.
//!
//! `validate` says all that is wrong at once, with the path of each field as the JSON has it. What is stored was valid when it was
//! stored; who reads it need not ask again.
//!
//! No `Debug` output shows a secret. The JSON has hashes and keys in it, so it is for the store, never for an answer of the
//! API.
//!
//! Times are unix milliseconds.

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
pub use webhook::{Webhook, WebhookAuth, WebhookEvent};
pub use x509::{CertificateUser, ClientCa};

#[cfg(test)]
mod tests;
