//! Sessions of the store: taking them over, reading their messages, and catching up with live messages, in the
//! steps of [`Way`].

mod ask;
mod entries;
mod in_parts;
mod stored;
mod unstored;

use std::sync::Arc;

use millrace_layers::subscriptions::StoredSubscription;
use millrace_layers::{Position, Positions};
use millrace_mqtt::{PacketId, QoS, ReasonCode, SubscribeOptions};
use millrace_router::Target;
use millrace_session::{ClientSubscription, Delivery, InFlight, OutboxEntry, Seconds, Session};

pub(super) use self::in_parts::Resumption;
use self::stored::is_read;
pub(super) use self::stored::subscription_of;
use self::unstored::UnstoredFilters;
use super::between;
use super::connection::{ConnectRequest, NONE};
use super::deliver::{Publisher, local_session};
use super::fanout::Copies;
use super::feed::{Feed, HeldMessage, ReadState, Way};
use super::persistent::{FilterSource, PersistentSession};
use super::timers::DueTimer;
use super::{ConnectionEnd, Core, limits, replays_due, work};
use crate::broker::Broker;
use crate::encoding::record;
use crate::incidents::{NewIncident, StoredIncidentKind};
use crate::jobs::{AttachedSession, PageReader, SessionKey, StoredPage, StreamRead};
use crate::mailbox::Mail;
use crate::routes::Routes;

/// A reading session gets no more pages while this many messages, or [`limits::WAITING_BYTES_MAX`], wait in it.
pub(super) const WAITING_LOW: usize = 200;

/// Interval at which sessions that follow streams search the store for messages of other pods, seconds.
pub(super) const LOOK_AROUND_S: Seconds = 1;
/// The same while notices of other pods arrive.
const LOOK_AROUND_NOTIFIED_S: Seconds = 60;

