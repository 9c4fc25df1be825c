//! Password checks on threads of their own, because each takes tens of milliseconds, and the fair
//! queue of clients that wait for a thread.
//!
//! A caller submits a request and gets one result, at once or on the sender that it passed at the
//! start. `millrace-access` orders the authentication methods and says what they mean. This crate
//! must not know event loops, sockets, MQTT or the store.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

mod cancel;
pub mod passwords;
mod queue;
mod rotation;
mod source;

pub use cancel::{Cancellation, PendingRequest};
pub use queue::{AuthenticationQueue, Pushed, QueueLimits};
pub use source::ClientSource;

#[derive(Debug, thiserror::Error)]
#[error("cannot start a thread: {0}")]
pub struct ThreadError(#[from] std::io::Error);
