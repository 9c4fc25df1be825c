//! A disk that loses power, fails and fills up.
//!
//! A program under test runs with the layer (`millrace-faults-layer`, preloaded with `LD_PRELOAD`),
//! which intercepts its file calls below one folder:
//!
//! ```text
//! program -> layer -> kernel        the folder, as the program sees it
//!              |  ^
//!              v  +-- control       failures to plant, and counters
//!             log                   writes and syncs, in order
//! ```
//!
//! After the program was killed, [`Disk::lose_power`] replays the [`log`] over what was durable
//! before: file contents as of their last sync, names as of the last sync of their folder, and any
//! part of the unsynced writes that a seed chooses. The folder then holds what a disk holds after a
//! loss of power.
//!
//! This crate must not know MQTT or any program under test.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

pub mod control;
pub mod disk;
mod image;
pub mod log;
mod sparse;

pub use control::FaultControl;
pub use disk::{Disk, Loss, Names};
