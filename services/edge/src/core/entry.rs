//! Authenticates the clients of brokers with access settings in the store (managed brokers) by the authentication service, those
//! of other brokers by the configured files. Reviews apply changed settings to connected clients.

use std::net::SocketAddr;

use millrace_access::entry::AccessRefusal;
use millrace_access::limits::USER_BYTES_MAX;
use millrace_access::rules::ClientIdentity;
use millrace_authentication::Cancellation;
use millrace_mqtt::topic::levels;
use millrace_mqtt::{Connect, QoS, ReasonCode};
use millrace_session::Seconds;

use super::authenticate::ANONYMOUS;
use super::connection::{ClientUser, ConnectRequest};
use super::timers::DueTimer;
use super::{Core, work};
use crate::access::AuthenticationRequest;
use crate::authenticator::ConnectLogin;
use crate::authorization::{AccessDecision, Denied, Reviewed};
use crate::incidents::{NewIncident, StoredIncidentKind};

const LONG_USER: &str = "the user name is too long: it may have 256 bytes";
const _: () = assert!(USER_BYTES_MAX == 256);

impl Core {
    /// Parks a CONNECT until [`Core::access_decided`]; a full queue of the service refuses it.
    pub(super) fn ask_service(&mut self, slot: u32, mut request: ConnectRequest, connect: &Connect<'_>) {
        let password = connect.password.map(Into::into);
        let cancellation = request.begin_check();
        let authentication =
            AuthenticationRequest { password, cancellation, ..self.authentication_request(slot, &request) };
        if self.process.authentication.as_ref().is_some_and(|service| service.authenticate(authentication)) {
            self.connections[slot as usize].pending = Some(Box::new(request));
            // The client may have closed its socket already: nothing else would report that.
            self.end_if_gone(slot);
        } else {
            self.refuse_entry(slot, &request, &Denied::Busy);
        }
    }

    pub(super) fn authentication_request(
        &self,
        slot: u32,
        request: &ConnectRequest,
    ) -> AuthenticationRequest {
        let connection = &self.connections[slot as usize];
        let peer = || connection.stream.peer_addr().ok();
        let address = connection.origin.as_ref().map_or_else(peer, |origin| origin.address);
        let certificate = connection.origin.as_ref().and_then(|origin| origin.certificate.as_ref());
        AuthenticationRequest {
            connection: self.id_of(slot),
            broker: request.broker.clone(),
            client_id: request.client_id.clone(),
            assigned: request.assigned,
            address: address.map(|address| SocketAddr::new(address.ip().to_canonical(), address.port())),
            user: request.user.clone(),
            password: None,
            cancellation: Cancellation::default(),
            certificate: certificate.and_then(|certificate| certificate.der.clone()),
        }
    }

    pub(super) fn access_decided(&mut self, decision: AccessDecision) {
        let id = decision.connection;
        let Some(mut request) = self.connection_of(id).and_then(|connection| connection.pending.take())
        else {
            return;
        };
        request.check = None;
        match decision.outcome {
            Ok(granted) => {
                request.user = granted.identity.user.as_deref().map(Into::into);
                request.granted = Some(Box::new(granted));
                if request.is_visitor() {
                    // A visitor with a stored session would own its client id, perhaps that of a device, until the
                    // session expires.
                    request.granted_expiry_s = 0;
                }
                self.admit(id.slot, *request);
            }
            Err(refused) => self.refuse_entry(id.slot, &request, &refused),
        }
        if self.connection_of(id).is_some_and(|connection| connection.is_reading()) {
            // Input behind the CONNECT was held until the decision.
            self.digest_held(id.slot);
        }
    }

    pub(super) fn refuse_entry(&mut self, slot: u32, request: &ConnectRequest, refused: &Denied) {
        let broker = &request.broker;
        self.explain_refusal(slot, request, &refused.to_string());
        tracing::debug!(broker = &*broker.name, %refused, "CONNECT refused");
        let counters = self.broker_counters(broker);
        let (reason, what) = match refused {
            Denied::Busy => {
                counters.refused_busy.add(1);
                (ReasonCode::SERVER_BUSY, "too many clients are connecting: try again later")
            }
            Denied::Unread => {
                counters.refused_unavailable.add(1);
                (ReasonCode::SERVER_UNAVAILABLE, "the credentials cannot be read now")
            }
            Denied::For(refusal) if refusal.is_temporary() => {
                match refusal {
                    AccessRefusal::NoKeys => counters.refused_keys.add(1),
                    _ => counters.refused_webhook.add(1),
                }
                (ReasonCode::SERVER_UNAVAILABLE, "the server cannot authenticate you now: try again later")
            }
            Denied::For(AccessRefusal::Anonymous) => {
                counters.refused_credentials.add(1);
                (ReasonCode::NOT_AUTHORIZED, ANONYMOUS)
            }
            Denied::For(AccessRefusal::Password | AccessRefusal::LongUserName | AccessRefusal::NoMethod) => {
                counters.refused_credentials.add(1);
                (ReasonCode::BAD_USER_NAME_OR_PASSWORD, "bad user name or password")
            }
            Denied::For(AccessRefusal::Enhanced(_)) => {
                counters.refused_credentials.add(1);
                (ReasonCode::NOT_AUTHORIZED, "the authentication has failed")
            }
            Denied::For(_) => {
                counters.refused_authorization.add(1);
                (ReasonCode::NOT_AUTHORIZED, "not authorized")
            }
        };
        self.refuse(slot, reason, what);
    }

