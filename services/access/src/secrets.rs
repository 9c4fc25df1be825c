//! Hashes of secrets and passwords, and the checks against them.
//!
//! - [`generated`]: secrets that the control plane generates. They are random, so a fast keyed hash
//!   protects them as well as a slow one, and a storm of reconnects costs little.
//! - [`chosen`]: passwords that people choose, hashed with Argon2id.
//! - [`password`]: checks a password against either kind.
//! - [`VerifiedCache`]: passwords that were verified recently.

mod cache;
pub mod chosen;
pub mod generated;
pub mod password;

pub use cache::VerifiedCache;
