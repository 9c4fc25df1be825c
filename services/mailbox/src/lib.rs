//! A mailbox carries batches of work from any thread to one event loop. The loop takes all waiting
//! work once per turn, and announces when it is about to sleep; a thread that delivers work to a
//! sleeping loop wakes it. The mailbox must not know what the work is, nor how the loop sleeps.
//!
//! `make loom` runs the tests in every order in which the threads can meet.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

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

pub trait Wake {
    /// Ends the current sleep, or the next one if the loop is awake.
    ///
    /// # Errors
    /// The system refused to wake the loop, which then sleeps until its next timer.
    fn wake(&self) -> io::Result<()>;
}

impl Wake for mio::Waker {
    fn wake(&self) -> io::Result<()> {
        Self::wake(self)
    }
}

#[derive(Debug)]
pub struct Mailbox<M, W> {
    waiting: Mutex<QueuedMail<M>>,
    bytes: AtomicUsize,
    sleeping: AtomicBool,
    waker: W,
}

#[derive(Debug)]
struct QueuedMail<M> {
    mail: Vec<M>,
    bytes: usize,
}

impl<M, W: Wake> Mailbox<M, W> {
    pub fn new(waker: W) -> Self {
        let waiting = QueuedMail { mail: Vec::new(), bytes: 0 };
        Self {
            waiting: Mutex::new(waiting),
            bytes: AtomicUsize::new(0),
            sleeping: AtomicBool::new(false),
            waker,
        }
    }

    /// Moves all of `batch`, which takes `bytes` of memory ([`Mailbox::bytes`] adds them up, so that senders can pause), into the
    /// mailbox; true when the loop had to be woken.
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

    /// Delivers mail of a few bytes, which [`Mailbox::bytes`] does not count.
    pub fn post(&self, mail: M) {
        self.deliver(&mut vec![mail], 0);
    }

    pub fn wake(&self) -> bool {
        // `sleep` sets the flag before it locks, so either this thread sees the flag or the loop sees the mail; a flag that
        // `awake` has not cleared yet costs a needless wake only.
        let sleeps = self.sleeping.swap(false, Ordering::SeqCst);
        if sleeps && let Err(error) = self.waker.wake() {
            tracing::error!(%error, "could not wake an event loop; its work waits for its next timer");
        }
        sleeps
    }

    pub fn take(&self, empty: &mut Vec<M>) {
        let mut waiting = self.waiting();
        std::mem::swap(&mut waiting.mail, empty);
        waiting.bytes = 0;
        // Stored under the lock, so that bytes which another thread adds next are not overwritten.
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Announces that the loop is about to sleep; false when work is waiting, and then it must not.
    pub fn sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.waiting().mail.is_empty() {
            return true;
        }
        self.sleeping.store(false, Ordering::SeqCst);
        false
    }

    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, QueuedMail<M>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
