//! The engines, each of which implements [`crate::Engine`]. `embedded` and `memory` share transactions, conflicts and group commit in
//! `local`; the other modules are parts of several engines.

pub(crate) mod embedded;
#[cfg(feature = "foundationdb")]
pub(crate) mod foundationdb;
mod local;
pub(crate) mod memory;
mod range_set;
mod stamped;
