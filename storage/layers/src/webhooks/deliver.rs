//! Delivers the events of a webhook: [`take`] begins a delivery under a lease, [`settle`] ends it under the same
//! lease.

use millrace_storage::{Read, Transaction, TransactionOption};

use super::{
    DeliveryRecord, NewDeadLetter, StoredDeadLetter, WebhookId, dead_letters, dequeue, enqueue, log,
    state::{self, DeliveryFailure, Lease, WebhookState},
    sync::sources,
};
use crate::{
    error::{LayerError, LayerResult},
    limits::WEBHOOK_LEASE_MS,
    streams::{self, ReadLimit, StreamEntry, StreamLimits, Totals},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenDelivery {
    Work(Box<DeliveryWork>),
    /// The time until which another pod has the lease, unix milliseconds.
    LeasedUntil(u64),
    /// The time of the next attempt, unix milliseconds.
    RetryAt(u64),
    Empty,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryWork {
    pub epoch: u64,
    /// A dead letter that is sent again, by itself: then there are no entries.
    pub letter: Option<StoredDeadLetter>,
    pub entries: Vec<StreamEntry>,
    pub state: WebhookState,
    /// Numbers of the keys that sign the delivery; the caller fills them in before [`settle`].
    pub signed_by: Vec<u32>,
    /// Earlier events that a limit removed.
    missed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Delivered,
    Failed {
        failure: DeliveryFailure,
        next_attempt_ms: u64,
    },
    /// The receiver refused one of the events; single deliveries will show which.
    Split(DeliveryFailure),
    /// The events become dead letters.
    Dead {
        failure: DeliveryFailure,
        letters: Vec<NewDeadLetter>,
    },
}

/// Begins a delivery, if no other pod has the lease. It also ends an earlier delivery of the same owner, whose `settle`
/// then fails. Dead letters that are sent again come first, even while the events wait for their next attempt.
pub async fn take(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    owner: &str,
    now_ms: u64,
    limit: ReadLimit,
) -> LayerResult<TakenDelivery> {
    let mut state = state::get(tx, webhook, Read::Serializable).await?;
    if let Some(lease) = state.lease.as_ref().filter(|lease| lease.owner != owner && lease.until_ms > now_ms)
    {
        return Ok(TakenDelivery::LeasedUntil(lease.until_ms));
    }
    let letter = dead_letters::next_retried(tx, webhook).await?;
    let mut missed = 0;
    let mut entries = Vec::new();
    if letter.is_none() {
        if state.next_attempt_ms > now_ms {
            let next = state.next_attempt_ms;
            return release_lease(tx, webhook, state, TakenDelivery::RetryAt(next));
        }
        let limit = match state.cursor < state.one_by_one_until {
            true => ReadLimit { entries: 1, ..limit },
            false => limit,
        };
        let sources = sources(tx, webhook).await?;
        let batch = streams::read(tx, webhook.broker, &sources, state.cursor, limit).await?;
        missed = batch.missed.iter().map(|(_, missed)| missed.at_most).sum();
        if batch.entries.is_empty() {
            dequeue(tx, webhook)?;
            return release_lease(tx, webhook, state, TakenDelivery::Empty);
        }
        entries = batch.entries;
    }
    state.epoch += 1;
    state.lease = Some(Lease { owner: owner.into(), until_ms: now_ms + WEBHOOK_LEASE_MS });
    state::set(tx, webhook, &state)?;
    Ok(TakenDelivery::Work(Box::new(DeliveryWork {
        epoch: state.epoch,
        letter,
        entries,
        state,
        signed_by: Vec::new(),
        missed,
    })))
}

fn release_lease(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    mut state: WebhookState,
    taken: TakenDelivery,
) -> LayerResult<TakenDelivery> {
    if state.lease.take().is_some() {
        state::set(tx, webhook, &state)?;
    }
    Ok(taken)
}

/// Ends a delivery, and writes it into the log; the lease continues for the next [`take`]. `made` is `None` if no
/// request was made.
///
/// # Errors
/// [`LayerError::Fenced`] when another pod has the lease by now; nothing was written.
pub async fn settle(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    work: &DeliveryWork,
    (outcome, made): (&DeliveryOutcome, Option<&DeliveryRecord>),
    now_ms: u64,
) -> LayerResult<WebhookState> {
    let mut state = state::get(tx, webhook, Read::Serializable).await?;
    if state.epoch != work.epoch || state.lease.is_none() {
        return Err(LayerError::Fenced { epoch: work.epoch });
    }
    state.signed_by.clone_from(&work.signed_by);
    if let Some(letter) = &work.letter {
        settle_letter(tx, webhook, &mut state, letter, outcome, now_ms).await?;
    } else {
        settle_events(tx, webhook, &mut state, work, outcome, now_ms).await?;
    }
    if let Some(made) = made {
        log::add(tx, webhook, &mut state, made)?;
    }
    state::set(tx, webhook, &state)?;
    Ok(state)
}

async fn settle_events(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    state: &mut WebhookState,
    work: &DeliveryWork,
    outcome: &DeliveryOutcome,
    now_ms: u64,
) -> LayerResult<()> {
    let through = work.entries.last().map_or(state.cursor, |entry| entry.position);
    match outcome {
        DeliveryOutcome::Delivered => {
            state.delivered += work.entries.len() as u64;
            succeed(state, now_ms);
        }
        DeliveryOutcome::Failed { failure, next_attempt_ms } => {
            state.attempts += 1;
            state.next_attempt_ms = *next_attempt_ms;
            if state.failing_since_ms == 0 {
                state.failing_since_ms = failure.at_ms;
            }
            state.last_failure = Some(failure.clone());
            return Ok(());
        }
        DeliveryOutcome::Split(failure) => {
            state.one_by_one_until = through;
            state.last_failure = Some(failure.clone());
            return Ok(());
        }
        DeliveryOutcome::Dead { failure, letters } => {
            for letter in letters {
                dead_letters::add(tx, webhook, state, letter).await?;
            }
            state.dead += work.entries.len() as u64;
            (state.attempts, state.failing_since_ms, state.next_attempt_ms) = (0, 0, 0);
            state.last_failure = Some(failure.clone());
        }
    }
    state.lost += work.missed;
    state.cursor = through.max(state.cursor);
    tx.set_option(TransactionOption::FreesSpace);
    for source in sources(tx, webhook).await? {
        streams::trim(tx, webhook.broker, source.stream, state.cursor, None).await?;
    }
    Ok(())
}

async fn settle_letter(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    state: &mut WebhookState,
    letter: &StoredDeadLetter,
    outcome: &DeliveryOutcome,
    now_ms: u64,
) -> LayerResult<()> {
    match outcome {
        DeliveryOutcome::Delivered => {
            dead_letters::remove_one(tx, webhook, state, letter.id).await?;
            state.delivered += 1;
            state.last_success_ms = now_ms;
            Ok(())
        }
        DeliveryOutcome::Failed { failure, .. }
        | DeliveryOutcome::Split(failure)
        | DeliveryOutcome::Dead { failure, .. } => {
            state.last_failure = Some(failure.clone());
            dead_letters::refused_again(tx, webhook, letter, failure).await
        }
    }
}

fn succeed(state: &mut WebhookState, now_ms: u64) {
    (state.attempts, state.failing_since_ms, state.next_attempt_ms) = (0, 0, 0);
    state.last_success_ms = now_ms;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingEvents {
    /// Events and their bytes; an event that two filters match counts twice.
    pub totals: Totals,
    pub oldest_at_ms: Option<u64>,
}

pub async fn status(tx: &Transaction, webhook: WebhookId<'_>) -> LayerResult<(WebhookState, WaitingEvents)> {
    let state = state::get(tx, webhook, Read::Snapshot).await?;
    let sources = sources(tx, webhook).await?;
    let mut waiting = WaitingEvents::default();
    for source in &sources {
        let totals = streams::totals(tx, webhook.broker, source.stream).await?;
        waiting.totals.entries += totals.entries;
        waiting.totals.bytes += totals.bytes;
    }
    let first = ReadLimit { entries: 1, bytes: 1 };
    let batch = streams::read(tx, webhook.broker, &sources, state.cursor, first).await?;
    waiting.oldest_at_ms = batch.entries.first().map(|entry| entry.at_ms);
    Ok((state, waiting))
}

impl WebhookId<'_> {
    /// Removes the oldest events above a limit, and returns their number.
    pub async fn limit(self, store: &crate::Store, limits: StreamLimits) -> LayerResult<u64> {
        let sources = store.run(|tx| async move { sources(&tx, self).await }).await?;
        let mut removed = 0;
        for source in sources {
            removed += store.limit_stream(self.broker, source.stream, limits, 1_000).await?.entries;
        }
        Ok(removed)
    }

    pub async fn retry_now(self, tx: &Transaction) -> LayerResult<()> {
        let mut state = state::get(tx, self, Read::Serializable).await?;
        if state.next_attempt_ms > 0 {
            state.next_attempt_ms = 0;
            state::set(tx, self, &state)?;
        }
        enqueue(tx, self)
    }
}
