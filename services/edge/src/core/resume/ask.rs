//! Requests a connection's session from the store, for one connection of a client id after another, and handles the answer.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_mqtt::ReasonCode;

use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::core::admit::Attaching;
use crate::core::connection::ConnectRequest;
use crate::core::limits;
use crate::core::{Core, work};
use crate::incidents::{NewIncident, StoredIncidentKind};
use crate::jobs::{AttachWrite, AttachedSession, DetachWrite, StoredPage, Write};
use crate::mailbox::Mail;
use crate::quota::Limit;

impl Core {
    /// Requests a connection's session from the store, or has the store end an existing one: for one client id one after
    /// another, because the answers may come in another order.
    pub(in crate::core) fn ask_for_session(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        mut request: ConnectRequest,
    ) {
        let (id, client) = (self.id_of(slot), request.client_id.clone());
        let session = (broker.id, client.clone());
        if let Some(attaching) = self.connects.attaching.get_mut(&session) {
            attaching.waiting.push_back(id);
            let full = attaching.waiting.len() > limits::WAITING_CONNECTS_MAX;
            let oldest = attaching.waiting.pop_front_if(|_| full);
            self.connections[slot as usize].pending = Some(Box::new(request));
            return self.refuse_overtaken(broker, oldest);
        }
        request.asker = (!self.connections[slot as usize].read_closed).then(Arc::default);
        let attach = AttachWrite {
            broker: broker.clone(),
            client,
            connection: id,
            clean: request.clean_start,
            expiry_s: request.granted_expiry_s,
            will: request.will.clone(),
            by_password: request.is_by_password(),
            user: request.proven_user().map(Into::into),
            is_visitor: request.is_visitor(),
            asked: None,
            ask_at: 0,
            asker: request.asker.as_ref().map(Arc::downgrade).unwrap_or_default(),
        };
        let attaching = Attaching { waiting: VecDeque::new(), claim: request.claim.clone() };
        self.connects.attaching.insert(session, attaching);
        self.connections[slot as usize].pending = Some(Box::new(request));
        self.queue_job(Write::Attach(Box::new(attach)));
    }

    /// Refuses a CONNECT that waits for its session behind others, because later ones would take the session over at once.
    fn refuse_overtaken(&mut self, broker: &Broker, id: Option<ConnectionId>) {
        let Some(id) = id.filter(|id| self.connection_of(*id).is_some()) else { return };
        if self.connections[id.slot as usize].pending.take().is_some() {
            self.broker_counters(broker).refused_busy.add(1);
            self.refuse(id.slot, ReasonCode::SERVER_BUSY, "too many connections want this session");
        }
    }

    /// After a connection got its answer: requests the session for the next connection with the same client id.
    fn ask_for_next(&mut self, broker: &Arc<Broker>, client: &Arc<str>) {
        let session = (broker.id, client.clone());
        let Some(Attaching { mut waiting, claim, .. }) = self.connects.attaching.remove(&session) else {
            return;
        };
        if let Some(claim) = claim {
            self.end_claim(claim);
        }
        while let Some(next) = waiting.pop_front() {
            let request = self.connection_of(next).and_then(|connection| connection.pending.take());
            let Some(request) = request else { continue };
            self.attach(next.slot, broker, *request);
            if let Some(after) = self.connects.attaching.get_mut(&session) {
                return after.waiting.append(&mut waiting);
            }
        }
    }

    pub(in crate::core) fn attached(
        &mut self,
        id: ConnectionId,
        (broker, client): (Arc<Broker>, Arc<str>),
        mut found: Option<(Box<AttachedSession>, Option<StoredPage>)>,
    ) {
        if let Some((attached, Some(page))) = &mut found
            && self.connection_of(id).is_some()
            && !self.compare_unstored(attached, page)
        {
            return self.put_off_mail(Mail::Attached(id, (broker, client), found));
        }
        let request = self.connection_of(id).and_then(|connection| connection.pending.take());
        match (request, found) {
            (Some(request), Some((attached, page))) => {
                let rows = attached.subscriptions.len() + attached.in_flight.len() + attached.received.len();
                self.spend(work::ATTACH + work::SEEN * rows as u64);
                self.attach_stored(id.slot, &broker, *request, *attached, page.unwrap_or_default());
                if self.connection_of(id).is_some_and(|connection| connection.is_reading()) {
                    self.digest_held(id.slot);
                }
            }
            (Some(_), None) => {
                self.broker_counters(&broker).refused_store.add(1);
                self.refuse(
                    id.slot,
                    ReasonCode::SERVER_UNAVAILABLE,
                    "the session cannot be read or written now",
                );
            }
            // The client disconnected meanwhile.
            (None, Some((attached, _))) => self.leave_unused(broker.clone(), *attached),
            (None, None) => {}
        }
        self.ask_for_next(&broker, &client);
    }

    /// Gives back a session whose client disconnected before it got it.
    fn leave_unused(&mut self, broker: Arc<Broker>, attached: AttachedSession) {
        if attached.epoch > 0 {
            let detach = DetachWrite::unused(broker, attached, self.process.clock.unix_now_ms());
            self.queue_job(Write::Detach(Box::new(detach)));
        }
    }

    /// Handles the store's answer that the session belongs to another user.
    pub(in crate::core) fn not_attached(
        &mut self,
        id: ConnectionId,
        (broker, client): &(Arc<Broker>, Arc<str>),
    ) {
        if self.connection_of(id).is_some_and(|connection| connection.pending.take().is_some()) {
            self.refuse_other_user(id.slot, broker, client);
        }
        self.ask_for_next(broker, client);
    }

    pub(in crate::core) fn no_room(
        &mut self,
        id: ConnectionId,
        (broker, client): &(Arc<Broker>, Arc<str>),
        limit: Limit,
    ) {
        if self.connection_of(id).is_some_and(|connection| connection.pending.take().is_some()) {
            self.refuse_without_room(id.slot, broker, client, limit);
        }
        self.ask_for_next(broker, client);
    }

    pub(in crate::core) fn refuse_without_room(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        client: &Arc<str>,
        limit: Limit,
    ) {
        self.broker_counters(broker).refused_stored_quota.add(1);
        self.reached_by(broker, limit, Some(client), None);
        self.refuse(slot, ReasonCode::QUOTA_EXCEEDED, limit.meaning());
    }

    pub(in crate::core) fn refuse_other_user(&mut self, slot: u32, broker: &Arc<Broker>, client_id: &str) {
        let what = "this client identifier belongs to another user's session";
        self.broker_counters(broker).refused_authorization.add(1);
        self.note(
            broker,
            &NewIncident::new(StoredIncidentKind::ConnectRefused, "", what).of(client_id, None),
            1,
        );
        self.refuse(slot, ReasonCode::NOT_AUTHORIZED, what);
    }
}
