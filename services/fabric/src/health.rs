//! The state of the connection to NATS, and explanations of its errors for the operator.
//!
//! The explanations search for parts of the texts of async-nats, rustls and the server. A text that a new version changes gets
//! the general advice, beside the error itself.

use std::fmt;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    pub connected: bool,
    /// The server of the connection, or the last server that was tried, as `host:port`.
    pub server: Option<String>,
    /// When `connected` or `problem` changed last.
    pub since: Instant,
    pub reconnects: u64,
    /// Round-trip time to the server, measured every few seconds.
    pub rtt: Option<Duration>,
    pub pods: usize,
    /// The problem and what to do about it.
    pub problem: Option<String>,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.server.as_deref().unwrap_or("NATS");
        let seconds = self.since.elapsed().as_secs();
        match self.connected {
            true => write!(f, "connected to {server} for {seconds} s, with {} other pods", self.pods)?,
            false => write!(f, "not connected to NATS for {seconds} s")?,
        }
        match &self.problem {
            Some(problem) => write!(f, ": {problem}"),
            None => Ok(()),
        }
    }
}

pub(crate) fn explain_connect(server: &str, error: &str) -> String {
    let lower = error.to_lowercase();
    let advice = match () {
        () if lower.contains("authorization violation") || lower.contains("authentication") => {
            "it refused this pod: check user and password, token, or key, and that the server knows them"
        }
        () if lower.contains("not valid for name") => {
            "its certificate is not for this host name: use the name that the certificate has"
        }
        () if lower.contains("unknownissuer") || lower.contains("badsignature") => {
            "its certificate is not signed by a known authority: set the certificate of its authority (ca)"
        }
        () if lower.contains("certificaterequired") || lower.contains("handshake") => {
            "it did not accept the TLS handshake: it may ask for a certificate of this pod"
        }
        () if lower.contains("certificate") => "the TLS handshake failed: check certificates and clocks",
        () if lower.contains("refused") => "no server listens there: check that NATS runs, and the address",
        () if lower.contains("dns") || lower.contains("lookup") => "its name is not known: check the address",
        () if lower.contains("timed out") => "it does not answer: check the network between the pod and NATS",
        () => "the connection failed",
    };
    format!("{server}: {advice} ({error})")
}

/// Explains an error that the operator must act on; `None` for any other.
pub(crate) fn explain_server(error: &str, subjects: &str) -> Option<String> {
    let lower = error.to_lowercase();
    if lower.contains("permissions violation") {
        let advice = format!("allow this user to publish and subscribe to {subjects}");
        return Some(format!("NATS refuses a subject: {advice} ({error})"));
    }
    if lower.contains("authorization violation") || lower.contains("expired") || lower.contains("revoked") {
        return Some(format!("NATS no longer accepts this pod: renew its credentials ({error})"));
    }
    if lower.contains("maximum subscriptions") || lower.contains("maximum connections") {
        return Some(format!("NATS is at a limit of its settings: raise it ({error})"));
    }
    None
}
