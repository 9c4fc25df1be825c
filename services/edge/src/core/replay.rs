//! Retained messages for new subscriptions.
//!
//! A subscription may match every retained message of its broker. They are looked up as fast as the client takes
//! them, a slice per turn, in the order of the SUBSCRIBE packets. The session reserves a place for them in its queue
//! (`Session::begin_replay`); live messages wait behind it.

mod lookup;

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};

use millrace_router::Step;
use millrace_session::{Delivered, DropReason, Entry, Message, Seconds, Session};

use super::connection::NONE;
use super::deliver::count;
use super::fair::FairQueue;
use super::{Core, parts, work};
use crate::broker::Broker;
use crate::jobs::replay::Replay;
use crate::metrics::BrokerCounters;
pub(super) use lookup::{Lookup, Topics};
use lookup::{Tree, unsent};

const NODES_AT_ONCE: usize = 256;

/// The most work that a SUBSCRIBE's replay does at once, for a broker with `retained` retained messages.
pub(super) fn work_at_once(retained: usize) -> u64 {
    work::NODE * retained.min(NODES_AT_ONCE) as u64
}
/// SUBSCRIBE packets of one session whose retained messages wait at places of their own. Look-ups of later packets wait at the
/// last place, one for each filter.
const PLACES_MAX: usize = 16;
/// Nodes visited at most for a session whose connection ended before it had all its retained messages.
const NODES_AT_END: usize = 10_000;

pub(super) type Lookups = VecDeque<Lookup>;

/// The look-ups of one session, by SUBSCRIBE packet, as its queue has places for them.
struct OfSession {
    generation: u32,
    is_listed: bool,
    /// All look-ups but the first one have let go of their snapshots, and new ones do at once.
    has_released: bool,
    places: VecDeque<Lookups>,
    /// The look-ups that wait at the last place although it belongs to an earlier SUBSCRIBE.
    late: HashMap<LookupKey, usize>,
}

/// The filter of a look-up, and whether it is of the broker's own topics.
type LookupKey = (Box<str>, bool);

impl OfSession {
    fn new(generation: u32) -> Self {
        Self {
            generation,
            is_listed: false,
            has_released: false,
            places: VecDeque::new(),
            late: HashMap::new(),
        }
    }

    /// Adds a look-up to the last place. One of the same filter that waits there is replaced, so a client that subscribes again
    /// and again without reading makes no more look-ups than it has filters.
    fn push_late(&mut self, filter: Box<str>, lookup: Lookup, counters: &BrokerCounters) {
        let Some(last) = self.places.back_mut() else { return };
        match self.late.entry((filter, lookup.tree == Tree::Sys)) {
            MapEntry::Occupied(at) => {
                count(counters, Delivered::Dropped(DropReason::QueueFull));
                last[*at.get()] = lookup;
            }
            MapEntry::Vacant(new) => {
                new.insert(last.len());
                last.push_back(lookup);
            }
        }
    }

    /// Queues what the look-ups find, as long as the session takes messages. `pump` sends them, and returns whether the
    /// connection's buffer has enough (`is_enough`: it has already). Returns the number of visited nodes.
    fn feed(
        &mut self,
        session: &mut Session,
        broker: &Broker,
        counters: &BrokerCounters,
        now: Seconds,
        mut is_enough: bool,
        mut pump: impl FnMut(&mut Session) -> bool,
    ) -> usize {
        let mut nodes = 0;
        while nodes < NODES_AT_ONCE && session.wants_replay() && !is_enough {
            nodes += 1;
            let Some(lookups) = self.places.front_mut() else { break };
            let Some(lookup) = lookups.front_mut() else {
                self.places.pop_front();
                session.end_replay();
                is_enough = pump(session);
                continue;
            };
            match lookup.step(broker) {
                Step::Value(message) if !message.is_expired(now) => {
                    session.replay(lookup.delivery(&message));
                    count(counters, Delivered::Queued);
                    is_enough = pump(session);
                }
                Step::Value(_) | Step::Nothing => {}
                Step::Done => drop(lookups.pop_front()),
            }
        }
        nodes
    }

    fn release(&mut self) {
        let most = if self.has_released { 1 } else { usize::MAX };
        self.places.iter_mut().flatten().take(most).for_each(Lookup::release);
        self.has_released = true;
    }
}

