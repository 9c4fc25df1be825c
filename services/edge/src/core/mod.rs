//! One event loop: its connections, the sessions it owns, and the turn in which everything happens.
//!
//! A turn: wait for sockets or mail; read each ready socket once and process its packets; take the mail of other
//! cores; run what is due; queue mail for other cores; write the gathered output, one system call a socket.

mod accept;
mod admit;
mod answers;
mod attach;
mod authenticate;
mod between;
mod changes;
mod clients;
mod committed;
mod confirmed_filters;
mod congestion;
mod connect_times;
mod connection;
mod deliver;
mod directory;
mod drain;
mod enhanced;
mod entry;
mod fair;
mod fanout;
mod feed;
mod files;
mod fresh;
mod homes;
mod ids;
mod input;
mod jobs;
mod leave;
mod log_lines;
mod notes;
mod of_broker;
mod outbound_bytes;
mod packets;
mod persistent;
mod publish;
mod publish_rates;
mod replay;
mod replays_due;
mod resume;
mod retained;
mod revoke;
mod shared;
mod slices;
mod subscribe;
mod sys;
mod tapped;
mod tell;
mod timers;
mod trace;
mod transport;
mod unanswered;
mod unconfirmed;
mod work;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millrace_layers::Position;
use millrace_mqtt::ReasonCode;
use millrace_router::Target;
use millrace_session::{Seconds, Session};
use millrace_transport::listeners::Listeners;
use mio::{Events, Poll, Token};
use slab::Slab;

use crate::admission::{Admission, Refusal};
use crate::broker::Broker;
use crate::clock::{Millis, seconds};
use crate::connection_id::ConnectionId;
use crate::home::HomeClaim;
use crate::jobs::{Job, SharedMessages};
use crate::mailbox::{Mail, Mailbox};
use crate::memory::Pressure;
use crate::metrics::{BrokerCounters, CoreCounters};
use crate::outbound::{Flushed, OutboundSlot, Pool};
use crate::process::Process;
use crate::routes::RouteCache;
use crate::store::Store;
use crate::traces::Sampler;
use authenticate::Absent;
use changes::FilterChanges;
use clients::Scans;
use congestion::Behind;
use connection::{Connected, NONE, Paused, State};
use directory::Directory;
use fanout::Fanouts;
use fresh::Fresh;
use homes::{HomeClaims, Occupation};
use jobs::HeldJobs;
use of_broker::ByBroker;
use persistent::PersistentSession;
use publish_rates::PublishRates;
use replay::Replays;
use resume::Fence;
use slices::Slices;
use tapped::Tapped;
use timers::{Calendar, Due};
use unconfirmed::Unconfirmed;
use work::Work;

/// Bytes read from one socket in one turn.
const READ_BYTES: usize = 128 * 1024;
const EVENTS: usize = 1024;
/// Longest sleep: the health check expects a turn at least this often.
const SLEEP_MAX_MS: u64 = 1000;
/// Sleep while publishers are paused.
const PAUSE_MS: u64 = 2;
/// Seconds that a peer has to close its side after we closed ours.
const LINGER_S: Seconds = 2;
/// Longest time after which the calendar looks at a session without connection, seconds.
const LOOK_AT_SESSIONS_S: Seconds = 600;

const WAKER: Token = Token(usize::MAX);
/// Listeners have the tokens from here on.
const FIRST_LISTENER: usize = usize::MAX - 64;

