//! Checks, when a connection ends, whether its client still has the right to its will.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_access::bans::BanQuery;
use millrace_access::rules::ClientIdentity;
use millrace_mqtt::QoS;
use millrace_session::{Message, SessionWill};

use crate::core::connection::NONE;
use crate::core::{Core, LocalSession};
use crate::incidents::{NewIncident, StoredIncidentKind};

const NOT_ALLOWED: &str = "the client is not allowed to publish its will any more";

impl LocalSession {
    /// If the store has the session, the store publishes the will.
    pub(super) fn open_will(&mut self, will: Option<(Arc<Message>, u32)>) {
        let will = will.map(|(message, delay_s)| match self.epoch {
            0 => SessionWill::InMemory { message, delay_s },
            _ => SessionWill::Stored {
                topic: message.topic().clone(),
                retain: message.retain(),
                qos: message.qos(),
            },
        });
        self.set_will(will.map(Box::new));
    }

    pub(in crate::core) fn has_stored_will(&self) -> bool {
        matches!(self.session.will.as_deref(), Some(SessionWill::Stored { .. }))
    }

    pub(super) fn set_will(&mut self, will: Option<Box<SessionWill>>) {
        self.take_will();
        self.broker.client_memory.will_bytes.fetch_add(bytes_of(will.as_deref()), Ordering::Relaxed);
        self.session.will = will;
    }

    pub(super) fn take_will(&mut self) -> Option<Box<SessionWill>> {
        let will = self.session.will.take();
        self.broker.client_memory.will_bytes.fetch_sub(bytes_of(will.as_deref()), Ordering::Relaxed);
        will
    }

    fn will_terms(&self) -> Option<(Arc<str>, bool, QoS)> {
        Some(match self.session.will.as_deref()? {
            SessionWill::InMemory { message, .. } => {
                (message.topic().clone(), message.retain(), message.qos())
            }
            SessionWill::Stored { topic, retain, qos } => (topic.clone(), *retain, *qos),
        })
    }
}

pub(super) fn bytes_of(will: Option<&SessionWill>) -> u64 {
    match will {
        Some(SessionWill::InMemory { message, .. }) => message.size() as u64,
        Some(SessionWill::Stored { .. }) | None => 0,
    }
}

impl Core {
    /// False for a will that bans or rules refuse now, which then counts as refused.
    pub(super) fn may_publish_will(&mut self, slot: u32) -> bool {
        let connection = &self.connections[slot as usize];
        let local = self.sessions.get(connection.session as usize).filter(|local| !local.is_lost);
        let Some((topic, retain, qos)) = local.and_then(LocalSession::will_terms) else { return true };
        self.spend_rules(slot, &topic);
        if !self.is_named_in_ban(slot) && self.may_send(slot, &topic, retain, qos) {
            return true;
        }
        let session = self.connections[slot as usize].session;
        self.broker_counters(&self.sessions[session as usize].broker).wills_refused.add(1);
        self.note_of(slot, NewIncident::new(StoredIncidentKind::PublishRefused, &topic, NOT_ALLOWED));
        false
    }

    /// Without the address, which a client that has reset its connection does not have.
    fn is_named_in_ban(&self, slot: u32) -> bool {
        let connection = &self.connections[slot as usize];
        let local = &self.sessions[connection.session as usize];
        let Some(bans) = local.broker.bans() else { return false };
        let client_id = Some(&**local.session.client_id());
        let suspect = BanQuery { client_id, user: connection.who.user(), address: None };
        bans.is_banned(suspect, self.process.clock.unix_now_ms())
    }

    //= [MQTT-3.1.2-8] v5
    //= [MQTT-3.1.2-8] v3.1.1
    pub(super) fn publish_will(&mut self, session: u32) {
        let local = &mut self.sessions[session as usize];
        local.will_at = 0;
        let Some(SessionWill::InMemory { message, .. }) = local.take_will().map(|will| *will) else { return };
        let broker = local.broker.clone();
        if self.has_lost_will(session, &message) {
            return;
        }
        self.broker_counters(&broker).wills.add(1);
        self.publish_from_server(&broker, &message.issued(self.now_ms));
    }

    /// As [`Self::may_publish_will`], for a delayed will of a session in memory that is offline: the files may have changed.
    fn has_lost_will(&self, session: u32, will: &Message) -> bool {
        let (local, files) = (&self.sessions[session as usize], &self.process.authenticator);
        debug_assert_eq!(local.connection, NONE, "its end checks the will");
        let user = self.directory.users.get(session);
        let client = ClientIdentity { user, id: local.session.client_id() };
        let is_gone = files.checks_passwords() && user.is_some_and(|user| files.hash_of(user).is_none());
        if !is_gone && files.may_publish(client, will.topic(), will.retain(), will.qos()) {
            return false;
        }
        self.broker_counters(&local.broker).wills_refused.add(1);
        let note = NewIncident::new(StoredIncidentKind::PublishRefused, will.topic(), NOT_ALLOWED);
        self.note(&local.broker, &note.of(local.session.client_id(), user), 1);
        true
    }
}
