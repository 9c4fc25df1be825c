//! Batches of work that any thread leaves for one event loop.
//!
//! The loop takes everything at once in each turn. It says before it sleeps that it does, and whoever leaves work for a
//! sleeping loop wakes it. This crate does not know what the work is, nor how a loop sleeps.
//!
//! `make loom` runs the tests in every order in which the threads can meet.

use std::io;
use std::sync::PoisonError;

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Ends the sleep of a loop.
pub trait Wake {
    /// Ends the present sleep, or the next one if the loop is awake.
    ///
    /// # Errors
    /// When the system refuses it. Then the loop sleeps until its timer.
    fn wake(&self) -> io::Result<()>;
}

impl Wake for mio::Waker {
    fn wake(&self) -> io::Result<()> {
        Self::wake(self)
    }
}

/// Work for one loop.
#[derive(Debug)]
pub struct Mailbox<M, W> {
    waiting: Mutex<Waiting<M>>,
    /// Bytes of what waits, as they were when the lock was last given back.
    bytes: AtomicUsize,
    /// The loop sleeps, or is about to.
    sleeping: AtomicBool,
    waker: W,
}

#[derive(Debug)]
struct Waiting<M> {
    mail: Vec<M>,
    bytes: usize,
}

impl<M, W: Wake> Mailbox<M, W> {
    /// An empty mailbox of a loop that `waker` wakes.
    pub fn new(waker: W) -> Self {
        let waiting = Waiting { mail: Vec::new(), bytes: 0 };
        Self {
            waiting: Mutex::new(waiting),
            bytes: AtomicUsize::new(0),
            sleeping: AtomicBool::new(false),
            waker,
        }
    }

    /// Leaves a batch of so many bytes; true when the loop had to be woken. Empties `batch`.
    pub fn deliver(&self, batch: &mut Vec<M>, bytes: usize) -> bool {
        {
            let mut waiting = self.waiting();
            if waiting.mail.is_empty() {
                std::mem::swap(&mut waiting.mail, batch);
            } else {
                waiting.mail.append(batch);
            }
            waiting.bytes += bytes;
            self.bytes.store(waiting.bytes, Ordering::Relaxed);
        }
        self.wake()
    }

    /// Wakes the loop if it sleeps.
    pub fn wake(&self) -> bool {
        // `sleep` sets the flag before it locks. So either this thread sees the flag, or the loop sees the mail.
        let sleeps = self.sleeping.swap(false, Ordering::SeqCst);
        if sleeps && let Err(error) = self.waker.wake() {
            tracing::error!(%error, "could not wake an event loop; its work waits for its next timer");
        }
        sleeps
    }

    /// Takes everything, into the empty `into`.
    pub fn take(&self, into: &mut Vec<M>) {
        let mut waiting = self.waiting();
        std::mem::swap(&mut waiting.mail, into);
        waiting.bytes = 0;
        // Before the lock is given back: bytes that are added next must not be forgotten.
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// To be called before sleeping; false when there is work.
    pub fn sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.waiting().mail.is_empty() {
            return true;
        }
        self.sleeping.store(false, Ordering::SeqCst);
        false
    }

    /// To be called after sleeping.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<M>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
