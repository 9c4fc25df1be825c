//! Sends retained messages to new subscriptions.
//!
//! A subscription may match every retained message of its broker. So a [`Lookup`] walks the tree of retained messages only as fast
//! as the client receives them, a slice per turn. For each SUBSCRIBE, in their order, the session marks a slot in its queue
//! (`Session::begin_replay`): the retained messages go there, and later live messages stay behind them.

mod late;
mod lookup;
mod of_session;
mod slot;

use std::collections::{HashMap, VecDeque};

use millrace_router::TreeStep;
use millrace_session::{Delivered, Message, OutboxEntry, Session};
use smallvec::SmallVec;

use super::connection::{NONE, Paused};
use super::deliver::{Pumped, count};
use super::{Core, parts, work};
use crate::fair_queue::FairQueue;
use crate::jobs::replay::Replay;
use lookup::unsent;
pub(super) use lookup::{Lookup, Topics};
pub(super) use of_session::SessionReplay;
use slot::Next;
pub(super) use slot::ReplaySlot;

const NODES_AT_ONCE: usize = 64;

/// The most work that a SUBSCRIBE's replay does at once, for a broker with `retained` retained messages.
pub(super) fn work_at_once(retained: usize) -> u64 {
    (work::NODE + work::SINGLE_COPY) * retained.min(NODES_AT_ONCE) as u64
}
/// Nodes visited at most for a session whose connection ended before it had all its retained messages.
const NODES_AT_END: usize = 10_000;

pub(super) type ReplayLookups = VecDeque<Lookup>;

#[derive(Default)]
pub(super) struct Replays {
    of: HashMap<u32, SessionReplay, foldhash::fast::FixedState>,
    ready: FairQueue<u32>,
}

impl Replays {
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn take(&mut self, session: u32) -> SessionReplay {
        self.of.remove(&session).unwrap_or_else(|| SessionReplay::new(0))
    }

    fn full(&mut self, session: u32, generation: u32) -> Option<&mut SessionReplay> {
        self.of.get_mut(&session).filter(|own| own.generation == generation && own.is_full())
    }

    /// Drops a late replay whose subscription has ended.
    pub(super) fn end(&mut self, session: u32, filter: &str) {
        if let Some(own) = self.of.get_mut(&session)
            && let Some(last) = own.slots.back_mut()
        {
            own.late.end(&mut last.replays, filter);
        }
    }

    fn has(&self, session: u32, generation: u32) -> bool {
        self.of.get(&session).is_some_and(|own| own.generation == generation)
    }
}

impl Core {
    /// Marks a slot for the retained messages of a SUBSCRIBE that takes several turns.
    pub(super) fn hold_for_replay(&mut self, session: u32) {
        let local = &mut self.sessions[session as usize];
        match &mut local.persistent {
            Some(persistent) => persistent.subscribing += 1,
            None => local.session.begin_replay(),
        }
    }

    /// Sends the retained messages of new subscriptions. `holds`: the session has marked a slot for them, which is withdrawn if
    /// they have to join the last one.
    //= [MQTT-3.3.1-9] v5
    pub(super) fn replay(&mut self, slot: u32, replays: SmallVec<[Replay; 2]>, holds: bool) {
        let session = self.connections[slot as usize].session;
        let local = &mut self.sessions[session as usize];
        self.work.spend((replays.len() / work::PASSED_FILTERS) as u64);
        if let Some(own) = self.unfinished.replays.full(session, local.generation) {
            if holds {
                local.session.withdraw_replay();
            }
            own.joining.extend(replays);
            let is_waiting = self.connections[slot as usize].paused == Paused::ForWork;
            if !is_waiting && !self.join_replays(slot) {
                self.resume_in_turn(slot);
            }
            return;
        }
        let mut due = ReplaySlot::new(replays, &local.broker);
        let is_first = !self.unfinished.replays.has(session, local.generation);
        if !holds && is_first && !due.is_empty() {
            self.replay_at_once(slot, &mut due);
        }
        if holds || !due.is_empty() {
            self.replay_later(session, due, holds);
        }
    }

    /// Continues with look-ups that join earlier ones; returns false if a later turn must do so, too.
    pub(super) fn join_replays(&mut self, slot: u32) -> bool {
        let session = self.connections[slot as usize].session;
        let Some(own) = self.unfinished.replays.of.get_mut(&session).filter(|own| !own.joining.is_empty())
        else {
            return true;
        };
        let counters = &self.sessions[session as usize].broker.counters[usize::from(self.index)];
        let work = own.join(counters);
        let is_done = own.joining.is_empty();
        self.work.spend(work);
        self.list_replay(session);
        is_done
    }

