//! Returns freed memory to the kernel.
//!
//! mimalloc returns freed pages (its own, not the kernel's) only when a thread frees another one, a second after them or later.
//! Without this thread an idle server would keep what a flood has used, and continue shedding load because of it.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

/// So large that mimalloc gives it a page of its own, which it frees at once. Nobody writes to it, so it takes no memory.
const OWN_PAGE_BYTES: usize = 8 * 1024 * 1024;

#[allow(clippy::disallowed_methods, reason = "nothing signals freed memory")]
pub(crate) fn start() -> Result<(), String> {
    let returns = || {
        loop {
            thread::sleep(Duration::from_secs(1));
            drop(black_box(Vec::<u8>::with_capacity(OWN_PAGE_BYTES)));
        }
    };
    let started = thread::Builder::new().name("freed-memory".into()).spawn(returns);
    started.map(drop).map_err(|error| format!("cannot start the thread that returns freed memory: {error}"))
}