#[derive(Default)]
pub(super) struct Replays {
    of: HashMap<u32, OfSession, foldhash::fast::FixedState>,
    ready: FairQueue<u32>,
}

impl Replays {
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn forget(&mut self, session: u32) {
        self.of.remove(&session);
    }

    /// Whether the next look-ups of a session get no place of their own.
    fn is_full(&self, session: u32, generation: u32) -> bool {
        let own = self.of.get(&session).filter(|own| own.generation == generation);
        own.is_some_and(|own| own.places.len() >= PLACES_MAX)
    }

    fn push_late(
        &mut self,
        session: u32,
        lookups: impl Iterator<Item = (Box<str>, Lookup)>,
        counters: &BrokerCounters,
    ) {
        let Some(own) = self.of.get_mut(&session) else { return };
        for (filter, mut lookup) in lookups {
            if own.has_released {
                lookup.release();
            }
            own.push_late(filter, lookup, counters);
        }
    }

    fn has(&self, session: u32, generation: u32) -> bool {
        self.of.get(&session).is_some_and(|own| own.generation == generation)
    }
}

impl Core {
    /// Reserves a place for the retained messages of a SUBSCRIBE that takes several turns.
    pub(super) fn hold_for_replay(&mut self, session: u32) {
        let local = &mut self.sessions[session as usize];
        match &mut local.persistent {
            Some(persistent) => persistent.subscribing += 1,
            None => local.session.begin_replay(),
        }
    }

    /// Sends the retained messages of new subscriptions. `holds`: the session has reserved a place for them.
    //= [MQTT-3.3.1-9] v5
    pub(super) fn replay(&mut self, slot: u32, replays: &[Replay], holds: bool) {
        let session = self.connections[slot as usize].session;
        let local = &self.sessions[session as usize];
        // The filter may have been unsubscribed while the store read its retained messages.
        let stands = |replay: &&Replay| local.session.subscription(&replay.filter).is_some();
        let stand = replays.iter().filter(stands);
        if !holds && self.unfinished.replays.is_full(session, local.generation) {
            let lookups = stand.flat_map(|replay| {
                Lookup::all(replay, &local.broker).map(|lookup| (replay.filter.clone(), lookup))
            });
            let counters = &local.broker.counters[usize::from(self.index)];
            return self.unfinished.replays.push_late(session, lookups, counters);
        }
        let mut lookups: Lookups = stand.flat_map(|replay| Lookup::all(replay, &local.broker)).collect();
        let is_first = !self.unfinished.replays.has(session, local.generation);
        if !holds && is_first {
            self.replay_at_once(slot, &mut lookups);
        }
        if holds || !lookups.is_empty() {
            self.replay_later(session, lookups, holds);
        }
    }

    /// Sends a few retained messages now. In most brokers these are all.
    fn replay_at_once(&mut self, slot: u32, lookups: &mut Lookups) {
        let broker = self.sessions[self.connections[slot as usize].session as usize].broker.clone();
        for _ in 0..NODES_AT_ONCE {
            let Some(lookup) = lookups.front_mut() else { return };
            self.spend(work::NODE);
            match lookup.step(&broker) {
                Step::Value(message) if !message.is_expired(self.now) => {
                    let (protocol, mut out, session) = parts!(self, slot);
                    let local = &mut self.sessions[session as usize];
                    if local.session.waiting() > 0 || millrace_session::Out::is_enough(&out) {
                        lookup.found = Some(message);
                        return;
                    }
                    let delivery = lookup.delivery(&message);
                    let settings = &self.process.settings;
                    let outcome =
                        local.session.deliver(delivery, Some(protocol), settings, None, self.now, &mut out);
                    count(&local.broker.counters[usize::from(self.index)], outcome);
                    if outcome == Delivered::Sent {
                        local.broker.meters[usize::from(self.index)].delivered(&message);
                    }
                }
                Step::Value(_) | Step::Nothing => {}
                Step::Done => drop(lookups.pop_front()),
            }
        }
    }

    pub(super) fn replay_later(&mut self, session: u32, mut lookups: Lookups, holds: bool) {
        let local = &mut self.sessions[session as usize];
        let generation = local.generation;
        let own = self
            .unfinished
            .replays
            .of
            .entry(session)
            .and_modify(|own| {
                if own.generation != generation {
                    *own = OfSession::new(generation);
                }
            })
            .or_insert_with(|| OfSession::new(generation));
        if !holds {
            local.session.begin_replay();
        }
        if own.has_released {
            lookups.iter_mut().for_each(Lookup::release);
        }
        own.places.push_back(lookups);
        own.late.clear();
        self.list_replay(session);
    }

