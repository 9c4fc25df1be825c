//! The store as its users see it, and the one place where transactions are retried.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    engine::{Engine, memory},
    error::Error,
    host::{Host, System},
    retry::RetryPolicy,
    stat::Stat,
    transaction::Transaction,
    version::Committed,
};

/// A store. Cheap to clone; all clones are the same store.
#[derive(Clone)]
pub struct Database {
    engine: Arc<dyn Engine>,
    host: Arc<dyn Host>,
    retry: RetryPolicy,
}

/// What a transaction's closure is told about the attempt that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// 1 for the first attempt.
    pub number: u32,
    /// Attempts before this one that ended with [`Error::Conflict`] or [`Error::TooOld`]: less work may succeed.
    pub conflicts: u32,
    /// Whether an earlier attempt may have committed. A transaction that must not be done twice looks first whether it was.
    pub maybe_committed: bool,
}

/// An error that a transaction's closure may end with.
pub trait Failure: From<Error> {
    /// The store's error in it, if that is what it is: decides whether the transaction is tried again.
    fn store_error(&self) -> Option<&Error>;
}

impl Failure for Error {
    fn store_error(&self) -> Option<&Error> {
        Some(self)
    }
}

impl Database {
    /// A store on an engine.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, host: Arc<dyn Host>, retry: RetryPolicy) -> Self {
        Self { engine, host, retry }
    }

    /// A store that keeps nothing beyond the process and copies all keys at each commit: for tests.
    #[must_use]
    pub fn memory() -> Self {
        Self::memory_on(Arc::new(System::new()))
    }

    /// [`Database::memory`] with a clock of the test's own.
    #[must_use]
    pub fn memory_on(host: Arc<dyn Host>) -> Self {
        Self::new(memory::engine(), host, RetryPolicy::default())
    }

    /// Runs a transaction: calls `body`, commits, and does both again while that ends in a retryable error, with growing,
    /// random waits between. What `body` returned comes back once it is durable.
    ///
    /// `body` may run many times and must have no effect but through its transaction.
    ///
    /// # Errors
    /// What `body` ended with, or the store's error when the attempts are used up or it is not retryable.
    pub fn run<T, E, F, Body>(&self, body: F) -> impl Future<Output = Result<T, E>> + use<T, E, F, Body>
    where
        E: Failure,
        F: FnMut(Transaction, Attempt) -> Body,
        Body: Future<Output = Result<T, E>>,
    {
        let run = self.run_committed(body);
        async move { Ok(run.await?.0) }
    }

    /// [`Database::run`] for who wants to know the place in commit order too.
    ///
    /// # Errors
    /// As there.
    pub fn run_committed<T, E, F, Body>(
        &self,
        mut body: F,
    ) -> impl Future<Output = Result<(T, Committed), E>> + use<T, E, F, Body>
    where
        E: Failure,
        F: FnMut(Transaction, Attempt) -> Body,
        Body: Future<Output = Result<T, E>>,
    {
        // The future owns what it needs, and `body` is no async closure, for the future of one cannot be sent to another
        // thread yet.
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

    /// How long to wait before the next attempt, if there is one.
    fn delay(&self, failure: &impl Failure, attempt: &mut Attempt, began: Duration) -> Option<Duration> {
        let error = failure.store_error().filter(|error| error.is_retryable())?;
        let is_away = matches!(error, Error::Unavailable(_));
        if attempt.number >= self.retry.attempts_max
            || is_away && self.host.now().saturating_sub(began) >= self.retry.away_max
        {
            return None;
        }
        let delay = self.retry.delay(attempt.number, self.host.random());
        attempt.number += 1;
        attempt.conflicts += u32::from(matches!(error, Error::Conflict | Error::TooOld));
        attempt.maybe_committed |= error.is_maybe_committed();
        Some(delay)
    }

    /// What the engine tells about itself: counters since it was opened, and how it stands.
    #[must_use]
    pub fn stats(&self) -> Vec<Stat> {
        self.engine.stats()
    }

    /// A transaction that nobody retries. [`Database::run`] is what layers use; this is for it, for tests of engines, and
    /// for event loops that retry by themselves.
    #[must_use]
    pub fn begin_unretried(&self) -> Transaction {
        Transaction::new(self.engine.begin(), self.host.clone())
    }
}
