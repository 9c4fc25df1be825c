//! The work budget of a turn.
//!
//! Work is counted, not timed, so that a test can assert it: a unit is about a tenth of a microsecond. A connection
//! that has used its share continues in a later turn. Brokers take turns, so a client waits for one share of every
//! other broker, whatever those brokers' clients send.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use millrace_mqtt::topic::{self, Filter};
use millrace_router::Target;
use millrace_session::Entry;

use super::changes::FilterChanges;
use super::clients::Scans;
use super::connection::{NONE, Paused};
use super::fair::FairQueue;
use super::fanout::Fanouts;
use super::replay::Replays;
use super::revoke::Revocation;
use super::slices::Slices;
use super::subscribe::{SubscribeInProgress, UnsubscribeInProgress};
use super::timers::Due;
use super::{Core, State};
use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::routes::NODE_WORK;

/// Work that reading may cause in one turn, about 1 ms. Others wait for the rest of a turn and for the next one, whose end
/// sends their messages.
pub(super) const TURN: u64 = 10_000;
/// Work that one connection may cause before others are read.
pub(super) const SHARE: u64 = 5_000;
/// Work that delivering one message or run may cause before other work goes on.
pub(super) const SLICE: u64 = 5_000;
/// Adding or removing a subscription, with its check, besides the levels of its filter.
pub(super) const FILTER: u64 = 20;
/// Finding, copying or making one level of that filter in the trie.
pub(super) const LEVEL: u64 = 3;
/// Work of the filters that one packet adds or removes in one turn.
pub(super) const FILTERS: u64 = 10_000;
/// Decoding a packet, or a WebSocket control frame, and its fixed cost.
pub(super) const PACKET: u64 = 4;
pub(super) const SEEN: u64 = 1;
/// Appending a message to one receiver's outbound buffer.
pub(super) const COPY: u64 = 2;
/// The same, encoded for this receiver alone.
pub(super) const SINGLE_COPY: u64 = 5;
/// Visiting a node in the tree of retained messages or of filters.
pub(super) const NODE: u64 = NODE_WORK;
pub(super) const COPIED_BYTES: usize = 512;
/// Bytes that are checked for one unit: properties, topic filters, and headers of WebSocket frames, each as short as it can be.
pub(super) const CHECKED_BYTES: usize = 16;
/// Levels of filters that are compared for one unit, to find the one that matches a topic.
pub(super) const COMPARED_LEVELS: usize = 4;
/// Beginning a look-up of retained messages, or ending one.
pub(super) const LOOKUP: u64 = 4;
/// Levels of rules that are compared with a topic for one unit.
pub(super) const COMPARED_RULE_LEVELS: usize = 16;
pub(super) const SYSTEM_CALL: u64 = 20;
/// Writing to a socket. The kernel takes the packet to the network card, or to a receiver on the same machine, within the call.
pub(super) const SEND: u64 = 60;
/// Bytes written to a socket for one unit, besides [`SEND`]. A peer with a small window takes a megabyte in 1,000 segments.
pub(super) const WRITTEN_BYTES: usize = 64;
/// Setting or removing a level of a retained message's topic.
pub(super) const RETAINED_LEVEL: u64 = 6;
pub(super) const ACCEPT: u64 = 100;
pub(super) const HANDSHAKE: u64 = 3_000;
pub(super) const END: u64 = 100;
/// Attaching a stored session to this loop, besides its filters and messages.
pub(super) const ATTACH: u64 = 200;
/// Checking a subscription again, besides comparing it with each rule.
pub(super) const RULES: u64 = 3;
/// Subscriptions of a session that are passed over for one unit, to find the next one.
pub(super) const PASSED_FILTERS: usize = 50;
/// Collecting the progress of a persistent session, besides one unit for each unacknowledged message.
pub(super) const CHECKPOINT: u64 = 30;
/// Unacknowledged messages that are looked at for one unit, to store new packet ids.
pub(super) const OPEN_MESSAGES: usize = 4;
/// Up to this many ready sockets are read or written in their order, without a queue in which brokers take turns.
pub(super) const FEW: usize = 64;

/// How many of the first of these filters are added or removed in one turn, and the work of that.
pub(super) fn filters_at_once<'f>(filters: impl Iterator<Item = &'f str>) -> (usize, u64) {
    let (mut count, mut work) = (0, 0);
    for filter in filters {
        if work >= FILTERS {
            break;
        }
        count += 1;
        work += filter_work(filter.as_bytes());
    }
    (count, work)
}

pub(super) fn filter_work(filter: &[u8]) -> u64 {
    FILTER + LEVEL * topic::levels(filter) as u64
}

pub(super) enum Task {
    Subscribe(Box<SubscribeInProgress>),
    Unsubscribe(Box<UnsubscribeInProgress>),
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    ToRead(u32),
    ToResume(ConnectionId),
}