    /// Checks a client of a broker without managed access: by the password file and the rules file, if there are any.
    pub(super) fn check_by_settings(
        &mut self,
        slot: u32,
        mut request: ConnectRequest,
        connect: &Connect<'_>,
    ) {
        if self.refuse_long_user(slot, &request) {
            return;
        }
        let user = request.user.clone();
        let hash = user.as_deref().and_then(|user| self.process.authenticator.hash_of(user));
        request.file_hash.clone_from(&hash);
        let login = ConnectLogin {
            connection: self.id_of(slot),
            broker: request.broker.id,
            user: user.as_deref(),
            password: connect.password,
            hash: hash.as_deref(),
        };
        let connection = &self.connections[slot as usize];
        let outcome = self
            .process
            .authenticator
            .check(&login, || (connection.address().map(|address| address.ip()), request.begin_check()));
        self.decided(slot, request, outcome);
    }

    /// The user name stays in memory as long as the connection, so the limit of managed brokers applies to others, too.
    fn refuse_long_user(&mut self, slot: u32, request: &ConnectRequest) -> bool {
        let is_long = request.user.as_ref().is_some_and(|user| user.len() > USER_BYTES_MAX);
        if is_long {
            self.broker_counters(&request.broker).refused_credentials.add(1);
            self.explain_refusal(slot, request, &AccessRefusal::LongUserName.to_string());
            self.refuse(slot, ReasonCode::BAD_USER_NAME_OR_PASSWORD, LONG_USER);
        }
        is_long
    }

    /// Applies new permissions to a connected client and removes the subscriptions they forbid, or closes its connection.
    pub(super) fn reviewed(&mut self, reviewed: Reviewed) {
        let id = reviewed.connection;
        let Some(ClientUser::Granted(Some(granted))) =
            self.connection_of(id).map(|connection| &mut connection.who)
        else {
            return;
        };
        match reviewed.outcome {
            Ok(grant) => {
                // The timer of an earlier end reads the new one.
                let had_end = granted.grant.until_ms.is_some();
                granted.grant = grant;
                if !had_end && let Some(at) = self.entry_ends(id.slot) {
                    self.calendar.add(at, DueTimer::Connection { slot: id.slot, generation: id.generation });
                }
                self.revoke(id.slot);
            }
            Err(refusal) => {
                tracing::debug!(%refusal, "a connected client may not stay");
                self.note_of(
                    id.slot,
                    NewIncident::new(StoredIncidentKind::ConnectRefused, "", &refusal.to_string()),
                );
                self.close_unauthorized(id.slot);
            }
        }
    }

    /// When the client's credentials expire, which ends the connection (0xA0); `None`: never.
    pub(super) fn entry_ends(&self, slot: u32) -> Option<Seconds> {
        let until_ms = self.connections[slot as usize].who.granted()?.grant.until_ms?;
        // Rounds up to the next second, and this process counts seconds from 1.
        Some(self.process.clock.seconds_of_unix_ms(until_ms).saturating_add(2))
    }

    pub(super) fn spend_rules(&mut self, slot: u32, topic: &str) {
        let work = rules_work(&self.connections[slot as usize].who, topic);
        self.work.spend(work);
    }

    pub(super) fn may_send(&self, slot: u32, topic: &str, retain: bool, qos: QoS) -> bool {
        let connection = &self.connections[slot as usize];
        let session = &self.sessions[connection.session as usize].session;
        let client = ClientIdentity { user: connection.who.user(), id: session.client_id() };
        match connection.who.granted() {
            Some(granted) => granted.grant.permissions.publish(client, topic, retain, qos).is_ok(),
            None => self.process.authenticator.may_publish(client, topic, retain, qos),
        }
    }

    pub(super) fn may_receive(&self, slot: u32, filter: &str, qos: QoS) -> Option<QoS> {
        let connection = &self.connections[slot as usize];
        let session = &self.sessions[connection.session as usize].session;
        let client = ClientIdentity { user: connection.who.user(), id: session.client_id() };
        match connection.who.granted() {
            Some(granted) => granted.grant.permissions.subscribe(client, filter, qos).ok(),
            None => self.process.authenticator.may_subscribe(client, filter, qos),
        }
    }
}

/// Units of about 0.1 µs.
pub(super) fn rules_work(who: &ClientUser, topic: &str) -> u64 {
    let rules = who.granted().map_or(0, |granted| granted.grant.permissions.rules());
    // Most clients have no rules, and each PUBLISH comes here.
    if rules == 0 { 0 } else { (rules * levels(topic.as_bytes()) / work::COMPARED_RULE_LEVELS) as u64 }
}
