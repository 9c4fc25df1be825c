//! An `LD_PRELOAD` library that replaces the C library's file and clock calls in a program under
//! test. It appends each write and sync below one folder to a log, in the order of the calls. As
//! the control file says, it fails writes and syncs, delays syncs and shifts the time of day.
//! [`millrace_faults`] has both formats, and replays the log to simulate a loss of power.
//!
//! Renames, links and removals are not replaced, because some programs make them without the C
//! library. Instead, each sync of a folder records the names in the folder, and the log identifies
//! files by inode number. The driver compares the files with the log at each loss of power, which
//! reveals writes that bypassed the C library.
//!
//! A sync below the folder never reaches the disk, because the replay of the log decides what is
//! durable. The layer makes system calls directly, so that it never intercepts itself. It must
//! never allocate much, wait for the program, or know the driver.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod calls;
mod panel;
mod recorder;
mod system;
