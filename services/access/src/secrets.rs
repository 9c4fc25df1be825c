//! What passwords are checked against.
//!
//! - [`generated`]: secrets that we make. They have full entropy, so a fast keyed hash keeps them as well as a slow one, and a storm
//!   of reconnects is not one of password hashing.
//! - [`chosen`]: passwords that people choose, under Argon2id.
//! - [`password`]: which of the two a credential has, and what that says of a password.
//! - [`VerifiedCache`]: which of those were found right a moment ago.

mod cache;
pub mod chosen;
pub mod generated;
pub mod password;

pub use cache::VerifiedCache;
