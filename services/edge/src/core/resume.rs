//! Sessions of the store: taking them over, reading their messages, and catching up with live messages.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_layers::Position;
use millrace_layers::streams::Source;
use millrace_layers::subscriptions::{NO_STREAM, StoredOptions, StoredSubscription};
use millrace_mqtt::topic::Filter;
use millrace_mqtt::{QoS, ReasonCode, SubscribeOptions};
use millrace_router::Target;
use millrace_session::{ClientSubscription, Delivery, Entry, InFlight, Message, Seconds, Session};

use super::admit::Attaching;
use super::between;
use super::connection::Request;
use super::deliver::Publisher;
use super::feed::{Feed, Held, ReadState, Way};
use super::fresh::Fresh;
use super::persistent::{FilterSource, PersistentSession};
use super::timers::Due;
use super::{Core, Ended, replays_due, work};
use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::encoding::record;
use crate::incidents::{Kind, Note};
use crate::jobs::{Attach, Attached, Detach, Page, Read, Reader, SessionKey, Write};
use crate::quota::Limit;
use crate::routes::Routes;

/// A reading session gets no more pages while this many messages wait in it.
pub(super) const WAITING_LOW: usize = 200;

/// CONNECT packets with the same client id that wait for their session.
const WAITING_CONNECTS_MAX: usize = 16;

/// How often sessions that follow streams look for messages of other pods, seconds.
pub(super) const LOOK_AROUND_S: Seconds = 1;
/// The same while other pods announce what they write.
const LOOK_AROUND_TOLD_S: Seconds = 60;