    pub(super) fn list_replay(&mut self, session: u32) {
        let Some(own) = self.unfinished.replays.of.get_mut(&session) else { return };
        if !own.is_listed {
            own.is_listed = true;
            self.unfinished.replays.ready.push(self.sessions[session as usize].broker.id, session);
        }
    }

    /// Sends retained messages to sessions that can take some, within this turn's budget.
    pub(super) fn send_retained(&mut self) {
        let end = self.work.spent().max(work::TURN) + work::TURN / 2;
        while self.work.spent() < end
            && let Some((_, session)) = self.unfinished.replays.ready.pop()
        {
            self.replay_some(session);
            self.flush_overfull();
        }
    }

    fn replay_some(&mut self, session: u32) {
        let Some(own) = self.unfinished.replays.of.get_mut(&session) else { return };
        own.is_listed = false;
        let Some(local) = self.sessions.get_mut(session as usize) else { return };
        if local.generation != own.generation {
            self.unfinished.replays.of.remove(&session);
            return;
        }
        let slot = local.connection;
        if slot == NONE {
            return;
        }
        let (protocol, mut out, _) = parts!(self, slot);
        let counters = &local.broker.counters[usize::from(self.index)];
        let meter = &local.broker.meters[usize::from(self.index)];
        let tapped = self.tracing.tapped.get(&slot);
        let clock = &self.process.clock;
        let mut sent = (0, 0);
        let mut done = |outcome, message: &Message| match outcome {
            Delivered::Dropped(reason) => {
                count(counters, outcome);
                if let Some(tapped) = tapped {
                    tapped.dropped(message.topic(), reason, 1, clock.unix_now_ms());
                }
            }
            _ => {
                meter.delivered(message);
                sent = (sent.0 + 1, sent.1 + message.size());
            }
        };
        let (settings, now) = (&self.process.settings, self.now);
        let is_enough = millrace_session::Out::is_enough(&out);
        let pump = |session: &mut Session| {
            session.pump(protocol, settings, now, &mut out, &mut done);
            millrace_session::Out::is_enough(&out)
        };
        let nodes = own.feed(&mut local.session, &local.broker, counters, now, is_enough, pump);
        let is_over = own.places.is_empty();
        let wants_more = local.session.wants_replay() && !millrace_session::Out::is_enough(&out);
        if !wants_more {
            // The client decides when the next step comes.
            own.release();
        }
        if out.slot.as_ref().is_some_and(|outbound| outbound.len() >= super::deliver::FLUSH_BYTES) {
            self.output.overfull.push(slot);
        }
        self.connections[slot as usize].count_out(sent.0, sent.1);
        self.spend(nodes as u64 * (work::NODE + work::SINGLE_COPY));
        if is_over {
            self.unfinished.replays.of.remove(&session);
            // Live messages waited behind the retained ones, QoS 2 messages among them.
            return self.pump(slot);
        }
        if self.sessions[session as usize].session.has_reserved() {
            self.reserve(session);
        }
        if wants_more {
            self.list_replay(session);
        }
    }

    /// The QoS 1 and 2 retained messages that a session lacks when its connection ends, and whether these are all: at most
    /// `NODES_AT_END` nodes are visited for them.
    pub(super) fn take_unsent_retained(&mut self, session: u32) -> (Vec<Entry>, bool) {
        let generation = self.sessions[session as usize].generation;
        let broker = self.sessions[session as usize].broker.clone();
        let Some(own) =
            self.unfinished.replays.of.remove(&session).filter(|own| own.generation == generation)
        else {
            return (Vec::new(), true);
        };
        let now = self.now;
        let mut lookups = own.places.into_iter().flatten();
        let mut lookup = lookups.next();
        let mut entries = Vec::new();
        for _ in 0..NODES_AT_END {
            let Some(current) = &mut lookup else { break };
            match current.step(&broker) {
                Step::Value(message) => entries.extend(unsent(current, message, now)),
                Step::Nothing => {}
                Step::Done => lookup = lookups.next(),
            }
        }
        (entries, lookup.is_none())
    }
}
