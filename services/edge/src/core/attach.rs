//! Sessions and their connections: attaching, taking over, detaching, ending. `epoch` is the fencing number of a session that
//! the store has; sessions with epoch 0 live on this loop alone.

mod due;
mod in_memory;
mod members;
mod will;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_mqtt::ReasonCode;
use millrace_session::{Message, OutboxEntry, Seconds, Session};

use self::due::keep_alive_deadline;
pub(super) use self::in_memory::InMemoryUsers;
use super::connection::{ClientUser, ConnectRequest, ConnectionState, NONE};
use super::timers::DueTimer;
use super::work::FilterRemoval;
use super::{ConnectionEnd, Core, LocalSession, parts, work};
use crate::broker::Broker;
use crate::clock::ticks_of;
use crate::connection_id::ConnectionId;
use crate::encoding::record;
use crate::home::HomeClaim;
use crate::streams::GroupNumber;

/// How often a connection with a long keep alive is checked, seconds. The calendar drops the entry of a lost
/// connection at the next check, so entries do not pile up however fast clients come and go.
const LOOK_S: Seconds = 60;

impl Core {
    /// Attaches a connection to a new or an existing session, and answers the CONNECT: at once, or when the store has
    /// answered.
    pub(super) fn attach(&mut self, slot: u32, broker: &Arc<Broker>, mut request: ConnectRequest) {
        let mut found = self.session_of(broker, &request.client_id);
        if let Some(session) = found.filter(|session| self.is_over(*session)) {
            self.end_session(session);
            found = None;
        }
        if let Some(session) = found {
            if self.is_of_another_user(session, &request) {
                return self.refuse_other_user(slot, broker, &request.client_id);
            }
            self.take_over(session);
        }
        if self.process.store.is_some() {
            let is_shared = self.process.is_shared();
            let keeps = request.granted_expiry_s > 0 || request.will.is_some() || is_shared;
            if keeps || broker.has_sessions.load(Ordering::Relaxed) {
                broker.has_sessions.store(true, Ordering::Relaxed);
                return self.ask_for_session(slot, broker, request);
            }
        }
        // Taking over may have ended the session.
        let found = found.filter(|session| self.sessions.contains(*session as usize));
        if self.process.store.is_none()
            && let Some(limit) = self.reaches_in_memory(&request, found)
        {
            return self.refuse_without_room(slot, broker, &request.client_id, limit);
        }
        let present = match found {
            Some(session) if request.clean_start => {
                //= [MQTT-3.1.2-4] v5
                //= [MQTT-3.1.2-6] v3.1.1
                self.end_session(session);
                None
            }
            other => other,
        };
        let session = present.unwrap_or_else(|| {
            let session = Session::new(request.client_id.clone());
            self.new_session(broker, session, 0, request.claim.take())
        });
        self.open(slot, session, request, present.is_some());
        if present.is_some() {
            self.come_online(slot);
            // Rules may have changed since the session subscribed.
            self.revoke(slot);
            self.pump(slot);
        }
    }

    /// For sessions of this loop; the store checks the others.
    fn is_of_another_user(&self, session: u32, request: &ConnectRequest) -> bool {
        let is_proven = self.process.authenticator.checks_passwords();
        let connection = self.connections.get(self.sessions[session as usize].connection as usize);
        let Some(connection) = connection else {
            let user = self.directory.users.get(session).filter(|_| is_proven);
            return user.is_some() && user != request.proven_user();
        };
        let user = match &connection.who {
            who if who.is_visitor() && !request.is_visitor() => return false,
            ClientUser::Named(_) if !is_proven => None,
            who => who.user(),
        };
        (user.is_some() || request.is_visitor()) && user != request.proven_user()
    }

    pub(super) fn session_of(&self, broker: &Arc<Broker>, client_id: &str) -> Option<u32> {
        let hash = self.process.client_hash(broker, client_id);
        self.directory.find(hash, |session| {
            let local = &self.sessions[session as usize];
            Arc::ptr_eq(&local.broker, broker) && **local.session.client_id() == *client_id
        })
    }

    //= [MQTT-4.1.0-2] v5
    fn is_over(&self, session: u32) -> bool {
        let local = &self.sessions[session as usize];
        local.connection == NONE && local.term != 0 && local.term <= self.tick()
    }

    pub(super) fn attach_session(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        mut request: ConnectRequest,
        session: Session,
        present: bool,
        epoch: u64,
    ) -> u32 {
        if let Some(other) = self.session_of(broker, &request.client_id) {
            // Another connection got its session while this one waited for the store. The store has already given the
            // session to this connection and published the other's will.
            let local = &mut self.sessions[other as usize];
            local.is_lost = true;
            self.take_over(other);
        }
        let session = self.new_session(broker, session, epoch, request.claim.take());
        self.open(slot, session, request, present);
        session
    }

