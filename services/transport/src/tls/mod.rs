//! TLS within this process: certificates from files, and sessions that own no buffer while they are
//! idle. All connections of a thread share one buffer for ciphertext. A
//! [`TlsSession`](session::TlsSession) keeps only the bytes of an incomplete record, and bytes that
//! the socket did not take.

mod encode;
pub mod files;
mod resolver;
pub mod session;
mod verifier;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