pub(crate) struct LocalSession {
    pub(crate) session: Session,
    pub(crate) broker: Arc<Broker>,
    /// Slot of its connection, [`NONE`] without one.
    pub(crate) connection: u32,
    pub(crate) generation: u32,
    /// When its will is published, 0 for never.
    pub(crate) will_at: Seconds,
    /// When it ends, 0 for never; while it has a connection, when that connection began.
    pub(crate) term: Seconds,
    /// When the calendar looks at it next, 0 for never.
    pub(crate) looked_at: Seconds,
    pub(crate) hash: u64,
    /// The fencing number of this process's ownership in the store; 0 when the store does not know the session.
    pub(crate) epoch: u64,
    /// The store has given it to another connection.
    pub(crate) is_lost: bool,
    /// It holds a [`HomeClaim`] of its client id.
    pub(crate) is_claimed: bool,
    /// Present while its subscriptions are new, where several pods share the store.
    fresh: Option<Box<Fresh>>,
    /// Present while the store keeps the session beyond its connection.
    persistent: Option<Box<PersistentSession>>,
}

/// Why a connection ended, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Client,
    Lost,
    TakenOver,
    KeepAlive,
    Shutdown,
    Drained,
    Slow,
    /// By an operator.
    Kicked,
    Banned,
    Error(ReasonCode),
    /// The client closed its WebSocket without DISCONNECT; the code to answer with.
    WebSocketClosed(u16),
    /// The client sent an invalid WebSocket frame; the code to close with.
    Frame(u16),
}

/// A session that was requested from the store.
struct Attaching {
    /// Connections of the same client id that came meanwhile.
    waiting: VecDeque<ConnectionId>,
    /// Outlives the connection, which may be gone before the store has answered.
    claim: Option<HomeClaim>,
}

pub(crate) struct Core {
    index: u16,
    process: Arc<Process>,
    poll: Poll,
    listeners: Listeners,
    connections: Slab<Connected>,
    sessions: Slab<LocalSession>,
    directory: Directory,
    routes: RouteCache,
    calendar: Calendar,
    read_buffer: Vec<u8>,
    pool: Pool,
    /// Connections to flush at the end of the turn.
    dirty: Vec<u32>,
    /// Connections to flush earlier, because they have much to write.
    overfull: Vec<u32>,
    /// Connections whose socket is busy, or was at the last second.
    busy: HashSet<u32, foldhash::fast::FixedState>,
    /// Connections that have more to read.
    ready: Vec<u32>,
    /// Paused publishers, and until when at the latest.
    paused: Vec<(ConnectionId, Millis)>,
    publish_rates: PublishRates,
    /// Receivers that lag, with the publishers that wait for them.
    behind: Behind,
    /// Jobs for the store; submitted at the end of the turn, after the mail: see [`crate::store`].
    jobs: Vec<Job>,
    /// Outcomes of shared subscriptions' messages in this turn, submitted with the jobs.
    shared: SharedMessages,
    held_jobs: Option<HeldJobs>,
    unconfirmed: Unconfirmed,
    fences: VecDeque<Fence>,
    /// Connections that wait for their session, by client id.
    attaching: HashMap<(u64, Arc<str>), Attaching>,
    /// Connections that wait for a broker to be read, by its name.
    opening: HashMap<Arc<str>, Vec<ConnectionId>>,
    /// Names of brokers that the store did not have, and until when that is believed.
    absent: HashMap<Arc<str>, (Absent, Millis)>,
    /// The broker of the CONNECT that is processed now.
    connecting: Option<Arc<Broker>>,
    admission: Admission<ConnectionId>,
    /// The admission decision for the CONNECT that is processed again now.
    verdict: Option<(ConnectionId, Option<Refusal>)>,
    /// Clients still to be sent to other servers, the last one first; `None` outside of a drain.
    leaving: Option<Vec<ConnectionId>>,
    next_fence: u64,
    scans: Scans,
    slices: Slices,
    by_broker: ByBroker,
    claims: HomeClaims,
    occupation: Occupation,
    /// The sessions of this core that are live have been handed everything up to here.
    handed_over: Position,
    /// Sessions with acknowledgements that are not written to the store yet.
    unsaved: Vec<Target>,
    /// When sessions that follow streams last looked for messages that no pod announced.
    looked_around_at: Seconds,
    /// Sessions that took copies of committed messages, and since when.
    ahead: VecDeque<(Seconds, Target)>,
    outgoing: Vec<Vec<Mail>>,
    outgoing_bytes: Vec<usize>,
    incoming: Vec<Mail>,
    /// Mail for brokers whose earlier messages are still being fanned out.
    put_off_mail: Vec<Mail>,
    /// Expired deadlines that had to wait for a later turn.
    due: VecDeque<Due>,
    work: Work,
    fanouts: Fanouts,
    replays: Replays,
    filter_changes: FilterChanges,
    /// Bytes waiting for a busy socket above which QoS 0 messages to it are dropped.
    soft_bytes: usize,
    /// Connections without a CONNACK yet.
    measured: connect_times::Measured,
    sampler: Sampler,
    /// Connections whose client is traced.
    tapped: HashMap<u32, Box<Tapped>, foldhash::fast::FixedState>,
    /// When the bytes being processed were read, microseconds; only kept where messages are traced.
    read_us: u64,
    reads: u32,
    /// When the present read was, if its first PUBLISH is timed; otherwise 0.
    timed_us: u32,
    generation: u32,
    now_ms: Millis,
    now: Seconds,
    stopping: bool,
}

