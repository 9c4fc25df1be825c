//! The handle through which users reach a store, and the only place that retries transactions.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    error::StoreError, host::Host, interface::Engine, retry::RetryPolicy, stat::Stat,
    transaction::Transaction, version::Committed,
};

#[derive(Clone)]
pub struct Database {
    engine: Arc<dyn Engine>,
    host: Arc<dyn Host>,
    retry: RetryPolicy,
}

/// The earlier attempts of a transaction, for its closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// 1 for the first attempt.
    pub number: u32,
    /// Earlier attempts that ended with [`StoreError::Conflict`] or [`StoreError::TooOld`]; after
    /// several, a transaction that does less may succeed.
    pub conflicts: u32,
    /// An earlier attempt may have committed, so a transaction that must not happen twice checks
    /// this first.
    pub maybe_committed: bool,
}

/// An error that a transaction's closure may end with.
pub trait TransactionFailure: From<StoreError> {
    /// The store's error that ended the transaction, if one did; it decides whether the transaction
    /// is retried.
    fn store_error(&self) -> Option<&StoreError>;
}

impl TransactionFailure for StoreError {
    fn store_error(&self) -> Option<&StoreError> {
        Some(self)
    }
}

impl Database {
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, host: Arc<dyn Host>, retry: RetryPolicy) -> Self {
        Self { engine, host, retry }
    }

    /// Calls `body`, commits, and returns the result of `body` once the commit is durable. After a
    /// retryable error repeats both, with growing random waits in between. `body` may run many
    /// times, so it must have no effects but those of its transaction.
    ///
    /// # Errors
    /// The error of `body`, or the store's error when it is not retryable or the attempts are used
    /// up.
    pub fn run<T, E, F, Body>(&self, body: F) -> impl Future<Output = Result<T, E>> + use<T, E, F, Body>
    where
        E: TransactionFailure,
        F: FnMut(Transaction, Attempt) -> Body,
        Body: Future<Output = Result<T, E>>,
    {
        let run = self.run_committed(body);
        async move { Ok(run.await?.0) }
    }

    /// Like [`Database::run`], but also returns the position in commit order.
    pub fn run_committed<T, E, F, Body>(
        &self,
        mut body: F,
    ) -> impl Future<Output = Result<(T, Committed), E>> + use<T, E, F, Body>
    where
        E: TransactionFailure,
        F: FnMut(Transaction, Attempt) -> Body,
        Body: Future<Output = Result<T, E>>,
    {
        // The future owns everything, and `body` is no async closure, because the future of an
        // async closure cannot be sent to another thread yet.
        let this = self.clone();
        async move {
            let mut attempt = Attempt { number: 1, conflicts: 0, maybe_committed: false };
            let began = this.host.now();
            loop {
                #[allow(clippy::disallowed_methods)]
                let transaction = this.begin_unretried();
                let failure = match body(transaction.clone(), attempt).await {
                    Ok(output) => match transaction.commit().await {
                        Ok(committed) => return Ok((output, committed)),
                        Err(error) => E::from(error),
                    },
                    Err(failure) => failure,
                };
                let Some(delay) = this.delay(&failure, &mut attempt, began) else { return Err(failure) };
                this.host.pause(delay).await;
            }
        }
    }

    pub(crate) fn random(&self) -> u64 {
        self.host.random()
    }

    fn delay(
        &self,
        failure: &impl TransactionFailure,
        attempt: &mut Attempt,
        began: Duration,
    ) -> Option<Duration> {
        let error = failure.store_error().filter(|error| error.is_retryable())?;
        let is_unavailable = matches!(error, StoreError::Unavailable(_));
        if attempt.number >= self.retry.attempts_max
            || is_unavailable && self.host.now().saturating_sub(began) >= self.retry.unavailable_max
        {
            return None;
        }
        let delay = self.retry.delay(attempt.number, self.host.random());
        attempt.number += 1;
        attempt.conflicts += u32::from(matches!(error, StoreError::Conflict | StoreError::TooOld));
        attempt.maybe_committed |= error.is_maybe_committed();
        Some(delay)
    }

    #[must_use]
    pub fn stats(&self) -> Vec<Stat> {
        self.engine.stats()
    }

    /// Begins a transaction that is not retried: for [`Database::run`], tests of engines, and event
    /// loops that retry themselves.
    #[must_use]
    pub fn begin_unretried(&self) -> Transaction {
        Transaction::new(self.engine.begin(), self.host.clone())
    }
}
