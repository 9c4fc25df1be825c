//! One log line for each client that connects, and one for each connection that ends. Their target is
//! `millrace::connections` and their level is debug, so an operator turns them on by `log_level`.

use super::clients::{shown_user, version};
use super::webhook_events::reason;
use super::{ConnectionEnd, Core};

const TARGET: &str = "millrace::connections";

impl Core {
    pub(super) fn log_connect(&self, slot: u32) {
        if !tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
            return;
        }
        let connection = &self.connections[slot as usize];
        let local = &self.sessions[connection.session as usize];
        let certificate = connection.origin.as_ref().and_then(|origin| origin.certificate.as_deref());
        tracing::debug!(
            target: TARGET,
            broker = &*local.broker.name,
            client_id = &**local.session.client_id(),
            user = shown_user(connection),
            address = connection.address().map(tracing::field::display),
            server_name = connection.server_name(),
            certificate = certificate.map(|certificate| &*certificate.fingerprint),
            certificate_bytes = certificate.and_then(|certificate| Some(certificate.der.as_ref()?.len())),
            subject = certificate.and_then(|certificate| certificate.subject.as_deref()),
            protocol = version(connection.protocol.version()),
            "client connected"
        );
    }

    /// Must be called before the session is detached.
    pub(super) fn log_disconnect(&self, slot: u32, ended: ConnectionEnd) {
        if !tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
            return;
        }
        let connection = &self.connections[slot as usize];
        let local = &self.sessions[connection.session as usize];
        let reason_code = match ended {
            ConnectionEnd::Error(code) => Some(u64::from(code.0)),
            _ => None,
        };
        tracing::debug!(
            target: TARGET,
            broker = &*local.broker.name,
            client_id = &**local.session.client_id(),
            user = shown_user(connection),
            // `None` after a reset: the system has forgotten the address.
            address = connection.address().map(tracing::field::display),
            protocol = version(connection.protocol.version()),
            reason = reason(ended),
            reason_code,
            duration_s = self.now.saturating_sub(local.connected_at()),
            "client disconnected"
        );
    }
}