impl Core {
    fn attach_stored(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        request: ConnectRequest,
        attached: AttachedSession,
        page: StoredPage,
    ) {
        let AttachedSession {
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
        let ids = in_flight.iter().map(|(id, in_flight)| (*id, position_of(in_flight))).collect();
        let read = self.subscriptions_read(slot, &request.client_id, &subscriptions);
        let publisher = record::publisher(&request.client_id);
        // Without in-flight messages the whole page is delivered later, by `resume_session`.
        let unstored = if in_flight.is_empty() {
            Default::default()
        } else {
            UnstoredFilters::of_stored(&subscriptions)
        };
        let unacknowledged = unacknowledged(&page, &read, &unstored, &acknowledged, publisher);
        // A QoS 2 message was either not sent, or has a packet id in the store. Later messages must not overtake it.
        let unacknowledged = unacknowledged.take_while(|entry| entry.qos == QoS::AtLeastOnce);
        let (in_flight, placed) = between::interleave(in_flight, unacknowledged, maybe_sent);
        placed.into_iter().for_each(|position| acknowledged.add(position));
        let is_due = !self.process.is_shared() && subscriptions.iter().any(replays_due::is_due);
        let had = is_due.then(|| replays_due::topics_of(&in_flight));
        let mut session = restored(&request.client_id, in_flight, received, &subscriptions);
        let keeps = request.granted_expiry_s > 0 || present;
        session.is_stored = keeps;
        let sources: Vec<FilterSource> = read.into_iter().map(|(source, _)| source).collect();
        let slot_of_session = self.attach_session(slot, broker, request, session, present, epoch);
        if keeps {
            let mut persistent = self.resumed(sources, cursor, present);
            persistent.ids = ids;
            persistent.had = acknowledged;
            persistent.maybe_sent = maybe_sent;
            self.sessions[slot_of_session as usize].persistent = Some(Box::new(persistent));
        }
        let page = (keeps && present).then_some(page);
        self.resume_session(slot, Resumption::new(subscriptions, had, page));
    }

    /// The subscriptions whose streams a session reads, with the QoS that the rules of its client grant now.
    fn subscriptions_read(
        &self,
        slot: u32,
        client_id: &str,
        stored: &[StoredSubscription],
    ) -> Vec<(FilterSource, ClientSubscription)> {
        let lower = |(source, subscription): (FilterSource, ClientSubscription)| {
            let lowered = self.lowered(slot, client_id, &source.filter, &subscription);
            (source, lowered.unwrap_or(subscription))
        };
        stored.iter().filter_map(is_read).map(lower).collect()
    }

    /// A persistent session that is to read its streams from `cursor` on, if it was `present` in the store.
    fn resumed(&self, sources: Vec<FilterSource>, cursor: Position, present: bool) -> PersistentSession {
        let has_sources = !sources.is_empty();
        let mut persistent = PersistentSession::live(sources);
        if self.process.is_shared() {
            persistent.follow(cursor);
            if let Feed::Reading(reading) = &mut persistent.feed {
                reading.asked = present && has_sources;
            }
        } else if present && has_sources {
            persistent.feed = Feed::Reading(ReadState { asked: true, ..ReadState::new(cursor, Way::Far) });
        }
        persistent
    }

    /// Closes a session that another owner has taken (`is_lost`) or is about to take. A lost session is not written
    /// to the store any more. Careful clients do not return by themselves after [`ReasonCode::SESSION_TAKEN_OVER`], so those of a pod
    /// that `was_dead` get another one.
    pub(super) fn lose(&mut self, key: &SessionKey, is_lost: bool, was_dead: bool) {
        let Some(session) = self.session_of(&key.broker, &key.client) else { return };
        let local = &mut self.sessions[session as usize];
        if local.epoch != key.epoch {
            return;
        }
        local.is_lost |= is_lost;
        let slot = local.connection;
        if was_dead && slot != NONE {
            let (reason, what) = (ReasonCode::SERVER_SHUTTING_DOWN, "this server was taken for dead");
            return self.say_and_close(slot, reason, what, ConnectionEnd::Error(reason));
        }
        self.take_over(session);
    }

    /// From time to time makes sessions read messages that no pod announced: often while announcements may be
    /// missing.
    pub(super) fn look_around_now_and_then(&mut self) {
        let is_notified = self.process.region.as_ref().is_some_and(|region| !region.is_in_doubt());
        if !is_notified || self.now >= self.following.looked_around_at + LOOK_AROUND_NOTIFIED_S {
            self.following.looked_around_at = self.now;
            self.look_around(None);
        }
        self.unfinished.slices.behind = true;
        self.calendar.add(self.now + LOOK_AROUND_S, DueTimer::LookAround);
    }

    pub(super) fn grown(&mut self, routes: &Arc<Routes>) {
        let waits = self.unfinished.commits.delays(routes.broker.id, Publisher::NOBODY);
        let next = if waits { 0 } else { self.grow_from(routes, 0) };
        if next < routes.receivers(self.index).len() {
            self.put_off_committed(routes, Copies::Grown, next);
        }
    }

    /// Makes the sessions that follow the streams of a topic read on, because the streams have grown: from receiver `start` on, as far
    /// as one slice of work allows. Returns the index of the next receiver.
    pub(super) fn grow_from(&mut self, routes: &Routes, start: usize) -> usize {
        let receivers = routes.receivers(self.index);
        let end = self.work.spent() + work::SLICE;
        let mut next = start;
        while let Some(receiver) = receivers.get(next)
            && self.work.spent() < end
        {
            next += 1;
            self.work.spend(work::SEEN);
            let local = local_session(&mut self.sessions, receiver).filter(|_| receiver.is_persistent());
            let Some(persistent) = local.and_then(|local| local.persistent.as_deref_mut()) else { continue };
            if persistent.grow() {
                self.read_on(receiver.target.slot);
            }
        }
        next
    }

    pub(super) fn page(&mut self, target: Target, sources_version: u32, page: Option<StoredPage>) {
        let Some(local) = self.sessions.get_mut(target.slot as usize) else { return };
        if local.generation != target.generation {
            return;
        }
        let Some(mut page) = page else {
            // The client reconnects and tries again.
            let (slot, what) = (local.connection, "the messages of the session cannot be read now");
            return self.say_and_close(
                slot,
                ReasonCode::SERVER_BUSY,
                what,
                ConnectionEnd::Error(ReasonCode::SERVER_BUSY),
            );
        };
        let waits = local.waits_for_subscribe(&self.work);
        let Some(persistent) = &mut local.persistent else { return };
        // A subscription may have been added after this page was requested: its messages may stand before the page's
        // end.
        if persistent.page_sources.version != sources_version || waits {
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
        let dropped = NewIncident::new(StoredIncidentKind::MessagesDropped, "", what).of(client_id, None);
        self.note(&broker, &dropped, page.missed);
        let entries = std::mem::take(&mut page.entries);
        let entries = self.deliver_entries(target.slot, entries, &had);
        if !entries.is_empty() && !self.cut_page(target.slot, &entries, &mut page) {
            let rest = StoredPage { entries, missed: 0, ..page };
            return self.put_off_mail(Mail::Page(target, sources_version, Some(rest)));
        }
        let local = &mut self.sessions[target.slot as usize];
        let Some(persistent) = &mut local.persistent else { return };
        persistent.read_through(&page);
        let Feed::Reading(reading) = &mut persistent.feed else { return };
        match reading.way {
            _ if page.more => {}
            Way::Follows => {}
            Way::Far => self.hold_until_barrier(target.slot),
            Way::Passed(through) if reading.through >= through => {
                match self.unfinished.fanouts.wait_for_present(broker.id, target) {
                    Some(number) => reading.way = Way::FansOut(number),
                    None => persistent.go_live(),
                }
                return self.deliver_held(target.slot);
            }
            Way::Barrier(_) | Way::Passed(_) | Way::FansOut(_) => {}
        }
        self.read_on(target.slot);
    }

    pub(super) fn fanned_out(&mut self, target: Target, number: u64) {
        let local = self.sessions.get_mut(target.slot as usize);
        let Some(local) = local.filter(|local| local.generation == target.generation) else { return };
        let Some(persistent) = &mut local.persistent else { return };
        if persistent.waits_for_fanouts(number) {
            persistent.go_live();
            self.deliver_held(target.slot);
        }
    }

    /// Reads the next page of a session, if it is catching up and takes more. A session that has read to the end
    /// reads again when its barrier is passed.
    pub(super) fn read_on(&mut self, session: u32) {
        let target = self.target_of(session);
        let local = &mut self.sessions[session as usize];
        let (waiting, bytes) = (local.session.waiting(), local.session.waiting_bytes());
        let is_short = local.session.lacks_memory(0, local.broker.queues());
        let waits = local.waits_for_subscribe(&self.work);
        let Some(persistent) = &mut local.persistent else { return };
        let Feed::Reading(reading) = &persistent.feed else { return };
        let is_read = match reading.way {
            Way::FansOut(_) => true,
            Way::Barrier(_) | Way::Follows => reading.at_end,
            Way::Far | Way::Passed(_) => false,
        };
        let has_enough = waiting > WAITING_LOW || bytes >= limits::WAITING_BYTES_MAX;
        if reading.asked || is_read || waits || has_enough || is_short || persistent.no_room_for > 0 {
            return;
        }
        let (sources, version) = (persistent.sources(), persistent.page_sources.version);
        let Feed::Reading(reading) = &mut persistent.feed else { return };
        reading.asked = true;
        let asker = Arc::downgrade(reading.asker.get_or_insert_default());
        let reader = PageReader::Session(target, version, asker);
        self.work.spend(work::PAGE_REQUEST);
        let (cursor, cuts, broker) = (reading.through, reading.cuts, local.broker.clone());
        let read = StreamRead { core: self.index, broker, sources, cursor, cuts, reader };
        if let Some(store) = &self.process.store {
            store.read(read);
        }
    }

    /// A session that follows may have been passed over by notices of messages while the store did not know its
    /// subscription, so its streams may have grown.
    pub(super) fn read_passed_over(&mut self, session: u32) {
        if let Some(local) = self.sessions.get_mut(session as usize)
            && let Some(persistent) = &mut local.persistent
            && persistent.follows()
        {
            persistent.grow();
        }
        self.read_on(session);
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

    fn deliver_all_held(&mut self, session: u32, held: impl IntoIterator<Item = HeldMessage>) {
        for held in held {
            self.work.spend(work::SINGLE_COPY);
            if let Some(new) = &self.sessions[session as usize].new_subscriptions {
                let has = new.has(&held.message, self.now);
                self.work.spend((new.take_compared() / work::COMPARED_LEVELS) as u64);
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

/// A subscription for the router; `persistent`: the store has it.
pub(super) fn routed(
    target: Target,
    subscription: &ClientSubscription,
    persistent: bool,
) -> millrace_router::Subscription {
    let SubscribeOptions { qos, no_local, retain_as_published, .. } = subscription.options;
    let identifier = subscription.identifier;
    millrace_router::Subscription { target, qos, no_local, retain_as_published, persistent, identifier }
}

fn restored(
    client: &Arc<str>,
    in_flight: Vec<(PacketId, InFlight)>,
    received: Vec<PacketId>,
    subscriptions: &[StoredSubscription],
) -> Session {
    let mut session = Session::restored(client.clone(), in_flight, received);
    for stored in subscriptions {
        if let Ok(filter) = std::str::from_utf8(&stored.filter) {
            session.subscribe(filter, subscription_of(stored.options));
        }
    }
    session
}

/// Messages of a page that the session has not acknowledged, as its subscriptions want them. `publisher` is the session's own
/// number, `read` has the subscriptions of the page's sources, and those of the numbers behind them are in `unstored`.
fn unacknowledged<'p>(
    page: &'p StoredPage,
    read: &'p [(FilterSource, ClientSubscription)],
    unstored: &'p UnstoredFilters,
    acknowledged: &'p Positions,
    publisher: u64,
) -> impl Iterator<Item = OutboxEntry> + 'p {
    page.entries.iter().filter_map(move |(message, from, sources)| {
        if message.position().is_none_or(|position| acknowledged.contains(Position(position))) {
            return None;
        }
        let subscriptions = sources.iter().filter_map(|source| match source.checked_sub(read.len()) {
            None => Some(&read[*source].1),
            Some(number) => unstored.get(number),
        });
        between::entry(message, *from == publisher, subscriptions)
    })
}

pub(super) fn position_of(in_flight: &InFlight) -> Option<Position> {
    match in_flight {
        InFlight::Published(entry) | InFlight::Unsent(entry) => entry.message.position().map(Position),
        InFlight::Released(position) => position.map(Position),
    }
}

#[cfg(test)]
mod tests;
