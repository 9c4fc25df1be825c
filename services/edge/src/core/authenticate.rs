//! From a CONNECT to an accepted client: [`Core::connect_at`] finds the broker and the loop that serves the client,
//! [`Core::connect`] checks the credentials, and [`Core::admit`] bans, will and rate; then `attach` takes over. A step that
//! waits (for the store, another loop, or a password check) leaves the request with its connection and continues from there.

use std::sync::Arc;

use millrace_access::rules::ClientIdentity;
use millrace_mqtt::{Connect, Property, ReasonCode, topic};
use millrace_session::{Message, Session};

use super::connection::{ConnectRequest, Paused};
use super::limits;
use super::{ConnectionEnd, Core, enhanced, parts, work};
use crate::access::is_connect_token;
use crate::authorization::LoginOutcome;
use crate::broker::{Broker, is_broker_name};
use crate::clock::Millis;
use crate::config::DEFAULT_BROKER;
use crate::connection_id::ConnectionId;
use crate::encoding::record;
use crate::handover::Arrival;
use crate::home::{HomeClaim, Owner};
use crate::incidents::{NewIncident, StoredIncidentKind};
use crate::metrics::ConnectStep;
use crate::quota::Limit;
use crate::random;

const ASSIGNED_ID_BYTES: usize = 12;

/// The reason for a client without credentials: 0x87 in 5.0, return code 5 in 3.x. Wrong credentials are 0x86 and 4.
pub(super) const ANONYMOUS: &str = "not authorized: the user name and the password are missing";

/// Why the server's settings refuse a CONNECT, for the incidents of the tenant.
const NOT_BY_SETTINGS: &str = "the settings of the server admit no anonymous clients: connect with a user name and password of its \
    password file, or set the access of this broker";
const NO_USER_OF_SETTINGS: &str = "the settings of the server do not know the user name and password that the client sent: take those \
    of its password file, or set the access of this broker, so that its credentials count";
const BUSY: &str = "too many clients are connecting: try again later";

/// How long a loop remembers that a broker does not exist.
const ABSENT_MS: Millis = 1_000;

pub(super) enum ConnectAt {
    /// On this core; `None`: the CONNECT is refused, because its broker was not found.
    Here(Option<Arc<Broker>>),
    Elsewhere(u16, Option<Box<Arrival>>),
    /// Nowhere yet: its broker is being read, or it waits for admission.
    Later,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Absent {
    Unknown,
    Unread,
}

impl Core {
    /// Where a first CONNECT is processed. `bytes`: how much the client has sent, from the CONNECT on.
    pub(super) fn connect_at(&mut self, slot: u32, connect: &Connect<'_>, bytes: usize) -> ConnectAt {
        let name = self.meant(slot, connect.user_name);
        let Some(broker) = self.joined(name) else {
            if self.is_absent(name).is_some() {
                return ConnectAt::Here(None);
            }
            let name: Arc<str> = name.into();
            // Limited, because each unknown name that a stranger sends costs the store a read.
            if self.process.store.is_some() && !self.may_look_up(slot, &name, bytes) {
                return if self.is_refused(slot) { ConnectAt::Here(None) } else { ConnectAt::Later };
            }
            if self.ask_for_broker(slot, &name) {
                return ConnectAt::Later;
            }
            self.note_absent(name, Absent::Unknown);
            return self.connect_at(slot, connect, bytes);
        };
        if !connect.client_id.is_empty() {
            if let Some(at) = self.find_owner(slot, &broker, connect.client_id) {
                return at;
            }
        } else if let Some(home) = broker.home.core().filter(|home| *home != self.index) {
            return ConnectAt::Elsewhere(home, None);
        }
        match self.is_admitted(slot, &broker, connect, bytes) {
            true => ConnectAt::Here(Some(broker)),
            false => ConnectAt::Later,
        }
    }

    /// Returns the broker if it can serve clients: it is open, and messages of other pods arrive for it.
    fn joined(&self, name: &str) -> Option<Arc<Broker>> {
        let region = self.process.region.as_ref();
        let broker = self.process.brokers.get(name)?;
        region.is_none_or(|region| region.is_joined(&broker)).then_some(broker)
    }

