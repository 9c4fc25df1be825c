//! Who may connect to a broker and what they may do.
//!
//! [`model`] has the records that the control plane stores and the edge reads.
//!
//! This crate must never know sockets, the store, threads or the machine's clock: time and randomness come in as arguments, and
//! whatever must be fetched is said, not fetched.

pub mod limits;
pub mod model;