impl Core {
    pub(crate) fn new(index: u16, process: Arc<Process>, poll: Poll, listeners: Listeners) -> Self {
        let cores = process.mailboxes.len();
        Self {
            index,
            poll,
            listeners,
            connections: Slab::new(),
            sessions: Slab::new(),
            directory: Directory::default(),
            routes: RouteCache::default(),
            calendar: Calendar::default(),
            read_buffer: vec![0; READ_BYTES],
            pool: Pool::default(),
            dirty: Vec::new(),
            overfull: Vec::new(),
            busy: HashSet::default(),
            ready: Vec::new(),
            paused: Vec::new(),
            publish_rates: PublishRates::default(),
            behind: Behind::default(),
            jobs: Vec::new(),
            shared: SharedMessages::default(),
            held_jobs: None,
            unconfirmed: Unconfirmed::default(),
            fences: VecDeque::new(),
            attaching: HashMap::new(),
            opening: HashMap::new(),
            absent: HashMap::new(),
            connecting: None,
            admission: Admission::new(&process.limits, cores, process.clock.now()),
            verdict: None,
            leaving: None,
            next_fence: 0,
            scans: Scans::default(),
            slices: Slices::default(),
            by_broker: ByBroker::default(),
            claims: HomeClaims::default(),
            occupation: Occupation::default(),
            handed_over: process.store.as_ref().map_or(Position::MIN, Store::through),
            unsaved: Vec::new(),
            looked_around_at: 0,
            ahead: VecDeque::new(),
            outgoing: (0..cores).map(|_| Vec::new()).collect(),
            outgoing_bytes: vec![0; cores],
            incoming: Vec::new(),
            put_off_mail: Vec::new(),
            due: VecDeque::new(),
            work: Work::default(),
            fanouts: Fanouts::default(),
            replays: Replays::default(),
            filter_changes: FilterChanges::default(),
            soft_bytes: process.limits.outbound_soft_bytes as usize,
            measured: connect_times::Measured::default(),
            sampler: Sampler::new(process.config.tracer.as_deref(), cores),
            tapped: HashMap::default(),
            read_us: 0,
            reads: 0,
            timed_us: 0,
            generation: 0,
            now_ms: process.clock.now(),
            now: seconds(process.clock.now()),
            stopping: false,
            process,
        }
    }

    pub(crate) const fn waker_token() -> Token {
        WAKER
    }