    /// Sends a few retained messages now. In most brokers these are all.
    fn replay_at_once(&mut self, slot: u32, due: &mut ReplaySlot) {
        let session = self.connections[slot as usize].session;
        let broker = self.sessions[session as usize].broker.clone();
        for _ in 0..NODES_AT_ONCE {
            self.work.spend(work::NODE);
            let lookup = match due.next(&self.sessions[session as usize].session, &broker) {
                Next::Lookup(lookup) => lookup,
                Next::Nothing => continue,
                Next::End => return,
            };
            match lookup.step(&broker) {
                TreeStep::Value(message) if !message.is_expired(self.now_ms) => {
                    self.spend_bytes(message.size());
                    let (protocol, mut out, session) = parts!(self, slot);
                    let local = &mut self.sessions[session as usize];
                    if local.session.waiting() > 0 || millrace_session::Out::is_enough(&out) {
                        lookup.found = Some(message);
                        return;
                    }
                    let delivery = lookup.delivery(&message);
                    let settings = &self.process.settings;
                    let budget = local.broker.queues();
                    let outcome = local.session.deliver(
                        delivery,
                        Some(protocol),
                        settings,
                        budget,
                        self.now_ms,
                        &mut out,
                    );
                    count(&local.broker.counters[usize::from(self.index)], outcome);
                    if outcome == Delivered::Sent {
                        local.broker.meters[usize::from(self.index)].delivered(&message);
                    }
                }
                TreeStep::Value(_) | TreeStep::Nothing => {}
                TreeStep::Done => due.end_front(),
            }
        }
    }

    pub(super) fn replay_later(&mut self, session: u32, mut due: ReplaySlot, holds: bool) {
        let local = &mut self.sessions[session as usize];
        let generation = local.generation;
        let own = self
            .unfinished
            .replays
            .of
            .entry(session)
            .and_modify(|own| {
                if own.generation != generation {
                    *own = SessionReplay::new(generation);
                }
            })
            .or_insert_with(|| SessionReplay::new(generation));
        if !holds {
            local.session.begin_replay();
        }
        due.release();
        own.slots.push_back(due);
        own.late = late::Late::default();
        self.list_replay(session);
    }

    pub(super) fn list_replay(&mut self, session: u32) {
        let Some(own) = self.unfinished.replays.of.get_mut(&session) else { return };
        if !own.is_listed {
            own.is_listed = true;
            self.unfinished.replays.ready.push(self.sessions[session as usize].broker.id, session);
        }
    }

    /// Sends retained messages to sessions that accept some, within this turn's budget.
    pub(super) fn send_retained(&mut self) {
        let spent = self.work.spent();
        let end = spent + (spent / 2).clamp(work::REPLAY, work::TURN / 2);
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
        let tapped = self.tracing.tapped.get(&slot).map(|tapped| &**tapped);
        let mut sent = Pumped::of(&local.broker, self.index, tapped, &self.process.clock);
        let mut done = |outcome, message: &Message| sent.add(outcome, message);
        let (settings, budget, now) = (&self.process.settings, local.broker.queues(), self.now_ms);
        let is_enough = millrace_session::Out::is_enough(&out);
        let mut pumped = 0;
        let pump = |session: &mut Session| {
            pumped = session.pump(protocol, settings, budget, now, &mut out, &mut done);
            millrace_session::Out::is_enough(&out)
        };
        let nodes = own.feed(&mut local.session, &local.broker, counters, now, is_enough, pump);
        let is_over = own.slots.is_empty();
        let wants_more = local.session.wants_replay() && !millrace_session::Out::is_enough(&out);
        own.release();
        if out.slot.as_ref().is_some_and(|outbound| outbound.len() >= super::output::FLUSH_BYTES) {
            self.output.overfull.push(slot);
        }
        let Pumped { messages, bytes, .. } = sent;
        self.connections[slot as usize].count_out(messages, bytes);
        self.spend(nodes as u64 * (work::NODE + work::SINGLE_COPY) + (bytes / work::COPIED_BYTES) as u64);
        if is_over {
            self.unfinished.replays.of.remove(&session);
            return self.pump(slot);
        }
        self.pump_later(slot, pumped);
        if self.sessions[session as usize].session.has_reserved() {
            self.reserve(session);
        }
        if wants_more {
            self.list_replay(session);
        }
    }

    /// The QoS 1 and 2 retained messages that a session lacks when its connection ends, and whether these are all: at most
    /// `NODES_AT_END` nodes are visited for them.
    pub(super) fn take_unsent_retained(&mut self, session: u32) -> (Vec<OutboxEntry>, bool) {
        let generation = self.sessions[session as usize].generation;
        let broker = self.sessions[session as usize].broker.clone();
        let Some(own) =
            self.unfinished.replays.of.remove(&session).filter(|own| own.generation == generation)
        else {
            return (Vec::new(), true);
        };
        let local = &self.sessions[session as usize].session;
        let has_all = own.joining.is_empty();
        let (mut slots, mut entries) = (own.slots, Vec::new());
        for _ in 0..NODES_AT_END {
            let Some(slot) = slots.front_mut() else { break };
            self.work.spend(work::NODE);
            match slot.next(local, &broker) {
                Next::Lookup(lookup) => match lookup.step(&broker) {
                    TreeStep::Value(message) => entries.extend(unsent(lookup, message, self.now_ms)),
                    TreeStep::Nothing => {}
                    TreeStep::Done => slot.end_front(),
                },
                Next::Nothing => {}
                Next::End => drop(slots.pop_front()),
            }
        }
        (entries, has_all && slots.is_empty())
    }
}

#[cfg(test)]
mod tests;
