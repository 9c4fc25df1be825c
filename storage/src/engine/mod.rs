//! The engines, each of which implements [`crate::Engine`].

pub(crate) mod embedded;
#[cfg(feature = "foundationdb")]
pub(crate) mod foundationdb;
mod local;
pub(crate) mod memory;
mod range_set;
mod stamped;
