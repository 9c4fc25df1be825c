//! Checks passwords that people chose, at tens of milliseconds and 19 MiB each (Argon2id).
//!
//! ```text
//! check() ── remembered? ──> result at once
//!    │
//!    v
//! fair queue: tenants take turns, then their brokers, addresses and users ──> threads ──> results
//! ```
//!
//! While others wait, an address that guesses passwords gets at most every second check. Results are remembered under keyed
//! hashes of user, password and PHC string, so a changed password counts at once. Right passwords are remembered for minutes,
//! wrong passwords for seconds.

mod cache;
mod counters;
pub mod limits;

use std::sync::Arc;
use std::thread::JoinHandle;

use millrace_access::secrets::chosen;

use crate::{AuthenticationQueue, Cancellation, ClientSource, Pushed, ThreadError};
use cache::Remembered;
pub use counters::PasswordCheckCounts;
use counters::PasswordCounters;

pub struct PasswordRequest<C> {
    pub tenant: Arc<str>,
    pub broker: u64,
    pub source: ClientSource,
    pub user: Box<str>,
    pub password: Box<[u8]>,
    /// PHC strings; there are two while a rotated secret still counts.
    pub hashes: Vec<Box<str>>,
    pub cancellation: Cancellation,
    pub context: C,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    Right,
    Wrong,
    Busy,
}

#[derive(Debug)]
pub struct CheckedPassword<C> {
    pub context: C,
    pub outcome: CheckOutcome,
}

pub type ResultSender<C> = Box<dyn Fn(CheckedPassword<C>) + Send + Sync>;

pub type SecondsClock = Box<dyn Fn() -> u32 + Send + Sync>;

/// Dropping it ends its threads.
pub struct Checker<C: Send + 'static> {
    shared: Arc<CheckerState<C>>,
    threads: Vec<JoinHandle<()>>,
}

struct CheckerState<C> {
    queue: AuthenticationQueue<PasswordRequest<C>>,
    remembered: Remembered,
    counters: PasswordCounters,
    answers: ResultSender<C>,
    clock: SecondsClock,
}

impl<C: Send + 'static> Checker<C> {
    /// `key` keys the hashes of the cache and must be random; `clock` must not go back.
    pub fn start(
        threads: usize,
        key: &[u8; 32],
        clock: SecondsClock,
        answers: ResultSender<C>,
    ) -> Result<Self, ThreadError> {
        let shared = Arc::new(CheckerState {
            queue: AuthenticationQueue::new(limits::WAITING),
            remembered: Remembered::new(key),
            counters: PasswordCounters::default(),
            answers,
            clock,
        });
        let mut checker = Self { shared: shared.clone(), threads: Vec::new() };
        for number in 0..threads.max(1) {
            let shared = shared.clone();
            let run = move || shared.run();
            let thread = std::thread::Builder::new().name(format!("passwords-{number}")).spawn(run)?;
            checker.threads.push(thread);
        }
        Ok(checker)
    }

    /// Returns the result if it is known at once; otherwise `None`, and `answers` of [`Checker::start`] gets the result later.
    pub fn check(&self, request: PasswordRequest<C>) -> Option<CheckedPassword<C>> {
        let shared = &self.shared;
        if let Some(outcome) = shared.remembered.find(&request, (shared.clock)()) {
            shared.counters.remembered();
            return Some(request.answer(outcome));
        }
        let (tenant, user) = (request.tenant.clone(), request.user.clone());
        match shared.queue.push(&tenant, request.broker, request.source, &user, request) {
            Pushed::Waits => None,
            Pushed::Refused(request) => {
                shared.counters.refused();
                Some(request.answer(CheckOutcome::Busy))
            }
            // An older request of the same address.
            Pushed::Instead(other) => {
                shared.counters.refused();
                (shared.answers)(other.answer(CheckOutcome::Busy));
                None
            }
        }
    }

    pub fn counts(&self) -> PasswordCheckCounts {
        self.shared.counters.counts(self.shared.queue.len())
    }
}

impl<C: Send + 'static> Drop for Checker<C> {
    fn drop(&mut self) {
        self.shared.queue.close();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(
                    "a thread that checks passwords ended with a panic: report it with the log before it"
                );
            }
        }
    }
}

impl<C> CheckerState<C> {
    fn run(&self) {
        yield_to_event_loops();
        while let Some(request) = self.queue.pop() {
            if request.cancellation.is_cancelled() {
                self.counters.cancelled();
                continue;
            }
            // Another request may have checked the same password while this one waited.
            let known = self.remembered.find(&request, (self.clock)());
            let outcome =
                known.inspect(|_| self.counters.remembered()).unwrap_or_else(|| self.verify(&request));
            (self.answers)(request.answer(outcome));
        }
    }

    fn verify(&self, request: &PasswordRequest<C>) -> CheckOutcome {
        for hash in &request.hashes {
            let is_right = chosen::verify(hash, &request.password);
            self.counters.checked(is_right);
            self.remembered.insert(request, hash, is_right, (self.clock)());
            if is_right {
                return CheckOutcome::Right;
            }
        }
        CheckOutcome::Wrong
    }
}

impl<C> PasswordRequest<C> {
    fn answer(self, outcome: CheckOutcome) -> CheckedPassword<C> {
        CheckedPassword { context: self.context, outcome }
    }
}

/// On Linux a nice value belongs to the thread alone, so the event loops keep theirs.
fn yield_to_event_loops() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(limits::NICE) {
        tracing::debug!(%error, "the priority of password checks cannot be lowered: on a busy machine they slow down event loops");
    }
}

#[cfg(test)]
mod tests;
