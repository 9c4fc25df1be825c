//! Authentication work that takes time: password checks on threads of their own.
//!
//! A caller submits a request and gets one answer, on the sender that it passed in at the start. The order of
//! authentication methods and what they mean is in `millrace-access`, which does no work by itself.
//!
//! This crate knows nothing of event loops, sockets, MQTT or the store.

mod cancel;
pub mod passwords;

pub use cancel::{Cancellation, Pending};

/// Why a part of authentication could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a thread: {0}")]
pub struct StartError(#[from] std::io::Error);
