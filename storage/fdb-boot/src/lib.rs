//! Starts and stops the network thread of FoundationDB's client library. A process may start it
//! once, and must stop it before it exits; calling the library is `unsafe` because it relies on
//! that. This crate must not know keys, transactions or settings.
#![cfg(feature = "foundationdb")]

use std::sync::{Mutex, PoisonError};

use foundationdb::{
    FdbError,
    api::{FdbApiBuilder, NetworkAutoStop},
    options::NetworkOption,
};

static NETWORK: Mutex<State> = Mutex::new(State::New);

enum State {
    New,
    Runs(#[expect(dead_code, reason = "held to be dropped")] NetworkAutoStop),
    Over,
}

#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum BootError {
    Started,
    Library(FdbError),
}

impl From<FdbError> for BootError {
    fn from(error: FdbError) -> Self {
        Self::Library(error)
    }
}

// SAFETY: this is how C17, 7.22.4.2, declares it; it may be called at any time.
#[allow(unsafe_code)]
unsafe extern "C" {
    /// The C library calls `function` at the exit, before functions that were registered earlier.
    safe fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
}

/// Starts the network thread, which [`stop`] ends, at the latest when the process exits.
///
/// # Errors
/// It was called before, the library is older than the API version, or the library refuses an
/// option.
pub fn start(options: Vec<NetworkOption>) -> Result<(), BootError> {
    let mut state = NETWORK.lock().unwrap_or_else(PoisonError::into_inner);
    if !matches!(*state, State::New) {
        return Err(BootError::Started);
    }
    *state = State::Over;
    let mut network = FdbApiBuilder::default().build()?;
    for option in options {
        network = network.set_option(option)?;
    }
    let registered = atexit(stop_at_exit) == 0;
    assert!(registered, "the C library takes a function to call at the exit");
    // SAFETY: the returned value must be dropped before the process exits. `stop` drops it, and the
    // C library calls `stop` when `main` returns and from `exit`; `abort` and signals run nothing.
    #[allow(unsafe_code)]
    let stops = unsafe { network.boot() }?;
    *state = State::Runs(stops);
    Ok(())
}

/// Waits for the network thread; operations under way then never end. Call it at the end of `main`,
/// while the library's static data still exists.
pub fn stop() {
    let stops = std::mem::replace(&mut *NETWORK.lock().unwrap_or_else(PoisonError::into_inner), State::Over);
    drop(stops);
}

extern "C" fn stop_at_exit() {
    stop();
}
