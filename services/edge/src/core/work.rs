//! The work budget of a turn.
//!
//! Work is counted, not timed, so that a test can assert it: a unit is about a tenth of a microsecond. A connection
//! that has used its share continues in a later turn. Brokers take turns, so a client waits for one share of every
//! other broker, whatever those brokers' clients send.

mod removal;
mod strangers;
mod units;

use std::collections::{HashMap, HashSet, VecDeque};

use millrace_mqtt::topic;
use millrace_router::{Receiver, Target};

pub(super) use self::removal::FilterRemoval;
pub(super) use self::units::*;
use super::changes::FilterChanges;
use super::clients::Scans;
use super::connection::{NONE, Paused};
use super::fanout::Fanouts;
use super::replay::{ReplaySlot, Replays};
use super::resume::Resumption;
use super::revoke::Revocation;
use super::slices::Slices;
use super::subscribe::{StoredAnswer, SubscribeInProgress, UnsubscribeInProgress};
use super::timers::DueTimer;
use super::{ConnectionState, Core};
use crate::connection_id::ConnectionId;
use crate::fair_queue::FairQueue;
use crate::incomplete_packets::Charge;

/// How many of the first of these filters are added or removed in one turn, and the work of that.
pub(super) fn filters_at_once<'f>(filters: impl Iterator<Item = &'f str>) -> (usize, u64) {
    let (mut count, mut work) = (0, 0);
    for filter in filters {
        if work >= FILTERS_WORK_MAX {
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

/// Decrypting the TLS records with so many bytes besides plaintext.
pub(super) fn records(overhead: usize) -> u64 {
    RECORD * (overhead / RECORD_OVERHEAD) as u64
}

pub(super) fn single_copy(receiver: &Receiver) -> u64 {
    SINGLE_COPY + receiver.identifiers.len() as u64
}

pub(super) enum PacketTask {
    Subscribe(Box<SubscribeInProgress>),
    Unsubscribe(Box<UnsubscribeInProgress>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitingClient {
    ToRead(u32),
    /// A connection without a session: the next one of [`CoreWork::strangers`].
    Stranger,
    ToResume(ConnectionId),
}

#[derive(Default)]
pub(super) struct CoreWork {
    spent: u64,
    /// The part of `spent` by which sends took longer than their bytes count.
    overtime: u64,
    /// The value of `spent` at which the current connection has used its share.
    share_ends: u64,
    waiting: FairQueue<WaitingClient>,
    /// Connections without a session that wait, by address: together they take turns with brokers.
    strangers: FairQueue<WaitingClient>,
    /// Connections with output, when there are many.
    pub(super) unwritten: FairQueue<u32>,
    pub(super) tasks: HashMap<u32, VecDeque<PacketTask>, foldhash::fast::FixedState>,
    /// Clients with a queued SUBSCRIBE or UNSUBSCRIBE that pause after their waiting work if the store is full.
    pub(super) asks_for_room: HashSet<u32, foldhash::fast::FixedState>,
    pub(super) revocations: HashMap<u32, Revocation, foldhash::fast::FixedState>,
    /// How many of their filters sessions that come online have looked at.
    pub(super) coming_online: HashMap<u32, usize, foldhash::fast::FixedState>,
    /// The same of sessions that go offline, and those sessions.
    pub(super) going_offline: HashMap<u32, (Target, usize), foldhash::fast::FixedState>,
    pub(super) leaving: FairQueue<u32>,
    pub(super) resumptions: HashMap<u32, Box<Resumption>, foldhash::fast::FixedState>,
    /// The store's answers to SUBSCRIBE packets, in their order.
    pub(super) stored_answers: HashMap<u32, VecDeque<StoredAnswer>, foldhash::fast::FixedState>,
    removals: FairQueue<FilterRemoval>,
}

impl CoreWork {
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.unwritten.is_empty() || self.has_removals()
    }

    pub(super) fn has_removals(&self) -> bool {
        !(self.removals.is_empty() && self.leaving.is_empty())
    }

    pub(super) fn removes_of(&self, broker: u64) -> bool {
        self.removals.has(broker)
    }

    #[inline]
    pub(super) fn spend(&mut self, units: u64) {
        self.spent += units;
    }

    pub(super) fn begin_turn(&mut self) {
        (self.spent, self.overtime) = (0, 0);
        self.begin_share();
    }

    pub(super) fn begin_share(&mut self) {
        self.share_ends = self.spent + SHARE;
    }

    pub(super) fn spend_sent(&mut self, bytes: usize, took_us: u64) {
        let counted = SEND + (bytes / WRITTEN_BYTES) as u64;
        self.spent += counted;
        self.spend_overtime(took_us, counted);
    }

    pub(super) fn spend_overtime(&mut self, took_us: u64, counted: u64) {
        let over = (took_us * UNITS_PER_US).saturating_sub(counted);
        self.spent += over;
        self.overtime += over;
    }

    pub(super) fn spent(&self) -> u64 {
        self.spent
    }

    /// The work of this turn without overtime, so that the speed of the machine does not count.
    pub(super) fn counted(&self) -> u64 {
        self.spent - self.overtime
    }

    #[inline]
    pub(super) fn is_share_used(&self) -> bool {
        self.spent >= self.share_ends
    }
}

/// Work that this turn has no budget for and later turns continue.
#[derive(Default)]
pub(super) struct Unfinished {
    pub(super) fanouts: Fanouts,
    /// Committed messages for persistent sessions, where several pods share the store.
    pub(super) commits: Fanouts,
    pub(super) replays: Replays,
    pub(super) scans: Scans,
    pub(super) slices: Slices,
    pub(super) due: VecDeque<DueTimer>,
    pub(super) filter_changes: FilterChanges,
    /// Incomplete packets that must grow: the connection's generation by its slot, and the bytes held so far.
    pub(super) packets: HashMap<u32, (u32, usize)>,
    /// Charges of incomplete TLS records, by the connection's slot.
    pub(super) records: HashMap<u32, Charge>,
}

impl Unfinished {
    pub(super) fn has_fanouts(&self) -> bool {
        !(self.fanouts.is_empty() && self.commits.is_empty())
    }
}

/// Takes the first piece of a connection, which is forgotten with its last one.
pub(super) fn pop_of<T>(
    queues: &mut HashMap<u32, VecDeque<T>, foldhash::fast::FixedState>,
    slot: u32,
) -> Option<T> {
    let queue = queues.get_mut(&slot)?;
    let piece = queue.pop_front();
    if queue.is_empty() {
        queues.remove(&slot);
    }
    piece
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
            self.wait_to_read(slot);
        }
        while self.work.spent < TURN
            && let Some((_, waiting)) = self.work.waiting.pop()
        {
            self.continue_with(waiting);
        }
    }

    fn continue_with(&mut self, waiting: WaitingClient) {
        match waiting {
            WaitingClient::ToRead(slot) => self.read_listed(slot),
            WaitingClient::Stranger => self.continue_with_stranger(),
            WaitingClient::ToResume(id) => {
                let began = self.begin_work(|core| core.broker_of(id.slot));
                self.run_tasks(id);
                self.end_work(began);
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
        self.work.waiting.push(broker, WaitingClient::ToResume(id));
    }

    /// Processes a packet over several turns. The server does not read from the connection until then.
    pub(super) fn queue_task(&mut self, slot: u32, task: PacketTask) {
        self.work.tasks.entry(slot).or_default().push_back(task);
        if self.connections[slot as usize].paused != Paused::ForWork {
            self.resume_in_turn(slot);
        }
    }

    /// Continues the paused work of a connection in this order: its session comes back, the store answers, then packets of the
    /// client. Revocations come last, because the others change subscriptions.
    fn run_tasks(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection_of(id) else { return };
        if connection.state != ConnectionState::Open {
            return;
        }
        let had_session = connection.session != NONE;
        self.work.begin_share();
        let has_answers = self.work.stored_answers.contains_key(&id.slot);
        if !self.resume_more(id.slot) || !self.answer_more(id.slot) || !self.come_online_more(id.slot) {
            return self.resume_in_turn(id.slot);
        }
        if had_session && self.connection_of(id).is_none_or(|connection| connection.session == NONE) {
            return;
        }
        let has_tasks = self.work.tasks.contains_key(&id.slot);
        if !has_tasks && !self.revoke_more(id.slot) {
            return self.resume_in_turn(id.slot);
        }
        while let Some(mut task) = pop_of(&mut self.work.tasks, id.slot) {
            let work = task.read_more();
            self.spend(work);
            let session = self.connections[id.slot as usize].session;
            let broker = self.sessions[session as usize].broker.clone();
            let is_over = work > 0 && task.charge(&self.process.memory.input, &broker).is_err();
            if is_over || !task.is_read() {
                self.work.tasks.entry(id.slot).or_default().push_front(task);
                return if is_over { self.refuse_to_hold(id.slot) } else { self.resume_in_turn(id.slot) };
            }
            let work = task.plan();
            self.spend(work);
            if let Some(task) = self.edit_filters(&broker, vec![(id, task)]) {
                self.work.tasks.entry(id.slot).or_default().push_front(task);
            }
            if self.connection_of(id).is_none_or(|connection| connection.session == NONE) {
                return;
            }
            if self.is_share_used() && self.work.tasks.contains_key(&id.slot) {
                let broker = self.broker_of(id.slot);
                return self.work.waiting.push(broker, WaitingClient::ToResume(id));
            }
        }
        if self.work.revocations.contains_key(&id.slot) || !self.join_replays(id.slot) {
            return self.resume_in_turn(id.slot);
        }
        self.resume_after_work(id, has_tasks || has_answers);
        self.flush_overfull();
    }

    pub(super) fn abandon_tasks(&mut self, slot: u32, session: u32) {
        self.work.revocations.remove(&slot);
        self.work.stored_answers.remove(&slot);
        self.work.coming_online.remove(&slot);
        self.work.asks_for_room.remove(&slot);
        self.abandon_resumption(slot, session);
        for task in self.work.tasks.remove(&slot).unwrap_or_default() {
            self.work.spend((task.filters() / FREED_FILTERS) as u64);
            let local = self.sessions.get(session as usize);
            if let PacketTask::Subscribe(subscribe) = task
                && subscribe.holds()
                && let Some(local) = local.filter(|local| local.persistent.is_none())
            {
                // Closes the session's reserved place for retained messages, because live messages wait behind it. The
                // session keeps the subscriptions made so far, so it gets their retained messages.
                let replays = ReplaySlot::new(subscribe.into_replays(), &local.broker);
                self.replay_later(session, replays, true);
            }
        }
    }
}