    fn open(&mut self, slot: u32, session: u32, mut request: ConnectRequest, present: bool) {
        let tick = self.tick();
        let local = &mut self.sessions[session as usize];
        local.connection = slot;
        (local.will_at, local.term) = (0, tick);
        local.session.expiry_s = request.granted_expiry_s;
        local.open_will(request.will.take());
        local.wait_in_memory(local.epoch == 0 && request.granted_expiry_s > 0);
        local.session.resume();
        let broker = local.broker.clone();
        self.directory.users.remove(session);
        let old_password = request.user.clone().filter(|_| self.has_old_password(&request));
        let connection = &mut self.connections[slot as usize];
        connection.session = session;
        self.by_broker.add(broker.id, slot);
        connection.who = match (request.granted.take(), request.user.take()) {
            (None, Some(user)) => ClientUser::Named(user),
            (granted, _) => ClientUser::Granted(granted),
        };
        let is_outdated = connection.who.granted().is_some_and(|granted| broker.has_changed(granted.changes));
        let counters = self.broker_counters(&broker);
        counters.connects.add(1);
        counters.connected.add(1);
        let protocol = self.counters().protocol(self.connections[slot as usize].protocol.version());
        protocol.connects.add(1);
        protocol.connected.add(1);
        broker.meters[usize::from(self.index)].came(self.now_ms);
        // The trace may have begun since the CONNECT, or the server has assigned the client identifier.
        self.tap(slot, broker.id, &request.client_id);
        let (protocol, mut out, _) = parts!(self, slot);
        protocol.accept(&request.accept(present), &broker.quota.settings(&self.process.settings), &mut out);
        self.end_connect(slot);
        self.connections[slot as usize].is_limited = broker.quota.is_limited();
        self.log_connect(slot);
        if let Some(origin) = &mut self.connections[slot as usize].origin {
            // The certificate has been checked, and it is the largest part of an idle connection.
            origin.certificate = None;
        }
        self.queue_connect_event(slot, &broker, present);
        let connection = &self.connections[slot as usize];
        let silent = keep_alive_deadline(connection.last_input, connection.protocol.keep_alive_s());
        if let Some(at) = silent.into_iter().chain(self.entry_ends(slot).map(ticks_of)).min() {
            let at = at.min(ticks_of(self.now + LOOK_S));
            self.calendar.add_at(at, DueTimer::Connection { slot, generation: connection.generation });
        }
        if is_outdated {
            self.review(&broker, [slot]);
        }
        self.check_late(slot);
        if let Some(user) = old_password {
            self.close_for_old_password(slot, &user);
        }
    }

    fn new_session(
        &mut self,
        broker: &Arc<Broker>,
        session: Session,
        epoch: u64,
        claim: Option<HomeClaim>,
    ) -> u32 {
        let hash = self.process.client_hash(broker, session.client_id());
        let publisher = record::publisher(session.client_id());
        let local = LocalSession {
            session,
            broker: broker.clone(),
            connection: NONE,
            generation: self.next_generation(),
            will_at: 0,
            term: 0,
            looked_at: 0,
            hash,
            publisher,
            epoch,
            is_lost: false,
            is_claimed: claim.is_some(),
            waits_in_memory: false,
            new_subscriptions: None,
            persistent: None,
        };
        let session = u32::try_from(self.sessions.insert(local)).unwrap_or(NONE);
        self.directory.insert(hash, session);
        if let Some(claim) = claim {
            claim.leave_to_session();
        }
        // The writer counts persistent sessions.
        self.broker_counters(broker).sessions.add(usize::from(epoch == 0));
        session
    }

    //= [MQTT-3.1.4-3] v5
    //= [MQTT-3.1.4-2] v3.1.1
    pub(super) fn take_over(&mut self, session: u32) {
        let local = &self.sessions[session as usize];
        if local.connection != NONE && !local.is_lost {
            self.finish_waiting(local.connection);
        }
        let slot = self.sessions.get(session as usize).map_or(NONE, |local| local.connection);
        if slot != NONE {
            let what = "another connection with this client identifier";
            self.say_and_close(slot, ReasonCode::SESSION_TAKEN_OVER, what, ConnectionEnd::TakenOver);
        }
    }

