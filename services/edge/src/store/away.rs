//! A store that does not answer, such as a cluster that cannot be reached. Who waits for it is told, as with a disk that is full;
//! what must be written whatever happens waits until it answers.
//!
//! What is under way is not given up: a commit that nobody waits for may still happen. So the writer stands at it, and only
//! answers for it.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use millrace_layers::Error;
use millrace_mqtt::QoS;
use millrace_storage::{Error as StoreError, block_on, block_on_for};

use super::jobs::{Ids, Publish};
use super::queue::{Sized as _, Taken};
use super::writer::Writer;
use super::{IdWrite, Job, Write};

/// A store that has not answered for this long is unavailable.
const PATIENCE: Duration = Duration::from_secs(3);
/// A shorter wait while the store is unavailable: once it is back, it answers at once.
const PATIENCE_WHILE_AWAY: Duration = Duration::from_millis(200);
/// How often waiting publishers are refused meanwhile.
const TURN: Duration = Duration::from_millis(20);
/// So long a process that ends waits for the answer.
const FAREWELL_MS: u64 = 5_000;

#[derive(Default)]
pub(super) struct Away {
    is_away: bool,
    /// The publishers of the batch that is under way were told that it was refused.
    told: bool,
    /// Jobs that came meanwhile, in order.
    held: Vec<Job>,
    /// Milliseconds of the process.
    gives_up_at: Option<u64>,
}

impl Away {
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn take_held(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.held)
    }

    /// Whether the store did not answer the last time.
    pub(super) fn is_away(&self) -> bool {
        self.is_away
    }

    pub(super) fn take_told(&mut self) -> bool {
        std::mem::take(&mut self.told)
    }
}

impl Writer<'_> {
    /// Waits for the store. When it does not answer in time, the publishers of `batch` and all that comes meanwhile are told.
    pub(super) fn wait<T>(
        &mut self,
        asked: impl Future<Output = Result<T, Error>>,
        batch: &[Job],
    ) -> Result<T, Error> {
        if !self.shared.is_shared {
            // A disk of this machine says what it cannot do; one that is slow is waited for.
            return block_on(asked);
        }
        // Resolving the doubt of a batch keeps what its publishers were told.
        if !batch.is_empty() {
            self.away.told = false;
        }
        let mut asked = pin!(asked);
        let mut patience = if self.away.is_away { PATIENCE_WHILE_AWAY } else { PATIENCE };
        loop {
            if let Some(answer) = block_on_for(asked.as_mut(), patience) {
                match &answer {
                    Ok(_) if self.away.is_away => {
                        self.away.is_away = false;
                        tracing::info!("the store answers again");
                    }
                    Err(Error::Store(StoreError::Unavailable(_))) => self.away.is_away = true,
                    _ => {}
                }
                return answer;
            }
            if !self.away.is_away {
                self.away.is_away = true;
                tracing::error!(
                    "the store does not answer; what must be stored is refused, what is live goes on"
                );
            }
            self.turn_away(batch, Duration::ZERO)?;
            patience = TURN;
        }
    }

    /// Whether the store does not answer. It is asked.
    pub(super) fn is_away(&mut self) -> bool {
        if self.away.is_away {
            let shared = self.shared;
            let asked = shared.layers.run(async |tx| Ok(tx.read_version().await?));
            return self.wait(asked, &[]).is_err();
        }
        false
    }

    /// Refuses what has come or comes in so long, and tells the publishers of `batch` that it is refused.
    pub(super) fn turn_away(&mut self, batch: &[Job], wait: Duration) -> Result<(), Error> {
        if !batch.is_empty() && !std::mem::replace(&mut self.away.told, true) {
            for job in batch.iter().filter(|job| job.is_told()) {
                if let Write::Publish(publish) = &job.write {
                    self.refuse_publish(publish, job.ack, true);
                }
            }
        }
        match self.shared.writes.take(wait) {
            Taken::Work(jobs) => {
                for job in jobs {
                    let (broker, bytes) = (job.broker().cloned(), job.size());
                    match job.write {
                        Write::Publish(_)
                        | Write::Attach(_)
                        | Write::Subscribe(_)
                        | Write::Unsubscribe(_)
                        | Write::Purge(_)
                        | Write::Checkpoint(_) => {
                            self.refuse_job(job, true);
                            self.shared.writes.done(broker.as_deref(), bytes);
                        }
                        _ => self.away.held.push(job),
                    }
                }
            }
            Taken::Nothing => {}
            Taken::Closed => {
                let now_ms = self.shared.clock.now();
                if now_ms >= *self.away.gives_up_at.get_or_insert(now_ms + FAREWELL_MS) {
                    return Err(StoreError::Unavailable("it did not answer before the end".into()).into());
                }
            }
        }
        self.send_now();
        Ok(())
    }
}

impl Publish {
    /// Whether its receivers wait for the commit for the sake of order alone.
    pub(super) fn is_late(&self) -> bool {
        self.deliver && self.message.qos() == QoS::AtMostOnce
    }
}

impl Job {
    /// Whether its publisher is told that it is refused while it may be stored after all. With QoS 2 it waits for what becomes of it:
    /// one that loses its connection before it hears of the refusal would send the message again, and it would be there twice.
    fn is_told(&self) -> bool {
        matches!(&self.write, Write::Publish(publish) if publish.message.qos() < QoS::ExactlyOnce)
    }

    /// Its publisher was told that it is refused, and who need not wait for the commit has it.
    pub(super) fn note_told(&mut self) {
        if !self.is_told() {
            return;
        }
        if let Write::Publish(publish) = &mut self.write {
            publish.deliver &= !publish.is_late();
            self.ack = None;
        }
    }

    /// Whether it may be carried out twice, if it appends no message: a CONNECT would fire the will of its own connection,
    /// and a packet id that is there already says that the message is a duplicate.
    pub(super) fn is_repeatable(&self) -> bool {
        match &self.write {
            Write::Publish(publish) => publish.inbound.is_none(),
            Write::Attach(attach) => attach.will.is_none(),
            _ => true,
        }
    }

    /// What takes back the packet id of a message that its publisher was told is refused, and that may be stored after all: the
    /// publisher may use the id for another message, which must not be taken for this one.
    pub(super) fn takes_back_id(&self) -> Option<Self> {
        let Write::Publish(Publish { inbound: Some(session), .. }) = &self.write else { return None };
        let ack = self.ack.filter(|ack| ack.keeps_id && ack.hears_refusal)?;
        let ids =
            Ids { session: session.clone(), target: ack.session, write: IdWrite::TakeBack(ack.packet_id) };
        Some(Self { write: Write::Ids(Box::new(ids)), ack: None })
    }
}
