//! Checks a record of an MQTT broker's clients against the broker's promises.
//!
//! A [`history::History`] has all packets that the clients of one run sent and received.
//! [`checker::check`] reads it and returns the violations. Neither knows a broker, a socket or a
//! clock, so a history can be written by hand.

// The programs of this crate are its only users, and most names of fields and methods say all.
#![allow(missing_docs)]

pub mod checker;
pub mod closing;
mod event;
pub mod history;
