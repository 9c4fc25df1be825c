//! One event loop: its connections, the sessions it owns, and the turn in which everything happens.
//!
//! A turn: wait for sockets or mail; read each ready socket once and process its packets; take the mail of other
//! cores; run what is due; queue mail for other cores; write the gathered output, one system call a socket.

mod accept;
mod access_changes;
mod admit;
mod allocator;
mod answers;
mod attach;
mod authenticate;
mod barriers;
mod between;
mod by_broker;
mod changes;
mod clients;
mod close;
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
mod fanout;
mod feed;
mod files;
mod filter_set;
mod held;
mod homes;
mod ids;
mod input;
mod jobs;
mod leave;
mod limits;
mod log_lines;
mod mail;
mod new_subscriptions;
mod notes;
mod output;
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
#[cfg(test)]
mod testing;
mod timers;
mod trace;
mod transport;
mod turns;
mod unanswered;
mod unconfirmed;
mod webhook_events;
mod work;
mod write_sizer;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_layers::Position;
use millrace_mqtt::ReasonCode;
use millrace_session::{Seconds, Session};
use millrace_transport::listeners::Listeners;
use mio::{Poll, Token};
use slab::Slab;

use crate::broker::Broker;
use crate::clock::{Millis, TICKS_PER_S, Ticks, seconds};
use crate::connection_id::ConnectionId;
use crate::mailbox::Mailbox;
use crate::metrics::{BrokerCounters, CoreCounters};
use crate::process::Process;
use crate::routes::RouteCache;
use crate::store::StoreService;
use crate::traces::Sampler;
use admit::Connects;
use barriers::Barriers;
use by_broker::ByBroker;
use committed::Following;
use congestion::Pauses;
use connection::{Connected, ConnectionState, NONE};
use directory::Directory;
use homes::Homes;
use jobs::StoreJobs;
use mail::MailQueues;
use new_subscriptions::NewSubscriptions;
use output::{Output, parts};
use persistent::PersistentSession;
use timers::Calendar;
use trace::Tracing;
use work::{CoreWork, Unfinished};

/// Bytes read from one socket in one turn.
const READ_BYTES: usize = 128 * 1024;
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
    /// When it ends, 0 for never; while it has a connection, see [`Self::connected_at`].
    pub(crate) term: Ticks,
    /// When the calendar looks at it next, 0 for never.
    pub(crate) looked_at: Seconds,
    pub(crate) hash: u64,
    /// Its client id as [`record::publisher`].
    publisher: u64,
    /// The fencing number of this process's ownership in the store; 0 when the store does not know the session.
    pub(crate) epoch: u64,
    /// The store has given it to another connection.
    pub(crate) is_lost: bool,
    /// It holds a [`crate::home::HomeClaim`] of its client id.
    pub(crate) is_claimed: bool,
    /// Counts for the limit of sessions that wait in memory.
    waits_in_memory: bool,
    /// Present while its subscriptions are new, where several pods share the store.
    new_subscriptions: Option<Box<NewSubscriptions>>,
    /// Present while the store keeps the session beyond its connection.
    persistent: Option<Box<PersistentSession>>,
}

impl LocalSession {
    /// When its connection began; `term` holds this time until the session is detached.
    pub(crate) fn connected_at(&self) -> Seconds {
        self.term / TICKS_PER_S
    }

    /// Whether the session waits in memory for its client once its connection has ended.
    fn wait_in_memory(&mut self, waits: bool) {
        let count = &self.broker.client_memory.memory_sessions;
        match (std::mem::replace(&mut self.waits_in_memory, waits), waits) {
            (false, true) => drop(count.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(count.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    Client,
    Lost,
    TakenOver,
    KeepAlive,
    Shutdown,
    Drained,
    Slow,
    Kicked,
    Banned,
    Error(ReasonCode),
    /// The client closed its WebSocket without DISCONNECT; the code to answer with.
    WebSocketClosed(u16),
    /// The client sent an invalid WebSocket frame; the code to close with.
    Frame(u16),
}

pub(crate) struct Core {
    index: u16,
    process: Arc<Process>,
    poll: Poll,
    listeners: Listeners,
    connections: Slab<Connected>,
    sessions: Slab<LocalSession>,
    directory: Directory,
    by_broker: ByBroker,
    routes: RouteCache,
    read_buffer: Vec<u8>,
    /// Connections that have more to read.
    ready: Vec<u32>,
    connects: Connects,
    pauses: Pauses,
    store_jobs: StoreJobs,
    following: Following,
    barriers: Barriers,
    homes: Homes,
    output: Output,
    mail: MailQueues,
    calendar: Calendar,
    work: CoreWork,
    unfinished: Unfinished,
    tracing: Tracing,
    /// Clients still to be sent to other servers, the last one first; `None` outside of a drain.
    leaving: Option<Vec<ConnectionId>>,
    generation: u32,
    /// Since the start of the process.
    now_ms: Millis,
    now: Seconds,
    stopping: bool,
}

impl Core {
    pub(crate) fn new(index: u16, process: Arc<Process>, poll: Poll, listeners: Listeners) -> Self {
        let cores = process.mailboxes.len();
        let now_ms = process.clock.now();
        Self {
            index,
            poll,
            listeners,
            connections: Slab::new(),
            sessions: Slab::new(),
            directory: Directory::default(),
            by_broker: ByBroker::default(),
            routes: RouteCache::default(),
            read_buffer: vec![0; READ_BYTES],
            ready: Vec::new(),
            connects: Connects::new(&process.limits, cores, now_ms),
            pauses: Pauses::default(),
            store_jobs: StoreJobs::default(),
            following: Following::new(process.store.as_ref().map_or(Position::MIN, StoreService::through)),
            barriers: Barriers::default(),
            homes: Homes::default(),
            output: Output::new(&process.limits),
            mail: MailQueues::new(cores),
            calendar: Calendar::default(),
            work: CoreWork::default(),
            unfinished: Unfinished::default(),
            tracing: Tracing::new(Sampler::new(process.config.tracer.as_deref(), cores)),
            leaving: None,
            generation: 0,
            now_ms,
            now: seconds(now_ms),
            stopping: false,
            process,
        }
    }

    pub(crate) const fn waker_token() -> Token {
        WAKER
    }

    fn socket_event(&mut self, token: usize, event: &mio::event::Event) {
        let slot = u32::try_from(token).unwrap_or(NONE);
        let Some(connection) = self.connections.get_mut(token) else { return };
        if event.is_read_closed() || event.is_error() {
            connection.read_closed = true;
        }
        if event.is_writable() && connection.busy {
            connection.busy = false;
            self.flush_later(slot);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.make_readable(slot);
        }
        self.end_if_gone(slot);
    }

    /// Ends a connection whose client has closed it during authentication: nobody waits for the answer.
    pub(super) fn end_if_gone(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if !connection.read_closed {
            return;
        }
        if connection.is_being_checked() {
            self.end(slot, ConnectionEnd::Lost, true);
        } else if let Some(request) = &mut connection.pending {
            request.asker = None;
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
        &self.process.core(self.index).counters
    }

    fn broker_counters<'b>(&self, broker: &'b Broker) -> &'b BrokerCounters {
        &broker.counters[usize::from(self.index)]
    }

    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }
}

// These two make up most of the memory of an idle connection.
const _: () = {
    assert!(size_of::<Connected>() <= 160);
    assert!(size_of::<LocalSession>() <= 128);
};
