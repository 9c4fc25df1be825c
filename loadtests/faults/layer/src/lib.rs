//! A library for `LD_PRELOAD` that stands between a program and its disk. It records what the program writes below one
//! folder, in the order in which it writes, and fails calls as the control file says. [`millrace_faults`] has the
//! formats and replays the log.
//!
//! Renames, links and removals are not intercepted, because some programs make them without the C library. Instead,
//! each sync of a folder records the names that the folder has then. Contents are followed
//! by inode number, whatever the name is. The driver compares the files with the log after each loss of power, which
//! finds a program whose writes bypass the C library.
//!
//! Syncs do not reach the disk: whether they are recorded decides what is durable. The layer's own calls go straight
//! to the kernel, so it never intercepts itself. It must never allocate much, wait for the program, or know the driver.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod calls;
mod panel;
mod recorder;
mod system;
