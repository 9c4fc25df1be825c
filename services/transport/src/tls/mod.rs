//! TLS of the process itself: certificates from files, and sessions that take no buffer while they are idle.
//!
//! A [`Session`](session::Session) reads ciphertext through a buffer that all connections of a thread share. It keeps
//! only the bytes of an incomplete record, and those that the socket did not take.

pub mod files;
mod resolver;
pub mod session;
mod verifier;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
