//! Makes mimalloc return pages that a burst has left empty on the thread of this loop.
//!
//! For each size class, mimalloc keeps a thread's last empty page until the thread has made some thousand allocations more. A
//! quiet loop would need minutes for them. A page for buffers of 84 to 512 KiB has 4 MiB, and there are eleven such classes.

use std::hint::black_box;

/// mimalloc collects empty pages after so many allocations of more than 1 KiB, and frees a large page at the fourth time.
const ALLOCATIONS: usize = 1_000;
const BYTES: usize = 1_280;

pub(super) fn purge_empty_pages() {
    for _ in 0..ALLOCATIONS {
        drop(black_box(Vec::<u8>::with_capacity(BYTES)));
    }
}
