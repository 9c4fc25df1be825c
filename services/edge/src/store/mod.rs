//! What must survive, on its way to the store.
//!
//! Event loops leave [`Job`]s; one thread gathers what is there into transactions and answers with mail once they are
//! durable. An event loop never waits: a message is delivered at once, and only its publisher's acknowledgement comes with
//! the mail (P1).

mod queue;
pub(crate) mod record;
mod retained;
mod writer;

use std::sync::Arc;

use millrace_mqtt::{PacketId, QoS};
use millrace_router::Target;
use millrace_session::Message;

use crate::StartError;
use crate::broker::Broker;
use crate::clock::Clock;
use crate::core::connection::ConnectionId;
use crate::mailbox::Mailbox;
use queue::Queue;

/// Something to write.
pub(crate) enum Write {
    /// The retained message of a topic, or that there is none any more.
    Retained { broker: u64, topic: Arc<str>, message: Option<Arc<Message>> },
}

/// Who is to be told, once it is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) connection: ConnectionId,
    pub(crate) session: Target,
    pub(crate) qos: QoS,
    pub(crate) packet_id: PacketId,
}

/// A write and who waits for it.
pub(crate) struct Job {
    pub(crate) write: Write,
    pub(crate) ack: Option<Ack>,
}

/// The process's way to its store.
pub(crate) struct Store {
    queue: Arc<Queue>,
    writer: Option<std::thread::JoinHandle<()>>,
}

impl Store {
    /// Reads what the brokers need at once, and starts the thread that writes.
    pub(crate) fn start(
        layers: millrace_layers::Store,
        clock: Clock,
        broker: &Broker,
        mailboxes: Arc<[Mailbox]>,
    ) -> Result<Self, StartError> {
        retained::load(&layers, &clock, broker)
            .map_err(|error| StartError(format!("cannot read the retained messages: {error}")))?;
        let queue = Arc::new(Queue::default());
        let jobs = queue.clone();
        let writer = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || writer::run(&jobs, layers, clock, mailboxes))
            .map_err(|error| StartError(format!("cannot start a thread: {error}")))?;
        Ok(Self { queue, writer: Some(writer) })
    }

    /// Leaves a job. Jobs are carried out in the order in which they were left.
    pub(crate) fn submit(&self, job: Job) {
        self.queue.push(job);
    }

    /// Bytes that wait to be written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.queue.bytes()
    }
}

impl Drop for Store {
    /// Writes what was left.
    fn drop(&mut self) {
        self.queue.close();
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the thread that writes to the store ended with a panic");
        }
    }
}

impl Job {
    /// Bytes it stands for in limits.
    fn size(&self) -> usize {
        match &self.write {
            Write::Retained { topic, message, .. } => {
                topic.len() + message.as_ref().map_or(0, |message| message.size())
            }
        }
    }
}
