//! Tests that measure the process they run in, or limit it. They run one after the other.
#![allow(clippy::unwrap_used, clippy::panic, reason = "also what several tests share may fail a test")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../hostile/tools.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod tools;

mod files;
mod log_lines;
mod memory;
mod traces;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by the test that runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
