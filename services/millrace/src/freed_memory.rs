//! Returns freed memory to the kernel.
//!
//! The allocator does that only when a thread frees a whole page and a second has passed since others were freed. Without this
//! thread an idle server keeps what a flood has used, and goes on shedding load because of it.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

/// So large that the allocator gives it a page of its own, which it frees at once.
const OWN_PAGE_BYTES: usize = 8 * 1024 * 1024;

#[allow(clippy::disallowed_methods, reason = "there is no condition: it looks once a second")]
pub(crate) fn start() -> Result<(), String> {
    let returns = || {
        loop {
            thread::sleep(Duration::from_secs(1));
            drop(black_box(Vec::<u8>::with_capacity(OWN_PAGE_BYTES)));
        }
    };
    let started = thread::Builder::new().name("freed-memory".into()).spawn(returns);
    started.map(drop).map_err(|error| format!("a thread does not start: {error}"))
}