    /// Runs turns until the process stops and all connections have gone, or `grace` has passed.
    pub(crate) fn run(mut self, grace: &OnceLock<Duration>) {
        let mut events = Events::with_capacity(EVENTS);
        let mut give_up_at = Millis::MAX;
        loop {
            if let Err(error) = self.wait(&mut events) {
                // Without this loop a part of the clients would wait for ever.
                panic!("event loop {} cannot wait for events: {error}", self.index);
            }
            self.read_clock();
            self.count_turn();
            if !self.stopping && self.process.stopping.load(Ordering::Relaxed) {
                let grace = grace.get().copied().unwrap_or_default();
                give_up_at = self.now_ms.saturating_add(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
                self.begin_stop();
            }
            self.turn(&events);
            self.leave_jobs();
            self.drop_claims();
            self.count_turn();
            let is_done = self.connections.is_empty() && self.jobs.is_empty();
            if self.stopping && (is_done || self.now_ms >= give_up_at) {
                return self.submit(self.jobs.len());
            }
        }
    }

    /// Begins or ends a turn: see [`Process::turns`].
    fn count_turn(&self) {
        let turn = &self.process.turns[usize::from(self.index)];
        turn.store(turn.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
        // If a `Fence` saw this core outside of a turn, this turn must see everything that was put into the router
        // before.
        fence(Ordering::SeqCst);
    }

    fn read_clock(&mut self) {
        self.now_ms = self.process.clock.now();
        let last = std::mem::replace(&mut self.now, seconds(self.now_ms));
        if self.now != last {
            self.look_at_memory();
            self.look_at_load();
            self.count_outbound();
        }
        self.process.turned_at[usize::from(self.index)].store(self.now_ms, Ordering::Relaxed);
        self.counters().turns.add(1);
    }

    fn look_at_memory(&mut self) {
        let memory = &self.process.memory;
        if self.index == 0
            && let Some(pressure) = memory.look()
        {
            let (used, budget) = (memory.used(), memory.budget());
            tracing::warn!(
                used,
                budget,
                pressure = pressure.name(),
                "the memory in use has reached another level of its budget"
            );
        }
        let soft_bytes = self.process.limits.outbound_soft_bytes as usize;
        self.soft_bytes = if memory.pressure() >= Pressure::QosZero { soft_bytes / 8 } else { soft_bytes };
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let mut timeout = SLEEP_MAX_MS;
        if self.calendar.next().is_some() {
            // Seconds are counted from 1: the next one begins when the present thousand ends.
            timeout = timeout.min(1000 - self.now_ms % 1000);
        }
        let has_work = self.is_draining()
            || !self.admission.is_idle()
            || !self.scans.is_idle()
            || !self.slices.is_idle();
        if !self.paused.is_empty() || self.stopping || has_work {
            timeout = timeout.min(PAUSE_MS);
        }
        if self.waits_for_turns() {
            timeout = timeout.min(1);
        }
        if let Some(at) = self.publish_rates.next() {
            timeout = timeout.min(at.saturating_sub(self.now_ms));
        }
        let is_put_off = self.work.is_put_off()
            || !self.fanouts.is_empty()
            || self.replays.is_ready()
            || !self.due.is_empty()
            || self.listeners.has_more();
        if is_put_off || !self.ready.is_empty() || self.has_relief() || !self.mailbox().sleep() {
            timeout = 0;
        }
        let result = self.poll.poll(events, Some(Duration::from_millis(timeout)));
        self.mailbox().awake();
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => other,
        }
    }

    fn turn(&mut self, events: &Events) {
        let began_us = self.process.clock.micros();
        self.work.begin_turn();
        for event in events {
            match event.token() {
                WAKER => {}
                Token(token) if token >= FIRST_LISTENER => self.listeners.readable(token - FIRST_LISTENER),
                Token(token) => self.socket_event(token, event),
            }
        }
        self.accept();
        self.read_ready();
        self.take_mail();
        self.fan_out();
        self.send_retained();
        self.remove_more_routes();
        self.look_at_due();
        self.scan();
        self.next_slices();
        self.relieve();
        self.resume_paused();
        self.resume_rate_limited();
        self.admit_waiting();
        self.drain();
        self.change_filters_of_turn();
        // Writing may end a connection, and the connection may publish a will, so there may be more to write.
        loop {
            self.send_mail();
            self.flush_dirty();
            if self.dirty.is_empty() && self.outgoing.iter().all(Vec::is_empty) {
                break;
            }
        }
        self.process.work_max[usize::from(self.index)].fetch_max(self.work.spent(), Ordering::Relaxed);
        let took_us = self.process.clock.micros().saturating_sub(began_us);
        self.process.turn_times[usize::from(self.index)].note(took_us);
        self.occupation.add_turn(took_us);
    }

    fn socket_event(&mut self, token: usize, event: &mio::event::Event) {
        let slot = u32::try_from(token).unwrap_or(NONE);
        let Some(connection) = self.connections.get_mut(token) else { return };
        if event.is_read_closed() || event.is_error() {
            connection.read_closed = true;
        }
        if event.is_writable() && connection.busy {
            connection.busy = false;
            self.flush(slot);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.make_readable(slot);
        }
        self.end_if_gone(slot);
    }

    /// Ends a connection whose client has closed it during authentication: nobody waits for the answer.
    pub(super) fn end_if_gone(&mut self, slot: u32) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        if connection.read_closed && connection.is_being_checked() {
            self.end(slot, Ended::Lost, true);
        }
    }

