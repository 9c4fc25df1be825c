//! What clients of an MQTT broker saw, and whether the broker kept its promises.
//!
//! A [`history::History`] is all that the clients of one run sent and received, in one order; [`checker::check`] reads
//! it and names what must not be. Neither knows a broker, a socket or a clock: a history can be written by hand.

pub mod checker;
mod event;
pub mod history;
