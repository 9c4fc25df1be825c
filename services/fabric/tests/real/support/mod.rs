//! Servers, relays and pods.

mod pod;
mod relay;
mod server;

use std::sync::{Condvar, Mutex};

pub(crate) use pod::{Pod, WAIT_MAX, know_each_other, poll};
pub(crate) use relay::Relay;
pub(crate) use server::{Server, is_installed};

/// Ends a test when there is no nats-server; else it waits for its turn.
macro_rules! needs_nats {
    () => {
        if !crate::support::is_installed() {
            return;
        }
        let _turn = crate::support::Turn::wait();
    };
}
pub(crate) use needs_nats;

/// One of the few tests that run at the same time: each has several threads and processes that are
/// busy.
pub(crate) struct Turn;

static TURNS: (Mutex<usize>, Condvar) = (Mutex::new(3), Condvar::new());

impl Turn {
    pub(crate) fn wait() -> Self {
        let turns = TURNS.0.lock().unwrap();
        *TURNS.1.wait_while(turns, |turns| *turns == 0).unwrap() -= 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.0.lock().unwrap() += 1;
        TURNS.1.notify_one();
    }
}

/// Where a randomised test begins; `FABRIC_SEED` repeats one.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("FABRIC_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("FABRIC_SEED={seed}");
    seed
}
