//! From a CONNECT to an accepted client.

use std::sync::Arc;

use millrace_mqtt::{Connect, Property, ReasonCode};
use millrace_session::{Message, Session};

use super::connection::{ConnectionId, Request};
use super::{Core, Ended, OutboundSlot, parts};
use crate::authenticator::Verdict;
use crate::broker::Broker;

/// Bytes of randomness in a client identifier that the server assigns.
const ASSIGNED_ID_BYTES: usize = 12;

impl Core {
    /// The other core that owns the sessions of this client id, if one does.
    pub(super) fn owner_elsewhere(&self, slot: u32, connect: &Connect<'_>) -> Option<u16> {
        // A client id that we choose is chosen to be ours. A second CONNECT is an error, here and anywhere.
        let first = self.connections[slot as usize].protocol.decoding_version().is_none();
        if !first || connect.client_id.is_empty() {
            return None;
        }
        let owner = self.process.owner(&self.process.broker, connect.client_id);
        (owner != self.index).then_some(owner)
    }

    /// Finds out whether the client may connect.
    pub(super) fn connect(&mut self, slot: u32, connect: &Connect<'_>) {
        let broker = self.process.broker.clone();
        let Some(request) = self.request(&broker, connect) else {
            return self.refuse(slot, ReasonCode::SERVER_UNAVAILABLE, "no random numbers from the system");
        };
        let id = self.id_of(slot);
        let verdict = self.process.authenticator.check(id, connect.user_name, connect.password, self.now);
        match verdict {
            Verdict::Accepted => self.admit(slot, request),
            Verdict::Later => self.connections[slot as usize].pending = Some(Box::new(request)),
            Verdict::Refused => {
                self.broker_counters(&broker).refused_credentials.add(1);
                self.refuse(slot, ReasonCode::BAD_USER_NAME_OR_PASSWORD, "bad user name or password");
            }
            Verdict::Busy => {
                self.broker_counters(&broker).refused_busy.add(1);
                self.refuse(
                    slot,
                    ReasonCode::SERVER_BUSY,
                    "too many clients are connecting: try again later",
                );
            }
        }
    }

    /// The authenticator's answer came.
    pub(super) fn authenticated(&mut self, id: ConnectionId, accepted: bool) {
        let Some(request) = self.connection_of(id).and_then(|connection| connection.pending.take()) else {
            return;
        };
        if accepted {
            self.admit(id.slot, *request);
        } else {
            let broker = self.process.broker.clone();
            self.broker_counters(&broker).refused_credentials.add(1);
            self.refuse(id.slot, ReasonCode::BAD_USER_NAME_OR_PASSWORD, "bad user name or password");
        }
        if self.connection_of(id).is_some_and(|connection| connection.is_reading()) {
            self.digest_held(id.slot);
        }
    }

    /// The client is who it says; may it have the will it wants, and can it take the answer?
    fn admit(&mut self, slot: u32, request: Request) {
        if let Some((will, _)) = &request.will {
            let authenticator = &self.process.authenticator;
            if !authenticator.may_publish(request.user.as_deref(), &request.client_id, will.topic()) {
                let broker = self.process.broker.clone();
                self.broker_counters(&broker).refused_authorization.add(1);
                return self.refuse(
                    slot,
                    ReasonCode::NOT_AUTHORIZED,
                    "not allowed to publish the will's topic",
                );
            }
        }
        let protocol = &self.connections[slot as usize].protocol;
        if !protocol.takes_accept(&request.accept(false), &self.process.settings) {
            self.counters().refused_connect.add(1);
            let what = "Maximum Packet Size is too small for the answer";
            return self.refuse(slot, ReasonCode::PACKET_TOO_LARGE, what);
        }
        let broker = self.process.broker.clone();
        self.attach(slot, &broker, request);
    }

    pub(super) fn refuse(&mut self, slot: u32, reason: ReasonCode, what: &'static str) {
        let (protocol, mut out, _) = parts!(self, slot);
        protocol.refuse(reason, what, &mut out);
        //= [MQTT-3.1.4-2] v5
        //= [MQTT-3.2.2-5] v3.1.1
        self.end(slot, Ended::Error(reason), false);
    }

    fn request(&self, broker: &Broker, connect: &Connect<'_>) -> Option<Request> {
        let asked = connect.properties.iter().find_map(|property| match property {
            Property::SessionExpiryInterval(seconds) => Some(seconds),
            _ => None,
        });
        let (requested_expiry_s, granted_expiry_s) =
            Session::expiry_of(connect.version, connect.clean_start, asked, &self.process.settings);
        let assigned = connect.client_id.is_empty();
        let client_id = if assigned { self.assign_client_id(broker)? } else { connect.client_id.into() };
        let will = connect.will.as_ref().map(|will| {
            let delay_s = will.properties.iter().find_map(|property| match property {
                Property::WillDelayInterval(seconds) => Some(seconds),
                _ => None,
            });
            // Made at 0: its expiry interval begins when it is published.
            let message =
                Message::new(will.topic.into(), will.qos, will.retain, will.properties, will.payload, 0);
            (Arc::new(message), delay_s.unwrap_or(0))
        });
        Some(Request {
            client_id,
            assigned,
            clean_start: connect.clean_start,
            requested_expiry_s,
            granted_expiry_s,
            user: connect.user_name.map(Into::into),
            will,
        })
    }

    /// A client identifier that nobody has and that this core owns.
    //= [MQTT-3.1.3-6] v5
    //= [MQTT-3.1.3-6] v3.1.1
    fn assign_client_id(&self, broker: &Broker) -> Option<Arc<str>> {
        loop {
            let random = crate::auth::passwords::random_key().ok()?;
            let mut id = String::with_capacity(5 + 2 * ASSIGNED_ID_BYTES);
            id.push_str("auto-");
            for byte in &random[..ASSIGNED_ID_BYTES] {
                use std::fmt::Write;
                let _ = write!(id, "{byte:02x}");
            }
            if self.process.owner(broker, &id) == self.index {
                return Some(id.into());
            }
        }
    }
}
