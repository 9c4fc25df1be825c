//! Lets the allocator take back the pages that a flood has left empty on the thread of this loop.
//!
//! For each size of buffers, mimalloc keeps a thread's last empty page until the thread has allocated some thousand times more,
//! which a quiet loop does in minutes only. A page for buffers of 84 to 512 KiB has 4 MiB, and there are eleven such sizes.

use std::hint::black_box;

/// After so many allocations mimalloc looks at the empty pages; it frees a large page at the fourth look.
const ALLOCATIONS: usize = 1_000;
const BYTES: usize = 1_280;

pub(super) fn age() {
    for _ in 0..ALLOCATIONS {
        drop(black_box(Vec::<u8>::with_capacity(BYTES)));
    }
}