impl Core {
    /// Requests a connection's session from the store, or has the store end an existing one. Requests for the same
    /// client id run one after another, because the answers may come in another order.
    pub(super) fn ask_for_session(&mut self, slot: u32, broker: &Arc<Broker>, request: Request) {
        let (id, client) = (self.id_of(slot), request.client_id.clone());
        let session = (broker.id, client.clone());
        if let Some(attaching) = self.connects.attaching.get_mut(&session) {
            attaching.waiting.push_back(id);
            let full = attaching.waiting.len() > WAITING_CONNECTS_MAX;
            let oldest = attaching.waiting.pop_front_if(|_| full);
            self.connections[slot as usize].pending = Some(Box::new(request));
            return self.refuse_overtaken(broker, oldest);
        }
        let attach = Attach {
            broker: broker.clone(),
            client,
            connection: id,
            clean: request.clean_start,
            expiry_s: request.granted_expiry_s,
            will: request.will.clone(),
            user: request.proven_user().map(Into::into),
            is_visitor: request.is_visitor(),
            asked_at: 0,
            ask_at: 0,
        };
        let attaching = Attaching { waiting: VecDeque::new(), claim: request.claim.clone() };
        self.connects.attaching.insert(session, attaching);
        self.connections[slot as usize].pending = Some(Box::new(request));
        self.leave_job(Write::Attach(Box::new(attach)));
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

    pub(super) fn attached(
        &mut self,
        id: ConnectionId,
        (broker, client): (Arc<Broker>, Arc<str>),
        found: Option<(Box<Attached>, Option<Page>)>,
    ) {
        let request = self.connection_of(id).and_then(|connection| connection.pending.take());
        match (request, found) {
            (Some(request), Some((attached, page))) => {
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

    /// Handles the store's answer that the session belongs to another user.
    pub(super) fn not_attached(&mut self, id: ConnectionId, (broker, client): &(Arc<Broker>, Arc<str>)) {
        if self.connection_of(id).is_some_and(|connection| connection.pending.take().is_some()) {
            self.refuse_other_user(id.slot, broker, client);
        }
        self.ask_for_next(broker, client);
    }

    pub(super) fn no_room(
        &mut self,
        id: ConnectionId,
        (broker, client): &(Arc<Broker>, Arc<str>),
        limit: Limit,
    ) {
        if self.connection_of(id).is_some_and(|connection| connection.pending.take().is_some()) {
            self.broker_counters(broker).refused_stored_quota.add(1);
            self.reached_by(broker, limit, Some(client), None);
            self.refuse(id.slot, ReasonCode::QUOTA_EXCEEDED, limit.meaning());
        }
        self.ask_for_next(broker, client);
    }

    pub(super) fn refuse_other_user(&mut self, slot: u32, broker: &Arc<Broker>, client_id: &str) {
        let what = "this client identifier belongs to another user's session";
        self.broker_counters(broker).refused_authorization.add(1);
        self.note(broker, &Note::new(Kind::ConnectRefused, "", what).of(client_id, None), 1);
        self.refuse(slot, ReasonCode::NOT_AUTHORIZED, what);
    }

    /// Gives back a session whose client disconnected before it got it.
    fn leave_unused(&mut self, broker: Arc<Broker>, attached: Attached) {
        if attached.epoch > 0 {
            let detach = Detach::unused(broker, attached, self.process.clock.unix_now_ms());
            self.leave_job(Write::Detach(Box::new(detach)));
        }
    }

    fn attach_stored(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        request: Request,
        attached: Attached,
        page: Page,
    ) {
        let Attached {
            epoch,
            present,
            subscriptions,
            in_flight,
            received,
            cursor,
            mut acknowledged,
            maybe_sent,
            ..
        } = attached;
        let ids = in_flight.iter().map(|(id, in_flight)| (*id, place_of(in_flight))).collect();
        let read: Vec<(FilterSource, ClientSubscription)> =
            subscriptions.iter().filter_map(is_read).collect();
        let publisher = record::publisher(&request.client_id);
        let unacknowledged = page.entries.iter().filter_map(|(message, from, sources)| {
            let is_had = message.place().is_none_or(|place| acknowledged.contains(Position(place)));
            let subscriptions = sources.iter().filter_map(|source| Some(&read.get(*source)?.1));
            between::entry(message, *from == publisher, subscriptions).filter(|_| !is_had)
        });
        // A QoS 2 message was either not sent, or has a packet id in the store. Later messages must not overtake it.
        let unacknowledged = unacknowledged.take_while(|entry| entry.qos == QoS::AtLeastOnce);
        let (in_flight, placed) = between::interleave(in_flight, unacknowledged, maybe_sent);
        placed.into_iter().for_each(|place| acknowledged.add(place));
        let is_due = !self.process.is_shared() && subscriptions.iter().any(replays_due::is_due);
        let had = is_due.then(|| replays_due::topics_of(&in_flight));
        let mut session = Session::restored(request.client_id.clone(), in_flight, received);
        let keeps = request.granted_expiry_s > 0 || present;
        session.is_stored = keeps;
        for stored in &subscriptions {
            if let Ok(filter) = std::str::from_utf8(&stored.filter) {
                session.subscribe(filter, subscription_of(stored.options));
            }
        }
        let sources: Vec<FilterSource> = read.into_iter().map(|(source, _)| source).collect();
        let slot_of_session = self.attach_session(slot, broker, request, session, present, epoch);
        let announced = self.add_routes(slot_of_session);
        if keeps {
            let has_sources = !sources.is_empty();
            let mut persistent = PersistentSession::live(sources);
            persistent.ids = ids;
            persistent.had = acknowledged;
            persistent.maybe_sent = maybe_sent;
            if self.process.is_shared() {
                persistent.follow(cursor);
                if let Feed::Reading(reading) = &mut persistent.feed {
                    reading.asked = present && has_sources;
                }
            } else if present && has_sources {
                persistent.feed =
                    Feed::Reading(ReadState { asked: true, ..ReadState::new(cursor, Way::Far) });
            }
            self.sessions[slot_of_session as usize].persistent = Some(Box::new(persistent));
        }
        self.reread_when_confirmed(self.target_of(slot_of_session), broker, announced);
        for stored in &subscriptions {
            if let Ok(filter) = std::str::from_utf8(&stored.filter) {
                self.join(broker, filter);
            }
        }
        self.revoke(slot);
        if let Some(had) = had {
            self.replay_due(slot_of_session, &subscriptions, had);
        }
        self.pump(slot);
        if keeps && present {
            self.hold_until_barrier(slot_of_session);
            self.page(self.target_of(slot_of_session), 0, Some(page));
        }
    }

    /// Puts the subscriptions of a session into the router and announces them to other pods. Returns what
    /// [`Core::announce_filters`] returns: the number to wait for.
    fn add_routes(&mut self, session: u32) -> u64 {
        let target = self.target_of(session);
        let local = &self.sessions[session as usize];
        if local.session.subscriptions_len() == 0 {
            return 0;
        }
        local.broker.router.edit(|edit| {
            for (filter, subscription) in local.session.subscriptions() {
                if let Some(filter) = Filter::parse(filter) {
                    let is_stored = filter.share.is_none() && subscription.options.qos > QoS::AtMostOnce;
                    edit.subscribe(filter, routed(target, subscription, is_stored));
                }
            }
        });
        self.tell_members(&local.broker, local.session.subscriptions().map(|(filter, _)| filter));
        self.announce_filters(&local.broker, local.session.subscriptions().map(|(filter, _)| filter))
    }

    /// Closes a session that another owner has taken (`is_lost`) or is about to take. A lost session is not written
    /// to the store any more.
    pub(super) fn lose(&mut self, key: &SessionKey, is_lost: bool) {
        let Some(session) = self.session_of(&key.broker, &key.client) else { return };
        let local = &mut self.sessions[session as usize];
        if local.epoch == key.epoch {
            local.is_lost |= is_lost;
            self.take_over(session);
        }
    }

    /// From time to time makes sessions read messages that no pod announced: often while announcements may be
    /// missing.
    pub(super) fn look_around_now_and_then(&mut self) {
        let is_told = self.process.region.as_ref().is_some_and(|region| !region.is_in_doubt());
        if !is_told || self.now >= self.following.looked_around_at + LOOK_AROUND_TOLD_S {
            self.following.looked_around_at = self.now;
            self.look_around(None);
        }
        self.read_behind();
        self.calendar.add(self.now + LOOK_AROUND_S, Due::LookAround);
    }

    /// Makes the sessions that follow the streams of a topic read on, because the streams have grown.
    pub(super) fn grown(&mut self, routes: &Routes) {
        for receiver in routes.receivers(self.index).iter().filter(|receiver| receiver.is_persistent()) {
            let Some(local) = self.sessions.get_mut(receiver.target.slot as usize) else { continue };
            if local.generation != receiver.target.generation {
                continue;
            }
            if local.persistent.as_deref_mut().is_some_and(PersistentSession::grow) {
                self.read_on(receiver.target.slot);
            }
        }
    }

    pub(super) fn page(&mut self, target: Target, sources_version: u32, page: Option<Page>) {
        let Some(local) = self.sessions.get_mut(target.slot as usize) else { return };
        if local.generation != target.generation {
            return;
        }
        let Some(page) = page else {
            // The client reconnects and tries again.
            let (slot, what) = (local.connection, "the messages of the session cannot be read now");
            return self.say_and_close(
                slot,
                ReasonCode::SERVER_BUSY,
                what,
                Ended::Error(ReasonCode::SERVER_BUSY),
            );
        };
        let Some(persistent) = &mut local.persistent else { return };
        // A subscription may have been added after this page was requested: its messages may stand before the page's
        // end.
        if persistent.sources_version != sources_version || persistent.waits_for_subscribe() {
            if let Feed::Reading(reading) = &mut persistent.feed {
                reading.asked = false;
            }
            return self.read_on(target.slot);
        }
        let had = persistent.had();
        self.answer_subscribes(target.slot);
        let broker = self.sessions[target.slot as usize].broker.clone();
        self.broker_counters(&broker).missed.add(usize::try_from(page.missed).unwrap_or(0));
        let client_id = self.sessions[target.slot as usize].session.client_id();
        let what = "they were removed by a limit before the client had them";
        self.note(&broker, &Note::new(Kind::MessagesDropped, "", what).of(client_id, None), page.missed);
        for (message, publisher, sources) in &page.entries {
            if !message.place().is_some_and(|place| had.contains(Position(place))) {
                self.deliver_read(target.slot, message, *publisher, sources);
            }
        }
        let local = &mut self.sessions[target.slot as usize];
        let Some(persistent) = &mut local.persistent else { return };
        persistent.read_through(page.through, page.more);
        let Feed::Reading(reading) = &mut persistent.feed else { return };
        match reading.way {
            _ if page.more => {}
            Way::Follows => {}
            Way::Far => self.hold_until_barrier(target.slot),
            Way::Passed(through) if reading.through >= through => {
                persistent.go_live();
                return self.deliver_held(target.slot);
            }
            Way::Fenced(_) | Way::Passed(_) => {}
        }
        self.read_on(target.slot);
    }

    /// Reads the next page of a session, if it is catching up and takes more. A session that has read to the end
    /// reads again when its barrier is passed.
    pub(super) fn read_on(&mut self, session: u32) {
        let target = self.target_of(session);
        let local = &mut self.sessions[session as usize];
        let waiting = local.session.waiting();
        let Some(persistent) = &mut local.persistent else { return };
        let Feed::Reading(reading) = &persistent.feed else { return };
        let waits = reading.at_end && matches!(reading.way, Way::Fenced(_) | Way::Follows);
        if reading.asked || waits || persistent.waits_for_subscribe() || waiting > WAITING_LOW {
            return;
        }
        let (sources, reader) = (persistent.sources(), Reader::Session(target, persistent.sources_version));
        let Feed::Reading(reading) = &mut persistent.feed else { return };
        reading.asked = true;
        let (cursor, broker) = (reading.through, local.broker.clone());
        let read = Read { core: self.index, broker, sources, cursor, reader };
        if let Some(store) = &self.process.store {
            store.read(read);
        }
    }

    fn deliver_read(&mut self, session: u32, message: &Arc<Message>, publisher: u64, sources: &[usize]) {
        let local = &self.sessions[session as usize];
        let Some(persistent) = &local.persistent else { return };
        let own = record::publisher(local.session.client_id()) == publisher;
        let subscriptions = sources.iter().filter_map(|source| {
            let filter = &*persistent.source(*source)?.filter;
            let fresh = local.fresh.as_ref();
            let is_had = fresh.is_some_and(|fresh| fresh.has_for(filter, message, self.now));
            local.session.subscription(filter).filter(|_| !is_had)
        });
        let entry = between::entry(message, own, subscriptions);
        let compared = local.fresh.as_deref().map_or(0, Fresh::take_compared);
        self.work.spend((compared / work::COMPARED_LEVELS) as u64);
        let Some(entry) = entry else { return };
        let Entry { qos, retain, identifiers, .. } = &entry;
        let maybe_sent = persistent.may_be_sent(message);
        let (qos, retain) = (*qos, *retain);
        let delivery = Delivery { message, qos, retain, replay: false, maybe_sent, shared: 0, identifiers };
        self.deliver_to(session, delivery, Publisher::NOBODY);
    }

    pub(super) fn deliver_held(&mut self, session: u32) {
        let Some(persistent) = &mut self.sessions[session as usize].persistent else { return };
        let held = persistent.take_held();
        self.deliver_all_held(session, held);
    }

    /// Delivers the held messages that the session will not find in the store.
    pub(super) fn deliver_unstored(&mut self, session: u32) {
        let Some(persistent) = &mut self.sessions[session as usize].persistent else { return };
        let held = persistent.take_unstored();
        self.deliver_all_held(session, held);
    }

    fn deliver_all_held(&mut self, session: u32, held: impl IntoIterator<Item = Held>) {
        for held in held {
            if let Some(fresh) = &self.sessions[session as usize].fresh {
                let has = fresh.has(&held.message, self.now);
                self.work.spend((fresh.take_compared() / work::COMPARED_LEVELS) as u64);
                if has {
                    continue;
                }
            }
            let delivery = Delivery {
                message: &held.message,
                qos: held.qos,
                retain: held.retain,
                replay: false,
                maybe_sent: false,
                shared: held.shared,
                identifiers: &held.identifiers,
            };
            self.deliver_to(session, delivery, Publisher::NOBODY);
            if !self.sessions.contains(session as usize) {
                return;
            }
        }
    }
}

/// A subscription for the router. `persistent`: the store has it.
pub(super) fn routed(
    target: Target,
    subscription: &ClientSubscription,
    persistent: bool,
) -> millrace_router::Subscription {
    let SubscribeOptions { qos, no_local, retain_as_published, .. } = subscription.options;
    let identifier = subscription.identifier;
    millrace_router::Subscription { target, qos, no_local, retain_as_published, persistent, identifier }
}

/// A subscription whose stream the session reads, as the reader and as the session need it.
fn is_read(stored: &StoredSubscription) -> Option<(FilterSource, ClientSubscription)> {
    let filter = std::str::from_utf8(&stored.filter).ok()?;
    let source = Source { stream: stored.stream, since: stored.since };
    let is_read = stored.stream != NO_STREAM && !filter.starts_with("$share/");
    is_read.then(|| (FilterSource { filter: filter.into(), source }, subscription_of(stored.options)))
}

pub(super) fn subscription_of(stored: StoredOptions) -> ClientSubscription {
    let StoredOptions { bits, identifier } = stored;
    let options = SubscribeOptions {
        qos: QoS::from_bits(bits & 3).unwrap_or_default(),
        no_local: bits & 4 != 0,
        retain_as_published: bits & 8 != 0,
        ..SubscribeOptions::default()
    };
    ClientSubscription { options, identifier }
}

pub(super) fn place_of(in_flight: &InFlight) -> Option<Position> {
    match in_flight {
        InFlight::Published(entry) | InFlight::Unsent(entry) => entry.message.place().map(Position),
        InFlight::Released(place) => place.map(Position),
    }
}
