//! TLS of this process: certificates from files, and sessions without a buffer while they are idle.
//! A [`TlsSession`](session::TlsSession) reads ciphertext through a buffer that all connections of
//! a thread share. It keeps only the bytes of an incomplete record, and bytes that the socket did
//! not take.

pub mod files;
mod resolver;
pub mod session;
mod verifier;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
