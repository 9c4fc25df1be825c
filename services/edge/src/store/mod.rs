//! What must survive, on its way to the store and back.
//!
//! Event loops leave [`Job`]s; one thread gathers what is there into transactions and answers with mail once they are
//! durable. Another thread reads. An event loop never waits: a message is delivered at once, and only its publisher's
//! acknowledgement comes with the mail (P1).
//!
//! **The order that everything hangs on.** A loop hands a message to its receivers' loops first, and leaves its job after
//! that. When the job is committed, the message's place is set, and only then [`Store::through`] moves over it. So a loop that
//! reads `through`, and then takes all its mail, has seen every live copy up to there.

mod apply;
mod groups;
pub(crate) mod inflight;
mod jobs;
mod load;
mod parts;
mod queue;
mod reader;
pub(crate) mod record;
pub(crate) mod streams;
mod sweep;
mod writer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use millrace_layers::Position;
use millrace_layers::streams::StreamId;
use millrace_storage::Stat;

use crate::StartError;
use crate::broker::Broker;
use crate::clock::Clock;
use crate::limits::Limits;
use crate::mailbox::Mailbox;
pub(crate) use jobs::{
    Ack, Attach, Attached, Checkpoint, Detach, IdWrite, Ids, Job, Page, PendingSubscribe, Publish, Purge,
    Read, Reader, Reserve, SessionKey, Shared as SharedMessages, Subscribe, Unsubscribe, Write,
};
use queue::Queue;

/// The process's way to its store.
pub(crate) struct Store {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads of the store and its users share.
struct Shared {
    layers: millrace_layers::Store,
    clock: Clock,
    limits: Limits,
    mailboxes: Arc<[Mailbox]>,
    broker: Arc<Broker>,
    writes: Queue<Job>,
    reads: Queue<Read>,
    /// Version up to which places are set.
    through: AtomicU64,
    /// How many messages streams got since they were last held to their limits.
    touched: Mutex<HashMap<StreamId, u64>>,
}

impl Store {
    /// Reads what the brokers need at once, ends what an earlier process left open, and starts the threads.
    pub(crate) fn start(
        layers: millrace_layers::Store,
        clock: Clock,
        limits: Limits,
        broker: &Arc<Broker>,
        mailboxes: Arc<[Mailbox]>,
    ) -> Result<Self, StartError> {
        let through = load::all(&layers, &clock, broker)
            .map_err(|error| StartError(format!("cannot read the data folder: {error}")))?;
        let shared = Arc::new(Shared {
            layers,
            clock,
            limits,
            mailboxes,
            broker: broker.clone(),
            writes: Queue::default(),
            reads: Queue::default(),
            through: AtomicU64::new(through),
            touched: Mutex::default(),
        });
        writer::abandon(&shared);
        let sessions = load::sessions(&shared.layers, broker)
            .map_err(|error| StartError(format!("cannot read the data folder: {error}")))?;
        broker.has_sessions.store(sessions > 0, Ordering::Relaxed);
        broker.counters[shared.mailboxes.len()].sessions.add(sessions);
        let mut threads = Vec::new();
        for (name, run) in [("store-write", writer::run as fn(&Shared)), ("store-read", reader::run)] {
            let shared = shared.clone();
            let thread = std::thread::Builder::new()
                .name(name.into())
                .spawn(move || run(&shared))
                .map_err(|error| StartError(format!("cannot start a thread: {error}")))?;
            threads.push(thread);
        }
        Ok(Self { shared, threads })
    }

    /// Leaves jobs; they are carried out in the order in which they were left. Empties `jobs`.
    pub(crate) fn submit(&self, jobs: &mut Vec<Job>) {
        self.shared.writes.push(jobs);
    }

    /// Leaves something to read.
    pub(crate) fn read(&self, read: Read) {
        self.shared.reads.push(&mut vec![read]);
    }

    /// All messages up to here have their place, and their live copies are in the mailboxes.
    pub(crate) fn through(&self) -> Position {
        Position::end_of(self.shared.through.load(Ordering::Acquire))
    }

    /// What the engine tells about itself.
    pub(crate) fn stats(&self) -> Vec<Stat> {
        self.shared.layers.database().stats()
    }

    /// Bytes that wait to be written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.shared.writes.bytes()
    }
}

impl Drop for Store {
    /// Writes what was left.
    fn drop(&mut self) {
        self.shared.writes.close();
        self.shared.reads.close();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store ended with a panic");
            }
        }
    }
}
