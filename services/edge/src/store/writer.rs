//! The thread that writes: jobs into transactions, results into mail.

use std::sync::Arc;

use millrace_layers::{Error, Store, retained};
use millrace_storage::{Transaction, block_on};

use super::queue::Queue;
use super::{Ack, Job, Write, record};
use crate::clock::Clock;
use crate::mailbox::{Mail, Mailbox};

/// Jobs in one transaction.
const BATCH_JOBS_MAX: usize = 1000;
/// Bytes in one transaction, counted generously below what the store allows.
const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Until the queue is closed.
pub(super) fn run(queue: &Queue, layers: Store, clock: Clock, mailboxes: Arc<[Mailbox]>) {
    let mut writer = Writer { layers, clock, mailboxes, refused: false };
    while let Some(jobs) = queue.take() {
        let mut rest = jobs.as_slice();
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch_len(rest));
            writer.write(batch);
            queue.done(batch);
            rest = after;
        }
    }
}

/// How many of `jobs` go into the next transaction; at least one.
fn batch_len(jobs: &[Job]) -> usize {
    let mut bytes = 0;
    let fits = jobs.iter().take(BATCH_JOBS_MAX).take_while(|job| {
        bytes += job.size();
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
}

struct Writer {
    layers: Store,
    clock: Clock,
    mailboxes: Arc<[Mailbox]>,
    /// The last write was refused: what is said once need not be said for each.
    refused: bool,
}

impl Writer {
    fn write(&mut self, batch: &[Job]) {
        let clock = self.clock;
        let result = block_on(self.layers.run(async |tx| {
            for job in batch {
                apply(&tx, &clock, job).await?;
            }
            Ok(())
        }));
        match result {
            // One job that cannot be written must not take the others with it.
            Err(error) if batch.len() > 1 && !may_pass(&error) => {
                for job in batch {
                    self.write(std::slice::from_ref(job));
                }
            }
            result => {
                self.answer(batch, result.is_ok());
                self.log(result.as_ref().err());
            }
        }
    }

    /// Says when the store begins to refuse, and when it takes writes again.
    fn log(&mut self, error: Option<&Error>) {
        match error {
            Some(error) if !self.refused => {
                tracing::error!(%error, "the store refuses writes; publishers are told so, what is live goes on");
            }
            None if self.refused => tracing::info!("the store takes writes again"),
            _ => {}
        }
        self.refused = error.is_some();
    }

    /// Tells the publishers' event loops, in one piece of mail each.
    fn answer(&self, batch: &[Job], stored: bool) {
        for (core, mailbox) in self.mailboxes.iter().enumerate() {
            let of_core = |ack: &Ack| usize::from(ack.connection.core) == core;
            let acks: Vec<Ack> = batch.iter().filter_map(|job| job.ack).filter(of_core).collect();
            if !acks.is_empty() {
                mailbox.deliver(&mut vec![Mail::Stored { acks, stored }], 0);
            }
        }
    }
}

/// Whether the store may take the same writes later.
fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.is_retryable())
}

async fn apply(tx: &Transaction, clock: &Clock, job: &Job) -> Result<(), Error> {
    match &job.write {
        Write::Retained { broker, topic, message: Some(message) } => {
            let record = record::encode(message, clock).into();
            retained::set(tx, *broker, topic.as_bytes(), &record).await
        }
        Write::Retained { broker, topic, message: None } => {
            retained::clear(tx, *broker, topic.as_bytes()).await
        }
    }
}