    /// Ends a connection: detaches its session, and writes its queued output unless the peer is gone.
    pub(super) fn end(&mut self, slot: u32, ended: ConnectionEnd, with_will: bool) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.state != ConnectionState::Open {
            return self.remove_connection(slot);
        }
        if connection.is_traced() {
            self.trace_end(slot, ended);
        }
        if self.connections[slot as usize].session != NONE {
            self.log_disconnect(slot, ended);
            self.queue_disconnect_event(slot, ended);
        }
        let with_will = with_will && self.may_publish_will(slot);
        let connection = &mut self.connections[slot as usize];
        let session = std::mem::replace(&mut connection.session, NONE);
        let left_by = connection.who.named();
        connection.pending = None;
        connection.partial = None;
        self.forget_arrival(slot);
        self.spend(work::END);
        self.abandon_tasks(slot, session);
        self.give_back_turn(slot, session);
        self.forget_unconfirmed(slot);
        let broker = (session != NONE).then(|| self.sessions[session as usize].broker.clone());
        if let Some(broker) = &broker {
            self.by_broker.remove(broker.id, slot);
            broker.change_alias_bytes(self.connections[slot as usize].protocol.alias_bytes(), 0);
        }
        if broker.is_none() {
            match ended {
                ConnectionEnd::Client | ConnectionEnd::Lost | ConnectionEnd::WebSocketClosed(_) => {
                    self.counters().refused_closed.add(1);
                }
                ConnectionEnd::Frame(_) => self.counters().refused_frame.add(1),
                ConnectionEnd::Slow => self.counters().refused_slow.add(1),
                _ => {}
            }
        }
        let version = self.connections[slot as usize].protocol.version();
        let leaves = (ended == ConnectionEnd::Client && !with_will && self.has_will_to_delete(session))
            .then(|| self.id_of(slot));
        if leaves.is_some() {
            self.close_later(slot, ConnectionState::Leaving);
        } else {
            self.close_after_output(slot, ended);
        }
        if let Some(broker) = broker {
            self.detach(session, with_will, (left_by, leaves));
            self.counters().protocol(version).connected.sub(1);
            // Counted last: when the metrics show that the client is gone, its session is already offline.
            self.count_ended(&broker, ended);
        }
    }

    /// Detaches a session from its connection: publishes or schedules its will, ends it or schedules its end.
    /// `leaves`: the connection that waits until the store has removed the will.
    fn detach(
        &mut self,
        session: u32,
        with_will: bool,
        (left_by, leaves): (Option<Arc<str>>, Option<ConnectionId>),
    ) {
        let (now, tick) = (self.now, self.tick());
        let local = &mut self.sessions[session as usize];
        local.connection = NONE;
        if local.epoch != 0 {
            if local.is_lost {
                self.give_back_begun(session);
            } else {
                self.leave_to_store(session, with_will, leaves);
            }
            return self.forget_session(session);
        }
        local.session.shrink();
        self.directory.users.set(session, left_by);
        if !with_will {
            //= [MQTT-3.1.2-10] v5
            //= [MQTT-3.1.2-10] v3.1.1
            local.take_will();
        }
        if local.session.expiry_s == 0 {
            return self.end_session(session);
        }
        // One unit is added to each duration, because the current one has partly passed.
        let due = local.session.will_due(now).unwrap_or(0);
        local.will_at = if due > now { due.saturating_add(1) } else { due };
        local.term = match local.session.expiry_s {
            Session::NO_EXPIRY => 0,
            expiry_s => tick.saturating_add(ticks_of(expiry_s)).saturating_add(1),
        };
        self.go_offline(session);
        self.pass_on_waiting(session);
        self.schedule(session);
        if self.sessions[session as usize].will_at == now {
            self.publish_will(session);
        }
    }

    /// A pending will is published now.
    pub(super) fn end_session(&mut self, session: u32) {
        self.publish_will(session);
        let broker = self.sessions[session as usize].broker.clone();
        self.broker_counters(&broker).sessions.sub(1);
        self.forget_session(session);
    }

    /// Removes a session from this loop, not from the store; queued messages of its shared subscriptions go to other members.
    pub(super) fn forget_session(&mut self, session: u32) {
        let target = self.target_of(session);
        let replays = self.unfinished.replays.take(session);
        let mut local = self.sessions.remove(session as usize);
        self.directory.users.remove(session);
        local.take_will();
        local.wait_in_memory(false);
        self.directory.remove(local.hash, session);
        if local.is_claimed {
            self.end_claim(HomeClaim::of_session(local.broker.home.clone(), local.hash));
        }
        self.remove_part(FilterRemoval {
            broker: local.broker,
            target,
            remains: local.session.into_remains(),
            replays,
        });
    }

    fn pass_on_waiting(&mut self, session: u32) {
        let waiting = self.sessions[session as usize].session.take_shared();
        let broker = self.sessions[session as usize].broker.clone();
        for entry in waiting {
            self.give_back_or_pass_on(&broker, &entry);
        }
    }

    pub(super) fn give_back_or_pass_on(&mut self, broker: &Arc<Broker>, entry: &OutboxEntry) {
        if !self.give_back(broker, &entry.message, entry.shared) {
            self.pass_on(broker, &entry.message, entry.shared);
        }
    }

    pub(super) fn pass_on(&mut self, broker: &Arc<Broker>, message: &Arc<Message>, group: GroupNumber) {
        let routes = self.routes_to(broker, message.topic());
        if let Some(receiver) = routes.group(group).and_then(|found| self.pick_member(found)) {
            self.deliver_shared(&routes, receiver, message, None, group);
        }
    }

    pub(super) fn is_anybody_online(
        &mut self,
        broker: &Arc<Broker>,
        message: &Message,
        group: GroupNumber,
    ) -> bool {
        let routes = self.routes_to(broker, message.topic());
        routes.group(group).is_some_and(|found| found.online() > 0)
    }
}