    /// The name of the broker that a client means. The server name says it: `acme` for `acme.mqtt.example`. Without a
    /// server name, or with one of a single part such as `localhost`, the user name may say it: `acme/pump` is the
    /// user `pump` of the broker `acme`, if `acme` exists.
    fn meant<'a, 'u: 'a>(&'a self, slot: u32, user: Option<&'u str>) -> &'a str {
        let is_there =
            |name: &&str| is_broker_name(name) && !matches!(self.is_absent(name), Some(Absent::Unknown));
        let in_user = || user?.split_once('/').map(|(name, _)| name).filter(is_there);
        self.broker_of_server_name(slot).or_else(in_user).unwrap_or(DEFAULT_BROKER)
    }

    /// The user name without the broker's.
    fn user_in<'u>(&self, broker: &str, slot: u32, user: Option<&'u str>) -> Option<&'u str> {
        let is_prefix = |name: &str| name == broker && self.broker_of_server_name(slot).is_none();
        match user.and_then(|user| user.split_once('/')) {
            Some((name, user)) if is_prefix(name) => (!user.is_empty()).then_some(user),
            _ => user,
        }
    }

    fn broker_of_server_name(&self, slot: u32) -> Option<&str> {
        self.connections[slot as usize].server_name()?.split_once('.').map(|(name, _)| name)
    }

    /// Why a broker is absent, remembered for [`ABSENT_MS`]. A broker that another loop has opened since is not
    /// absent: two loops that disagree about it would hand a CONNECT to each other again and again.
    fn is_absent(&self, name: &str) -> Option<Absent> {
        let (absent, until) = *self.connects.absent.get(name)?;
        (until > self.now_ms && self.joined(name).is_none()).then_some(absent)
    }

    fn note_absent(&mut self, name: Arc<str>, absent: Absent) {
        if self.connects.absent.len() >= limits::ABSENT_BROKERS_MAX {
            self.connects.absent.clear();
        }
        self.connects.absent.insert(name, (absent, self.now_ms + ABSENT_MS));
    }

    /// Makes a client wait for its broker to be read; returns false when this process has no store.
    fn ask_for_broker(&mut self, slot: u32, name: &Arc<str>) -> bool {
        let Some(store) = &self.process.store else { return false };
        let id = self.id_of(slot);
        if !self.connects.opening.contains_key(name) {
            store.ask_for_broker(self.index, name.clone());
        }
        self.connects.opening.entry(name.clone()).or_default().push(id);
        self.connections[slot as usize].paused = Paused::ForBroker;
        true
    }

    pub(super) fn opened(&mut self, name: &Arc<str>, found: Option<bool>) {
        if found != Some(true) {
            self.note_absent(name.clone(), found.map_or(Absent::Unread, |_| Absent::Unknown));
        }
        for id in self.connects.opening.remove(name).unwrap_or_default() {
            self.resume_stranger(id);
        }
    }

    pub(super) fn connect(&mut self, slot: u32, connect: &Connect<'_>) {
        self.end_connect_step(slot, ConnectStep::Packet);
        self.spend(work::CONNECT);
        // Not looked up again: another loop may have opened the broker since, and this loop may not own the client id
        // there.
        let Some(broker) = self.connects.broker.take() else {
            self.counters().refused_broker.add(1);
            // The admission of unknown brokers refused it.
            if self.is_refused(slot) {
                self.connects.verdict = None;
                return self.refuse(slot, ReasonCode::CONNECTION_RATE_EXCEEDED, BUSY);
            }
            // A missing and a forbidden broker give the same answer, so that nobody can find out the names of other
            // tenants' brokers.
            let (reason, what) = match self.is_absent(self.meant(slot, connect.user_name)) {
                Some(Absent::Unread) => (ReasonCode::SERVER_UNAVAILABLE, "the broker cannot be read now"),
                _ => (ReasonCode::NOT_AUTHORIZED, "there is no broker of this name, or it is not for you"),
            };
            return self.refuse(slot, reason, what);
        };
        if self.refuse_draining(slot, &broker) || self.refuse_unadmitted(slot, &broker, connect.client_id) {
            return;
        }
        let user: Option<Arc<str>> = self.user_in(&broker.name, slot, connect.user_name).map(Into::into);
        let client_id = Some(connect.client_id).filter(|client_id| !client_id.is_empty());
        if self.refuse_banned(slot, &broker, client_id, None) {
            return;
        }
        let Some(mut request) = self.request(slot, &broker, connect, user) else {
            return self.refuse(
                slot,
                ReasonCode::SERVER_UNAVAILABLE,
                "no client identifier can be assigned now",
            );
        };
        if !self.charge_connect(slot, &mut request, connect) {
            return;
        }
        if enhanced::method(connect).is_some() {
            return self.begin_exchange(slot, request, connect);
        }
        let has_token =
            connect.password.is_some_and(is_connect_token) && self.process.authentication.is_some();
        if has_token || broker.access().is_some() {
            return self.ask_service(slot, request, connect);
        }
        self.check_by_settings(slot, request, connect);
    }

    /// Continues with the result of the password file and the rules file.
    pub(super) fn decided(&mut self, slot: u32, mut request: ConnectRequest, outcome: LoginOutcome) {
        if outcome != LoginOutcome::Later {
            request.check = None;
        }
        match outcome {
            LoginOutcome::Accepted if self.has_old_password(&request) => {
                self.decided(slot, request, LoginOutcome::Refused);
            }
            LoginOutcome::Accepted => self.admit(slot, request),
            LoginOutcome::Later => {
                self.connections[slot as usize].pending = Some(Box::new(request));
                self.end_if_gone(slot);
            }
            LoginOutcome::Refused => {
                self.broker_counters(&request.broker).refused_credentials.add(1);
                self.explain_refusal(slot, &request, NO_USER_OF_SETTINGS);
                self.refuse(slot, ReasonCode::BAD_USER_NAME_OR_PASSWORD, "bad user name or password");
            }
            LoginOutcome::Anonymous => {
                self.broker_counters(&request.broker).refused_credentials.add(1);
                self.explain_refusal(slot, &request, NOT_BY_SETTINGS);
                self.refuse(slot, ReasonCode::NOT_AUTHORIZED, ANONYMOUS);
            }
            LoginOutcome::Busy => {
                self.broker_counters(&request.broker).refused_busy.add(1);
                self.explain_refusal(slot, &request, BUSY);
                self.refuse(slot, ReasonCode::SERVER_BUSY, BUSY);
            }
        }
    }

    /// Whether the password file was read again since the client's password was checked, and has another hash.
    pub(super) fn has_old_password(&self, request: &ConnectRequest) -> bool {
        let (Some(user), Some(hash)) = (&request.user, &request.file_hash) else { return false };
        self.process.authenticator.hash_of(user).as_ref() != Some(hash)
    }

    /// Records why a CONNECT is refused: for the tenant, and for a trace of the client.
    pub(super) fn explain_refusal(&mut self, slot: u32, request: &ConnectRequest, reason: &str) {
        let note = NewIncident::new(StoredIncidentKind::ConnectRefused, "", reason);
        self.note(&request.broker, &note.of(&request.client_id, request.user.as_deref()), 1);
        self.explain_end(slot, reason.to_owned());
    }

    pub(super) fn authenticated(&mut self, id: ConnectionId, outcome: LoginOutcome) {
        let Some(request) = self.connection_of(id).and_then(|connection| connection.pending.take()) else {
            return;
        };
        self.decided(id.slot, *request, outcome);
        if self.connection_of(id).is_some_and(|connection| connection.is_reading()) {
            self.digest_held(id.slot);
        }
    }

    /// Checks an authenticated client: bans, the right to its will, and whether it accepts the answer.
    pub(super) fn admit(&mut self, slot: u32, request: ConnectRequest) {
        if self.refuse_banned(slot, &request.broker, Some(&request.client_id), request.user.as_deref()) {
            return;
        }
        if let Some((will, _)) = &request.will
            && let Some((what, _)) = self.over_topic_limits(will.topic())
        {
            self.broker_counters(&request.broker).refused_will_topic.add(1);
            let note = NewIncident::new(StoredIncidentKind::ConnectRefused, will.topic(), what);
            self.note(&request.broker, &note.of(&request.client_id, request.user.as_deref()), 1);
            return self.refuse(slot, ReasonCode::TOPIC_NAME_INVALID, what);
        }
        if let Some((will, _)) = &request.will
            && !self.may_leave_will(&request, will)
        {
            self.broker_counters(&request.broker).refused_authorization.add(1);
            let what = "not allowed to publish the will's topic";
            let note = NewIncident::new(StoredIncidentKind::ConnectRefused, will.topic(), what);
            self.note(&request.broker, &note.of(&request.client_id, request.user.as_deref()), 1);
            return self.refuse(slot, ReasonCode::NOT_AUTHORIZED, what);
        }
        let protocol = &self.connections[slot as usize].protocol;
        let settings = request.broker.quota.settings(&self.process.settings);
        if !protocol.takes_accept(&request.accept(false), &settings) {
            self.counters().refused_connect.add(1);
            let what = "Maximum Packet Size is too small for the answer";
            return self.refuse(slot, ReasonCode::PACKET_TOO_LARGE, what);
        }
        let broker = request.broker.clone();
        if self.comes_too_often(&request) {
            self.reached_by(
                &broker,
                Limit::ClientConnects,
                Some(&request.client_id),
                request.user.as_deref(),
            );
            self.broker_counters(&broker).refused_client_rate.add(1);
            let what = "the client connects more often than it may: try again later";
            return self.refuse(slot, ReasonCode::CONNECTION_RATE_EXCEEDED, what);
        }
        self.end_connect_step(slot, ConnectStep::Authentication);
        self.attach(slot, &broker, request);
    }

    fn may_leave_will(&self, request: &ConnectRequest, will: &Message) -> bool {
        let client = ClientIdentity { user: request.user.as_deref(), id: &request.client_id };
        let (topic, retain, qos) = (will.topic(), will.retain(), will.qos());
        if topic::is_reserved(topic) {
            return false;
        }
        match &request.granted {
            Some(granted) => granted.grant.permissions.publish(client, topic, retain, qos).is_ok(),
            None => self.process.authenticator.may_publish(client, topic, retain, qos),
        }
    }

    pub(super) fn refuse(&mut self, slot: u32, reason: ReasonCode, what: &'static str) {
        let (protocol, mut out, _) = parts!(self, slot);
        protocol.refuse(reason, what, &mut out);
        self.explain_end(slot, what);
        //= [MQTT-3.1.4-2] v5
        //= [MQTT-3.2.2-5] v3.1.1
        self.end(slot, ConnectionEnd::Error(reason), false);
    }

    fn request(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        connect: &Connect<'_>,
        user: Option<Arc<str>>,
    ) -> Option<ConnectRequest> {
        let asked = connect.properties.iter().find_map(|property| match property {
            Property::SessionExpiryInterval(seconds) => Some(seconds),
            _ => None,
        });
        let (requested_expiry_s, granted_expiry_s) =
            Session::expiry_of(connect.version, connect.clean_start, asked, &self.process.settings);
        let assigned = connect.client_id.is_empty();
        let (client_id, claim) = match assigned {
            true => self.assign_client_id(broker)?,
            false => (connect.client_id.into(), self.take_arrival(slot)),
        };
        let will = connect.will.as_ref().map(|will| {
            let delay_s = will.properties.iter().find_map(|property| match property {
                Property::WillDelayInterval(seconds) => Some(seconds),
                _ => None,
            });
            // Made at second 0, because its expiry interval begins when it is published.
            let message =
                Message::new(will.topic.into(), will.qos, will.retain, will.properties, will.payload, 0);
            (Arc::new(message.published_by(record::publisher(&client_id))), delay_s.unwrap_or(0))
        });
        Some(ConnectRequest {
            broker: broker.clone(),
            client_id,
            assigned,
            clean_start: connect.clean_start,
            requested_expiry_s,
            granted_expiry_s,
            user,
            file_hash: None,
            granted: None,
            will,
            charge: None,
            claim,
            check: None,
            exchange: None,
            authentication_data: None,
            asker: None,
        })
    }

    /// Assigns a unique client identifier that this core owns; `None`: the system has no random numbers, or another
    /// core owns all ids of this broker.
    //= [MQTT-3.1.3-6] v5
    //= [MQTT-3.1.3-6] v3.1.1
    fn assign_client_id(&self, broker: &Arc<Broker>) -> Option<(Arc<str>, Option<HomeClaim>)> {
        loop {
            let random: [u8; ASSIGNED_ID_BYTES] = random::bytes().ok()?;
            let mut id = String::with_capacity(5 + 2 * ASSIGNED_ID_BYTES);
            id.push_str("auto-");
            for byte in random {
                use std::fmt::Write;
                let _ = write!(id, "{byte:02x}");
            }
            let owner = self.process.owner(broker, &id);
            if owner.core() == self.index {
                return Some((id.into(), owner.into_claim()));
            }
            if let Owner::Home(..) = owner {
                return None;
            }
        }
    }
}
