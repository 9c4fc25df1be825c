//! Sessions of the store: taken, read for, and brought up to what is live.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use millrace_layers::Position;
use millrace_layers::streams::Source;
use millrace_layers::subscriptions::{NO_STREAM, Subscription as Stored};
use millrace_mqtt::topic::Filter;
use millrace_mqtt::{QoS, ReasonCode, SubscribeOptions};
use millrace_router::Target;
use millrace_session::{Delivery, Entry, Message, Seconds, Session, Subscription};

use super::between;
use super::connection::{ConnectionId, Request};
use super::deliver::Publisher;
use super::jobs::Turns;
use super::kept::{Behind, Feed, Held, Kept, KeptSource, Way};
use super::timers::Due;
use super::{Attaching, Core, Ended};
use crate::broker::{Broker, Routes};
use crate::incidents::{Kind, Note};
use crate::store::{Attach, Attached, Detach, Page, Read, Reader, SessionKey, Write, record};

/// A session that reads is given no more while so many messages wait in it.
pub(super) const WAITING_LOW: usize = 200;

/// Sessions that follow streams look for themselves this often, seconds: other pods may have written.
pub(super) const LOOK_AROUND_S: Seconds = 1;
/// While other pods are heard, which tell what they wrote.
const LOOK_AROUND_TOLD_S: Seconds = 60;

/// Sessions that wait until all cores have passed the end of a turn, and then until all that was left with the store
/// is committed.
pub(super) struct Fence {
    number: u64,
    /// The broker of its sessions.
    broker: u64,
    /// Cores that were in a turn, with its number.
    turns: Turns,
    sessions: Vec<Target>,
    /// The store was asked.
    marked: bool,
}

/// The fence of this turn for the sessions of a broker.
fn open_fence<'a>(fences: &'a mut VecDeque<Fence>, next: &mut u64, broker: u64) -> &'a mut Fence {
    let is_open = |fence: &Fence| fence.turns.is_empty() && !fence.marked && fence.broker == broker;
    let at = fences.iter().rposition(is_open).unwrap_or_else(|| {
        *next += 1;
        let (turns, sessions) = (Turns::new(), Vec::new());
        fences.push_back(Fence { number: *next, broker, turns, sessions, marked: false });
        fences.len() - 1
    });
    &mut fences[at]
}

