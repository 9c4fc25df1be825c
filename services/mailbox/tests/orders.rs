//! Threads that deliver work while a loop takes it: with `--cfg loom` in every order of their
//! steps, otherwise a few thousand times in whatever order they run.

#![allow(clippy::unwrap_used, reason = "a lock whose holder panicked has failed the test already")]

use std::io;

use millrace_mailbox::{Mailbox, Wake};

#[cfg(loom)]
use loom::{model, sync::Arc, sync::Notify, thread};
#[cfg(not(loom))]
use plain::{Notify, model};
#[cfg(not(loom))]
use std::{sync::Arc, thread};

/// Wakes a thread, as a poll is woken: a wake before the wait ends the wait at once.
#[derive(Clone)]
struct Bell(Arc<Notify>);

impl Bell {
    fn new() -> Self {
        Self(Arc::new(Notify::new()))
    }
}

impl Wake for Bell {
    fn wake(&self) -> io::Result<()> {
        self.0.notify();
        Ok(())
    }
}

#[test]
fn a_loop_that_sleeps_is_woken_for_work() {
    model(|| {
        let bell = Bell::new();
        let mailbox = Arc::new(Mailbox::new(bell.clone()));
        let sender = {
            let mailbox = mailbox.clone();
            thread::spawn(move || {
                mailbox.deliver(&mut vec![1], 10);
            })
        };
        let mut got = Vec::new();
        while got.is_empty() {
            if mailbox.sleep() {
                // A model in which nobody wakes this thread is reported as a deadlock.
                bell.0.wait();
            }
            mailbox.awake();
            mailbox.take(&mut got);
        }
        assert_eq!(got, [1]);
        sender.join().unwrap();
    });
}

#[test]
fn the_bytes_are_those_of_what_waits_whoever_comes_first() {
    model(|| {
        let mailbox = Arc::new(Mailbox::new(Bell::new()));
        let senders: Vec<_> = [1_usize, 2]
            .into_iter()
            .map(|bytes| {
                let mailbox = mailbox.clone();
                thread::spawn(move || {
                    mailbox.deliver(&mut vec![bytes], bytes);
                })
            })
            .collect();
        let mut first = Vec::new();
        mailbox.take(&mut first);
        for sender in senders {
            sender.join().unwrap();
        }
        let counted = mailbox.bytes();
        let mut rest = Vec::new();
        mailbox.take(&mut rest);
        assert_eq!(counted, rest.iter().sum::<usize>(), "taken first: {first:?}, then: {rest:?}");
        assert_eq!(first.len() + rest.len(), 2);
        assert_eq!(mailbox.bytes(), 0);
    });
}

/// Stand-ins for loom's tools where the tests run without it.
#[cfg(not(loom))]
mod plain {
    use std::sync::{Condvar, Mutex};

    const TIMES: usize = 2_000;

    pub(crate) fn model(test: impl Fn()) {
        for _ in 0..TIMES {
            test();
        }
    }

    #[derive(Default)]
    pub(crate) struct Notify(Mutex<bool>, Condvar);

    impl Notify {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn notify(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        pub(crate) fn wait(&self) {
            let mut notified = self.1.wait_while(self.0.lock().unwrap(), |notified| !*notified).unwrap();
            *notified = false;
        }
    }
}
