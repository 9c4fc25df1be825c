//! The thread that writes: jobs into transactions, results into mail.

use std::sync::Arc;

use millrace_storage::{Database, Error, Transaction, block_on};

use super::queue::Queue;
use super::{Ack, Job, Write, record, retained};
use crate::clock::Clock;
use crate::mailbox::{Mail, Mailbox};

/// Jobs in one transaction.
const BATCH_JOBS_MAX: usize = 1000;
/// Bytes in one transaction, counted generously below what the store allows.
const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Until the queue is closed.
pub(super) fn run(queue: &Queue, database: Database, clock: Clock, mailboxes: Arc<[Mailbox]>) {
    let mut writer = Writer { database, clock, mailboxes, refused: false };
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
    database: Database,
    clock: Clock,
    mailboxes: Arc<[Mailbox]>,
    /// The last write was refused: what is said once need not be said for each.
    refused: bool,
}

impl Writer {
    fn write(&mut self, batch: &[Job]) {
        let clock = self.clock;
        let result = block_on(self.database.run(async |transaction, _| {
            for job in batch {
                apply(&transaction, &clock, job)?;
            }
            Ok::<(), Error>(())
        }));
        match result {
            // One job that cannot be written must not take the others with it.
            Err(error) if batch.len() > 1 && !error.is_retryable() => {
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

fn apply(transaction: &Transaction, clock: &Clock, job: &Job) -> Result<(), Error> {
    match &job.write {
        Write::Retained { broker, topic, message: Some(message) } => {
            retained::set(transaction, *broker, topic, &record::encode(message, clock))
        }
        Write::Retained { broker, topic, message: None } => retained::clear(transaction, *broker, topic),
    }
}