#[derive(Default)]
pub(super) struct Work {
    spent: u64,
    /// The value of `spent` at which the current connection has used its share.
    share_ends: u64,
    waiting: FairQueue<Waiting>,
    pub(super) unwritten: FairQueue<u32>,
    tasks: HashMap<u32, VecDeque<Task>, foldhash::fast::FixedState>,
    pub(super) revocations: HashMap<u32, Revocation, foldhash::fast::FixedState>,
    removals: VecDeque<Removal>,
}

pub(super) struct Removal {
    pub(super) broker: Arc<Broker>,
    pub(super) target: Target,
    pub(super) filters: Vec<Box<str>>,
    pub(super) left: VecDeque<Entry>,
}

impl Work {
    /// Whether work waits that needs no event to go on.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.unwritten.is_empty() || !self.removals.is_empty()
    }

    #[inline]
    pub(super) fn spend(&mut self, units: u64) {
        self.spent += units;
    }

    pub(super) fn begin_turn(&mut self) {
        self.spent = 0;
        self.begin_share();
    }

    pub(super) fn begin_share(&mut self) {
        self.share_ends = self.spent + SHARE;
    }

    pub(super) fn spent(&self) -> u64 {
        self.spent
    }

    #[inline]
    pub(super) fn is_share_used(&self) -> bool {
        self.spent >= self.share_ends
    }
}

/// Work that this turn has no budget for. Later turns continue it.
#[derive(Default)]
pub(super) struct Unfinished {
    pub(super) fanouts: Fanouts,
    /// Committed messages for persistent sessions, where several pods share the store.
    pub(super) commits: Fanouts,
    pub(super) replays: Replays,
    pub(super) scans: Scans,
    pub(super) slices: Slices,
    pub(super) due: VecDeque<Due>,
    pub(super) filter_changes: FilterChanges,
    /// Incomplete packets that must grow: the connection's generation by its slot, and the bytes held so far.
    pub(super) packets: HashMap<u32, (u32, usize)>,
}

impl Unfinished {
    pub(super) fn has_fanouts(&self) -> bool {
        !(self.fanouts.is_empty() && self.commits.is_empty())
    }
}

impl Core {
    pub(super) fn is_done(&self) -> bool {
        self.connections.is_empty() && self.store_jobs.queue.is_empty() && self.work.removals.is_empty()
    }

    #[inline]
    pub(super) fn spend(&mut self, units: u64) {
        self.work.spend(units);
    }

    #[inline]
    pub(super) fn spend_bytes(&mut self, bytes: usize) {
        self.work.spent += (bytes / COPIED_BYTES) as u64;
    }

    #[inline]
    pub(super) fn spend_checked(&mut self, bytes: usize) {
        self.work.spent += (bytes / CHECKED_BYTES) as u64;
    }

    #[inline]
    pub(super) fn is_share_used(&self) -> bool {
        self.work.is_share_used()
    }

    pub(super) fn broker_of(&self, slot: u32) -> u64 {
        let session = self.connections.get(slot as usize).map_or(NONE, |connection| connection.session);
        self.sessions.get(session as usize).map_or(0, |local| local.broker.id)
    }

    /// Reads sockets that have input, within this turn's budget.
    pub(super) fn read_ready(&mut self) {
        let ready = std::mem::take(&mut self.ready);
        let mut ready = ready.into_iter();
        if self.work.waiting.is_empty() && ready.len() <= FEW {
            for slot in ready.by_ref() {
                self.read_listed(slot);
                if self.work.spent >= TURN {
                    break;
                }
            }
        }
        for slot in ready {
            let broker = self.broker_of(slot);
            self.work.waiting.push(broker, Waiting::ToRead(slot));
        }
        while self.work.spent < TURN
            && let Some((_, waiting)) = self.work.waiting.pop()
        {
            match waiting {
                Waiting::ToRead(slot) => self.read_listed(slot),
                Waiting::ToResume(id) => {
                    let began = self.begin_work(|core| core.broker_of(id.slot));
                    self.run_tasks(id);
                    self.end_work(began);
                }
            }
        }
    }

    fn read_listed(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.listed = false;
        if connection.readable {
            self.work.begin_share();
            let began = self.begin_work(|core| core.broker_of(slot));
            self.read(slot);
            self.flush_overfull();
            self.end_work(began);
        }
    }

    pub(super) fn pause_for_work(&mut self, slot: u32) {
        if self.connections[slot as usize].paused == Paused::No {
            self.resume_in_turn(slot);
        }
    }

    pub(super) fn resume_in_turn(&mut self, slot: u32) {
        let (id, broker) = (self.id_of(slot), self.broker_of(slot));
        self.connections[slot as usize].paused = Paused::ForWork;
        self.work.waiting.push(broker, Waiting::ToResume(id));
    }