impl Core {
    /// Asks the store for the session of a connection, or to end the one that there may be. One at a time for a client id: the
    /// answers may come in another order.
    pub(super) fn ask_for_session(&mut self, slot: u32, broker: &Arc<Broker>, request: Request) {
        let (id, client) = (self.id_of(slot), request.client_id.clone());
        let session = (broker.id, client.clone());
        if let Some(attaching) = self.attaching.get_mut(&session) {
            attaching.waiting.push_back(id);
            self.connections[slot as usize].pending = Some(Box::new(request));
            return;
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
        self.attaching.insert(session, attaching);
        self.connections[slot as usize].pending = Some(Box::new(request));
        self.leave_job(Write::Attach(Box::new(attach)));
    }

    /// A connection has got its answer: the next one of its client id is asked for.
    fn ask_for_next(&mut self, broker: &Arc<Broker>, client: &Arc<str>) {
        let session = (broker.id, client.clone());
        let Some(Attaching { mut waiting, claim, .. }) = self.attaching.remove(&session) else { return };
        if let Some(claim) = claim {
            self.end_claim(claim);
        }
        while let Some(next) = waiting.pop_front() {
            let request = self.connection_of(next).and_then(|connection| connection.pending.take());
            let Some(request) = request else { continue };
            self.attach(next.slot, broker, *request);
            if let Some(after) = self.attaching.get_mut(&session) {
                return after.waiting.append(&mut waiting);
            }
        }
    }

    /// The store's answer.
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
            // The client has gone meanwhile.
            (None, Some((attached, _))) => self.leave_unused(broker.clone(), *attached),
            (None, None) => {}
        }
        self.ask_for_next(&broker, &client);
    }

    /// The session belongs to another user.
    pub(super) fn not_attached(&mut self, id: ConnectionId, (broker, client): &(Arc<Broker>, Arc<str>)) {
        if self.connection_of(id).is_some_and(|connection| connection.pending.take().is_some()) {
            self.refuse_other_user(id.slot, broker, client);
        }
        self.ask_for_next(broker, client);
    }

    /// Refuses a client whose client id is that of another user's session.
    pub(super) fn refuse_other_user(&mut self, slot: u32, broker: &Arc<Broker>, client_id: &str) {
        let what = "this client identifier belongs to another user's session";
        self.broker_counters(broker).refused_authorization.add(1);
        self.note(broker, &Note::new(Kind::ConnectRefused, "", what).of(client_id, None), 1);
        self.refuse(slot, ReasonCode::NOT_AUTHORIZED, what);
    }

    /// Lets go of a session whose client has gone before it got it.
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
        let Attached { epoch, present, subscriptions, in_flight, received, cursor, mut acknowledged, .. } =
            attached;
        let ids = in_flight.iter().map(|(id, in_flight)| (*id, place_of(in_flight))).collect();
        let read: Vec<(KeptSource, Subscription)> = subscriptions.iter().filter_map(is_read).collect();
        let publisher = record::publisher(&request.client_id);
        let unacknowledged = page.entries.iter().filter_map(|(message, from, sources)| {
            let is_had = message.place().is_none_or(|place| acknowledged.contains(&Position(place)));
            let subscriptions = sources.iter().filter_map(|source| Some(&read.get(*source)?.1));
            between::entry(message, *from == publisher, subscriptions).filter(|_| !is_had)
        });
        // One with QoS 2 was not sent, or it had a packet id in the store: what comes after it stays behind it.
        let unacknowledged = unacknowledged.take_while(|entry| entry.qos == QoS::AtLeastOnce);
        let (in_flight, placed) = between::interleave(in_flight, unacknowledged);
        acknowledged.extend(placed);
        let mut session = Session::restored(request.client_id.clone(), in_flight, received);
        let keeps = request.granted_expiry_s > 0 || present;
        session.is_stored = keeps;
        for stored in &subscriptions {
            if let Ok(filter) = std::str::from_utf8(&stored.filter) {
                session.subscribe(filter, subscription_of(stored));
            }
        }
        let sources: Vec<KeptSource> = read.into_iter().map(|(source, _)| source).collect();
        let slot_of_session = self.attach_session(slot, broker, request, session, present, epoch);
        let told = self.add_routes(slot_of_session);
        if keeps {
            let has_sources = !sources.is_empty();
            let mut kept = Kept::live(sources);
            kept.ids = ids;
            kept.seen = acknowledged;
            if self.process.is_shared() {
                kept.follow(cursor);
                if let Feed::Behind(behind) = &mut kept.feed {
                    behind.asked = present && has_sources;
                }
            } else if present && has_sources {
                kept.feed = Feed::Behind(Behind { asked: true, ..Behind::new(cursor, Way::Far) });
            }
            self.sessions[slot_of_session as usize].kept = Some(Box::new(kept));
        }
        self.reread_when_heard(self.target_of(slot_of_session), broker, told);
        for stored in &subscriptions {
            if let Ok(filter) = std::str::from_utf8(&stored.filter) {
                self.join(broker, filter);
            }
        }
        self.revoke(slot);
        self.pump(slot);
        if keeps && present {
            self.hold_behind_fence(slot_of_session);
            self.page(self.target_of(slot_of_session), 0, Some(page));
        }
    }

    /// Puts the subscriptions of a session into the router, and tells other pods. The number to wait for, as [`Core::tell_filters`].
    fn add_routes(&mut self, session: u32) -> u64 {
        let target = self.target_of(session);
        let homed = &self.sessions[session as usize];
        if homed.session.subscriptions_len() == 0 {
            return 0;
        }
        homed.broker.router.edit(|edit| {
            for (filter, subscription) in homed.session.subscriptions() {
                if let Some(filter) = Filter::parse(filter) {
                    let kept = filter.share.is_none() && subscription.options.qos > QoS::AtMostOnce;
                    edit.subscribe(filter, routed(target, subscription, kept));
                }
            }
        });
        self.tell_members(&homed.broker, homed.session.subscriptions().map(|(filter, _)| filter));
        self.tell_filters(&homed.broker, homed.session.subscriptions().map(|(filter, _)| filter))
    }

    /// From here on live copies are held for a session that is behind, and a fence is set behind what was routed before.
    pub(super) fn hold_behind_fence(&mut self, session: u32) {
        let target = self.target_of(session);
        let kept = self.sessions[session as usize].kept.as_deref_mut();
        if let Some(kept) = kept.filter(|kept| kept.follows()) {
            if kept.grow() {
                self.read_on(session);
            }
            return;
        }
        let homed = &mut self.sessions[session as usize];
        let Some(kept) = &mut homed.kept else { return };
        if let Feed::Behind(behind) = &mut kept.feed {
            let broker = homed.broker.id;
            let fence = open_fence(&mut self.fences, &mut self.next_fence, broker);
            behind.way = Way::Fenced(fence.number);
            fence.sessions.push(target);
        }
    }

    /// Sets the fence of this turn, and asks the store once all cores have passed one. To be called at the end of a turn,
    /// before the jobs are left.
    pub(super) fn pass_fences(&mut self) {
        if self.fences.is_empty() {
            return;
        }
        // What the router has now is seen by every turn that begins after this.
        fence(Ordering::SeqCst);
        let (now, mut passed) = (self.others_in_turn(), Vec::new());
        let mut fences = std::mem::take(&mut self.fences);
        for fence in fences.iter_mut().filter(|fence| !fence.marked) {
            if fence.turns.is_empty() {
                fence.turns = now.clone();
            } else {
                self.still_in(&mut fence.turns);
            }
            if fence.turns.is_empty() {
                fence.marked = true;
                passed.push((fence.number, fence.broker));
            }
        }
        self.fences = fences;
        for (fence, broker) in passed {
            self.leave_job(Write::Mark { core: self.index, fence, broker });
        }
    }

    /// True while a fence, or jobs, wait for other cores.
    pub(super) fn waits_for_turns(&self) -> bool {
        self.held_jobs.is_some() || self.fences.iter().any(|fence| !fence.marked)
    }

    /// All that was routed before a fence is committed.
    pub(super) fn marked(&mut self, number: u64, through: Position) {
        let Some(at) = self.fences.iter().position(|fence| fence.number == number) else { return };
        let Some(fence) = self.fences.remove(at) else { return };
        for target in fence.sessions {
            let Some(homed) = self.sessions.get_mut(target.slot as usize) else { continue };
            if homed.generation != target.generation {
                continue;
            }
            let Some(kept) = &mut homed.kept else { continue };
            if let Feed::Behind(behind) = &mut kept.feed
                && behind.way == Way::Fenced(number)
            {
                behind.way = Way::Passed(through);
                self.deliver_unstored(target.slot);
                self.read_on(target.slot);
            }
        }
    }

    /// A session has another owner, or is to have one: whoever has it here is told so. Of one that is lost nothing is written any
    /// more.
    pub(super) fn lose(&mut self, key: &SessionKey, is_lost: bool) {
        let Some(session) = self.session_of(&key.broker, &key.client) else { return };
        let homed = &mut self.sessions[session as usize];
        if homed.epoch == key.epoch {
            homed.is_lost |= is_lost;
            self.take_over(session);
        }
    }

    /// Has sessions read what nobody announced, when it is time: often while nobody can be trusted to tell.
    pub(super) fn look_around_now_and_then(&mut self) {
        let is_told = self.process.region.as_ref().is_some_and(|region| !region.is_in_doubt());
        if !is_told || self.now >= self.looked_around_at + LOOK_AROUND_TOLD_S {
            self.looked_around_at = self.now;
            self.look_around(None);
        }
        self.read_behind();
        self.calendar.add(self.now + LOOK_AROUND_S, Due::LookAround);
    }

    /// Streams that keep a topic have grown: who follows them reads on.
    pub(super) fn grown(&mut self, routes: &Routes) {
        for receiver in routes.receivers(self.index).iter().filter(|receiver| receiver.kept > 0) {
            let Some(homed) = self.sessions.get_mut(receiver.target.slot as usize) else { continue };
            if homed.generation != receiver.target.generation {
                continue;
            }
            if homed.kept.as_deref_mut().is_some_and(Kept::grow) {
                self.read_on(receiver.target.slot);
            }
        }
    }

    /// What a session was to read has come.
    pub(super) fn page(&mut self, target: Target, sources_version: u32, page: Option<Page>) {
        let Some(homed) = self.sessions.get_mut(target.slot as usize) else { return };
        if homed.generation != target.generation {
            return;
        }
        let Some(page) = page else {
            // The client comes back, and tries again.
            let (slot, what) = (homed.connection, "the messages of the session cannot be read now");
            return self.say_and_close(
                slot,
                ReasonCode::SERVER_BUSY,
                what,
                Ended::Error(ReasonCode::SERVER_BUSY),
            );
        };
        let Some(kept) = &mut homed.kept else { return };
        // What a subscription gets may stand before the end of a page that was read without it.
        if kept.sources_version != sources_version || kept.waits_for_subscribe() {
            if let Feed::Behind(behind) = &mut kept.feed {
                behind.asked = false;
            }
            return self.read_on(target.slot);
        }
        let had = kept.had();
        self.answer_subscribes(target.slot);
        let broker = self.sessions[target.slot as usize].broker.clone();
        self.broker_counters(&broker).missed.add(usize::try_from(page.missed).unwrap_or(0));
        let client_id = self.sessions[target.slot as usize].session.client_id();
        let what = "they were removed by a limit before the client had them";
        self.note(&broker, &Note::new(Kind::MessagesDropped, "", what).of(client_id, None), page.missed);
        for (message, publisher, sources) in &page.entries {
            if !message.place().is_some_and(|place| had.contains(&Position(place))) {
                self.deliver_read(target.slot, message, *publisher, sources);
            }
        }
        let homed = &mut self.sessions[target.slot as usize];
        let Some(kept) = &mut homed.kept else { return };
        kept.read_through(page.through, page.more);
        let Feed::Behind(behind) = &mut kept.feed else { return };
        match behind.way {
            _ if page.more => {}
            Way::Follows => {}
            Way::Far => self.hold_behind_fence(target.slot),
            Way::Passed(through) if behind.through >= through => {
                kept.go_live();
                return self.deliver_held(target.slot);
            }
            Way::Fenced(_) | Way::Passed(_) => {}
        }
        self.read_on(target.slot);
    }

    /// Reads the next page of a session, if it is behind and takes more. One that has read all there was reads again when its
    /// fence is passed.
    pub(super) fn read_on(&mut self, session: u32) {
        let target = self.target_of(session);
        let homed = &mut self.sessions[session as usize];
        let waiting = homed.session.waiting();
        let Some(kept) = &mut homed.kept else { return };
        let Feed::Behind(behind) = &kept.feed else { return };
        // At the end there is nothing to read before the fence is passed.
        let waits = behind.at_end && matches!(behind.way, Way::Fenced(_) | Way::Follows);
        if behind.asked || waits || kept.waits_for_subscribe() || waiting > WAITING_LOW {
            return;
        }
        let (sources, reader) = (kept.sources(), Reader::Session(target, kept.sources_version));
        let Feed::Behind(behind) = &mut kept.feed else { return };
        behind.asked = true;
        let (cursor, broker) = (behind.through, homed.broker.clone());
        let read = Read { core: self.index, broker, sources, cursor, reader };
        if let Some(store) = &self.process.store {
            store.read(read);
        }
    }

    /// Hands a message of the store to a session.
    fn deliver_read(&mut self, session: u32, message: &Arc<Message>, publisher: u64, sources: &[usize]) {
        let homed = &self.sessions[session as usize];
        let Some(kept) = &homed.kept else { return };
        let own = record::publisher(homed.session.client_id()) == publisher;
        let subscriptions = sources.iter().filter_map(|source| {
            let filter = &*kept.source(*source)?.filter;
            let fresh = homed.fresh.as_ref();
            let is_had = fresh.is_some_and(|fresh| fresh.has_for(filter, message, self.now));
            homed.session.subscription(filter).filter(|_| !is_had)
        });
        let Some(entry) = between::entry(message, own, subscriptions) else { return };
        let Entry { qos, retain, identifiers, .. } = &entry;
        let delivery =
            Delivery { message, qos: *qos, retain: *retain, replay: false, shared: 0, identifiers };
        self.deliver_to(session, delivery, Publisher::NOBODY);
    }

    /// Hands on what was held for a session that has become live.
    pub(super) fn deliver_held(&mut self, session: u32) {
        let Some(kept) = &mut self.sessions[session as usize].kept else { return };
        let held = kept.take_held();
        self.deliver_all_held(session, held);
    }

    /// Hands on what is held for a session that will read, and that it will not find.
    pub(super) fn deliver_unstored(&mut self, session: u32) {
        let Some(kept) = &mut self.sessions[session as usize].kept else { return };
        let held = kept.take_unstored();
        self.deliver_all_held(session, held);
    }

    fn deliver_all_held(&mut self, session: u32, held: impl IntoIterator<Item = Held>) {
        for held in held {
            let fresh = self.sessions[session as usize].fresh.as_ref();
            if fresh.is_some_and(|fresh| fresh.has(&held.message, self.now)) {
                continue;
            }
            let delivery = Delivery {
                message: &held.message,
                qos: held.qos,
                retain: held.retain,
                replay: false,
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

/// A subscription for the router. `kept` says that the store has it.
pub(super) fn routed(
    target: Target,
    subscription: &Subscription,
    kept: bool,
) -> millrace_router::Subscription {
    let SubscribeOptions { qos, no_local, retain_as_published, .. } = subscription.options;
    let identifier = subscription.identifier;
    millrace_router::Subscription { target, qos, no_local, retain_as_published, kept, identifier }
}

/// A subscription with a stream that the session reads, in the order of what is read for it.
fn is_read(stored: &Stored) -> Option<(KeptSource, Subscription)> {
    let filter = std::str::from_utf8(&stored.filter).ok()?;
    let source = Source { stream: stored.stream, since: stored.since };
    let is_read = stored.stream != NO_STREAM && !filter.starts_with("$share/");
    is_read.then(|| (KeptSource { filter: filter.into(), source }, subscription_of(stored)))
}

fn subscription_of(stored: &Stored) -> Subscription {
    let bits = stored.options.bits;
    let options = SubscribeOptions {
        qos: QoS::from_bits(bits & 3).unwrap_or_default(),
        no_local: bits & 4 != 0,
        retain_as_published: bits & 8 != 0,
        // Says something about the SUBSCRIBE only.
        ..SubscribeOptions::default()
    };
    Subscription { options, identifier: stored.options.identifier }
}

pub(super) fn place_of(in_flight: &millrace_session::InFlight) -> Option<Position> {
    match in_flight {
        millrace_session::InFlight::Published(entry) => entry.message.place().map(Position),
        millrace_session::InFlight::Released(place) => place.map(Position),
    }
}