    fn make_readable(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.readable = true;
        if !connection.listed {
            connection.listed = true;
            self.ready.push(slot);
        }
    }

    fn is_fanned_out_to(&self, target: Target) -> bool {
        let local = self.sessions.get(target.slot as usize);
        local.is_some_and(|local| self.fanouts.has(local.broker.id))
    }

    fn take_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.incoming);
        // Reading this before the mail guarantees that no message up to `through` is still in the mailbox afterwards.
        let through = self.process.store.as_ref().map(Store::through);
        self.mailbox().take(&mut mail);
        mail.splice(..0, self.put_off_mail.drain(..));
        for letter in mail.drain(..) {
            let began = self.begin_work(|core| core.broker_of_mail(&letter));
            match letter {
                // Earlier messages must arrive before the session becomes live.
                Mail::Page(target, ..) if self.is_fanned_out_to(target) => self.put_off_mail.push(letter),
                Mail::Adopt(adopted) => self.adopt(*adopted),
                Mail::Run(run) => self.deliver_mailed_run(&run),
                Mail::Publish { routes, message, from } => self.deliver_here(&routes, &message, from),
                Mail::Shared { routes, receiver, message, from, group } => {
                    self.deliver_mailed_share(&routes.broker, &receiver, &message, from, group);
                }
                Mail::Congested(id) => self.pause(id, Paused::ForReceiver),
                Mail::Relieved(id) => self.resume(id),
                Mail::Stored { acks, stored } => self.stored(&acks, stored),
                Mail::SendAgain(connection) => self.send_again(connection),
                Mail::Traced(traced) => self.end_stored_traces(&traced),
                Mail::Lost { session, is_lost } => self.lose(&session, is_lost),
                Mail::Grown(routes) => self.grown(&routes),
                Mail::Committed(committed) => self.committed(&committed),
                Mail::LookAround(broker) => self.look_around(broker),
                Mail::Opened(name, found) => self.opened(&name, found),
                Mail::Attached(connection, session, found) => self.attached(connection, session, found),
                Mail::OfAnotherUser(connection, session) => self.not_attached(connection, &session),
                Mail::OverLimit(connection, session, limit) => self.no_room(connection, &session, limit),
                Mail::Subscribed(subscribe, subscribed) => {
                    self.subscribed_when_confirmed(subscribe, subscribed);
                }
                Mail::Suback(connection, pending) => self.filters_confirmed(connection, &pending),
                Mail::Reread(target) => self.reread(target),
                Mail::Unsubscribed(unsubscribe, stored) => self.unsubscribed(*unsubscribe, stored),
                Mail::Ids(ids, stored) => self.ids_written(*ids, stored),
                Mail::Marked { fence, through } => self.marked(fence, through),
                Mail::Page(target, version, page) => self.page(target, version, page),
                Mail::Purge(purge, claim) => self.purge(purge, claim),
                Mail::Entered(entered) => self.entered(*entered),
                Mail::Attempted(attempted) => self.attempted(*attempted),
                Mail::AccessChanged(broker) => self.access_changed(&broker),
                Mail::FilesChanged(users) => self.files_changed(&users),
                Mail::Clients(asked) => self.asked_for_clients(asked),
                Mail::Reviewed(reviewed) => self.reviewed(*reviewed),
                Mail::Authenticated { connection, outcome } => self.authenticated(connection, outcome),
            }
            self.flush_overfull();
            self.end_work(began);
        }
        if self.fanouts.is_empty() {
            self.handed_over = through.unwrap_or(self.handed_over);
        }
        self.incoming = mail;
    }

    /// The broker that mail causes work for; 0 when the work is little, or for several brokers.
    fn broker_of_mail(&self, mail: &Mail) -> u64 {
        match mail {
            Mail::Run(run) => run.routes.broker.id,
            Mail::Publish { routes, .. } | Mail::Shared { routes, .. } | Mail::Grown(routes) => {
                routes.broker.id
            }
            Mail::Committed(committed) => committed.routes.broker.id,
            Mail::Page(target, ..) | Mail::Reread(target) => {
                self.sessions.get(target.slot as usize).map_or(0, |local| local.broker.id)
            }
            Mail::Congested(id) | Mail::Relieved(id) => self.broker_of(id.slot),
            _ => 0,
        }
    }

    /// Queues mail for another core until the end of the turn.
    fn post(&mut self, core: u16, mail: Mail) {
        self.outgoing_bytes[usize::from(core)] += mail.size();
        self.outgoing[usize::from(core)].push(mail);
    }

    fn send_mail(&mut self) {
        for (core, batch) in self.outgoing.iter_mut().enumerate() {
            if batch.is_empty() {
                continue;
            }
            let bytes = std::mem::take(&mut self.outgoing_bytes[core]);
            if self.process.mailboxes[core].deliver(batch, bytes) {
                self.process.counters[usize::from(self.index)].wakes.add(1);
            }
        }
    }

    fn connection_of(&mut self, id: ConnectionId) -> Option<&mut Connected> {
        self.connections.get_mut(id.slot as usize).filter(|connection| connection.generation == id.generation)
    }

    fn id_of(&self, slot: u32) -> ConnectionId {
        ConnectionId { core: self.index, slot, generation: self.connections[slot as usize].generation }
    }

    fn mailbox(&self) -> &Mailbox {
        &self.process.mailboxes[usize::from(self.index)]
    }

    fn counters(&self) -> &CoreCounters {
        &self.process.counters[usize::from(self.index)]
    }

    fn broker_counters<'b>(&self, broker: &'b Broker) -> &'b BrokerCounters {
        &broker.counters[usize::from(self.index)]
    }

    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// Writes the queued output of one socket, then what its session held back.
    fn flush(&mut self, slot: u32) {
        loop {
            let Some(connection) = self.connections.get_mut(slot as usize) else { return };
            if connection.busy {
                return;
            }
            if let Some(mut outbound) = connection.outbound.take() {
                let websocket = connection.is_websocket();
                self.work.spend(work::SYSTEM_CALL);
                let mut tapped = if connection.is_traced() { self.tapped.get_mut(&slot) } else { None };
                if let Some(tapped) = &mut tapped {
                    tapped.look(&outbound, &connection.protocol, self.process.clock.unix_now_ms());
                }
                let flushed = outbound.flush(&mut connection.stream, websocket);
                if let Some(tapped) = tapped {
                    tapped.note_waiting(outbound.len());
                }
                match flushed {
                    Ok((written, Flushed::All)) => {
                        self.work.spend((written / work::COPIED_BYTES) as u64);
                        self.pool.give(outbound);
                        self.counters().bytes_out.add(written);
                        self.answers_were_read(slot);
                    }
                    Ok((written, Flushed::Busy)) => {
                        self.work.spend((written / work::COPIED_BYTES) as u64);
                        connection.busy = true;
                        connection.outbound = Some(outbound);
                        self.note_busy(slot);
                        self.counters().bytes_out.add(written);
                        return self.after_busy_flush(slot, written);
                    }
                    Err(error) => {
                        tracing::debug!(%error, "writing failed");
                        return self.end(slot, Ended::Lost, true);
                    }
                }
            }
            if self.connections[slot as usize].state == State::Draining {
                return self.linger(slot);
            }
            if !self.continue_session(slot) {
                return;
            }
        }
    }

    /// Closes a connection with too much queued for its full socket, and bounds its answers.
    fn after_busy_flush(&mut self, slot: u32, written: usize) {
        let limits = &self.process.limits;
        let connection = &mut self.connections[slot as usize];
        let Some(outbound) = &mut connection.outbound else { return };
        outbound.note_progress(written, self.soft_bytes, self.now_ms);
        if outbound.len() > limits.outbound_hard_bytes as usize {
            return self.end(slot, Ended::Slow, true);
        }
        if outbound.answers() <= limits.answers_bytes_max as usize / 2 {
            self.answers_were_read(slot);
        }
        self.bound_answers(slot);
    }

    /// Lets a session send what it held back while the socket was busy. True when there is more to write.
    fn continue_session(&mut self, slot: u32) -> bool {
        let connection = &self.connections[slot as usize];
        if connection.session == NONE || !self.sessions[connection.session as usize].session.has_backlog() {
            return false;
        }
        self.pump(slot);
        // The pump noted the connection as dirty, but it is being flushed now.
        if self.dirty.last() == Some(&slot) {
            self.dirty.pop();
        }
        self.connections[slot as usize].outbound.is_some()
    }

    fn look_at_due(&mut self) {
        while let Some(all) = self.calendar.take(self.now) {
            self.due.extend(all);
        }
        // Many deadlines may expire in the same second.
        let end = self.work.spent() + work::TURN / 2;
        while self.work.spent() < end
            && let Some(due) = self.due.pop_front()
        {
            self.work.spend(work::PACKET);
            match due {
                Due::Connection { slot, generation } => self.connection_due(slot, generation),
                Due::Session { slot, generation } => self.session_due(slot, generation),
                Due::Answers { slot, generation } => self.answers_due(slot, generation),
                Due::Accept => self.listeners.retry(),
                Due::Sys => self.publish_sys(),
                Due::LookAround => self.look_around_now_and_then(),
                Due::Checkpoints => self.save_all(),
            }
        }
    }

    fn begin_stop(&mut self) {
        // Messages that were acknowledged to clients of other cores are in the mailbox by now.
        self.take_mail();
        self.stopping = true;
        self.stop_listening();
        // Connections that are being closed have already got their reason.
        let open: Vec<u32> = (self.connections.iter())
            .filter(|(_, connection)| connection.state == State::Open)
            .filter_map(|(slot, _)| u32::try_from(slot).ok())
            .collect();
        for slot in open {
            self.send_away(slot, Ended::Shutdown);
        }
        self.flush_dirty();
    }
}

/// Borrows the parts of a core that one connection and its session need, side by side.
macro_rules! parts {
    ($core:expr, $slot:expr) => {{
        let connection = &mut $core.connections[$slot as usize];
        let out = OutboundSlot {
            slot: &mut connection.outbound,
            pool: &mut $core.pool,
            dirty: &mut $core.dirty,
            connection: $slot,
            busy: connection.busy,
            soft_bytes: $core.soft_bytes,
        };
        (&mut connection.protocol, out, connection.session)
    }};
}
use parts;

// These two make up most of the memory of an idle connection.
const _: () = {
    assert!(size_of::<Connected>() <= 160);
    assert!(size_of::<LocalSession>() <= 120);
};