    /// Processes a packet over several turns. The server does not read from the connection until then.
    pub(super) fn queue_task(&mut self, slot: u32, task: Task) {
        self.work.tasks.entry(slot).or_default().push_back(task);
        if self.connections[slot as usize].paused != Paused::ForWork {
            self.resume_in_turn(slot);
        }
    }

    fn run_tasks(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection_of(id) else { return };
        if connection.state != State::Open {
            return;
        }
        self.work.begin_share();
        let may_revoke = !self.work.tasks.contains_key(&id.slot);
        if may_revoke && !self.revoke_more(id.slot) {
            return self.resume_in_turn(id.slot);
        }
        while let Some(mut task) = self.next_task(id.slot) {
            let work = task.read_more();
            self.spend(work);
            if !task.is_read() {
                self.work.tasks.entry(id.slot).or_default().push_front(task);
                return self.resume_in_turn(id.slot);
            }
            let work = task.plan();
            self.spend(work);
            let session = self.connections[id.slot as usize].session;
            let broker = self.sessions[session as usize].broker.clone();
            if let Some(task) = self.edit_filters(&broker, vec![(id, task)]) {
                self.work.tasks.entry(id.slot).or_default().push_front(task);
            }
            if self.connection_of(id).is_none_or(|connection| connection.session == NONE) {
                return;
            }
            if self.is_share_used() && self.work.tasks.contains_key(&id.slot) {
                let broker = self.broker_of(id.slot);
                return self.work.waiting.push(broker, Waiting::ToResume(id));
            }
        }
        if self.work.revocations.contains_key(&id.slot) {
            return self.resume_in_turn(id.slot);
        }
        if self.connection_of(id).is_some_and(|connection| connection.paused == Paused::ForWork) {
            self.go_on(id);
        }
        self.flush_overfull();
    }

    pub(super) fn abandon_tasks(&mut self, slot: u32, session: u32) {
        self.work.revocations.remove(&slot);
        for task in self.work.tasks.remove(&slot).unwrap_or_default() {
            let local = self.sessions.get(session as usize);
            if let Task::Subscribe(subscribe) = task
                && subscribe.holds()
                && local.is_some_and(|local| local.persistent.is_none())
            {
                // Closes the session's reserved place for retained messages, because live messages wait behind it.
                self.replay_later(session, VecDeque::new(), true);
            }
        }
    }

    /// Removes the first subscriptions of an ended session from the router, and returns those for later turns, the next one last. They
    /// do no harm: messages to a session that is gone are dropped, and shared subscriptions pick other members.
    pub(super) fn remove_routes(
        &mut self,
        broker: &Arc<Broker>,
        target: Target,
        filters: &[&str],
    ) -> Vec<Box<str>> {
        let (count, work) = filters_at_once(filters.iter().copied());
        let (now, later) = filters.split_at(count);
        self.spend(work);
        self.remove_filters(broker, target, now.iter().copied());
        later.iter().rev().map(|filter| (*filter).into()).collect()
    }

    fn remove_filters<'f>(
        &self,
        broker: &Broker,
        target: Target,
        filters: impl Iterator<Item = &'f str> + Clone,
    ) {
        broker.router.edit(|edit| {
            for filter in filters.clone().filter_map(Filter::parse) {
                edit.unsubscribe(filter, target);
            }
        });
        self.announce_members(broker, filters);
    }

    /// Passes on the messages of an ended session, or leaves it to a later turn.
    pub(super) fn pass_on_left(&mut self, mut removal: Removal) {
        let end = self.work.spent() + SLICE;
        while removal.filters.is_empty()
            && self.work.spent() < end
            && let Some(entry) = removal.left.pop_front()
        {
            self.spend(SINGLE_COPY);
            self.give_back_or_pass_on(&removal.broker, &entry);
        }
        if !(removal.filters.is_empty() && removal.left.is_empty()) {
            self.work.removals.push_back(removal);
        }
    }

    pub(super) fn remove_more_routes(&mut self) {
        let Some(mut removal) = self.work.removals.pop_front() else { return };
        if !removal.filters.is_empty() {
            let (count, work) = filters_at_once(removal.filters.iter().rev().map(|filter| &**filter));
            let now = removal.filters.split_off(removal.filters.len() - count);
            self.spend(work);
            self.remove_filters(&removal.broker, removal.target, now.iter().rev().map(|filter| &**filter));
        }
        self.pass_on_left(removal);
    }

    fn next_task(&mut self, slot: u32) -> Option<Task> {
        let tasks = self.work.tasks.get_mut(&slot)?;
        let task = tasks.pop_front();
        if tasks.is_empty() {
            self.work.tasks.remove(&slot);
        }
        task
    }
}
