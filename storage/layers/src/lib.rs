//! Rows of a broker over the store's key-value interface: sessions, subscriptions and the filter index, streams,
//! retained messages, QoS 2 packet ids, due times, the catalog, accounts, usage and webhooks.
//!
//! Functions take the caller's [`millrace_storage::Transaction`], so that one transaction can combine several: a
//! publish is [`index::changes`], [`index::watch`], [`qos2::set`], [`streams::append`] and [`retained::set`], all or
//! nothing. [`Store`] runs common transactions. README.md has the table of all keys with their writers and readers.
//!
//! This crate never knows packets, sockets, the pods' network, a clock or a runtime. Times such as `at_ms` and
//! `now_ms` come in as unix milliseconds; messages, wills and session details are bytes. About topics it knows only
//! levels, wildcards and `$share`.
//!
//! A transaction may run twice although its first run was committed ([`millrace_storage::Attempt::maybe_committed`]).
//! Repeating these functions has no further effect, with two exceptions. [`streams::append`] appends twice, which
//! at-least-once delivery allows; at QoS 2, [`qos2::set`] in the same transaction shows that the packet id is there
//! already. [`usage`] and [`metering`] add twice, except [`metering::flush`].
//!
//! # Errors
//!
//! Every function that takes a transaction can fail with the store's error, [`LayerError::Store`]; its documentation only
//! names other errors.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]
// Tests hold several transactions open at once, to see which of them conflict.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod accounts;
pub mod catalog;
pub mod documents;
pub mod due;
mod error;
pub mod incidents;
pub mod index;
pub mod inspection;
pub mod limits;
pub mod metering;
mod name;
pub mod once;
pub mod pods;
mod position;
mod positions;
pub mod qos2;
pub mod recount;
pub mod retained;
mod rows;
mod session_record;
pub mod sessions;
pub mod shares;
mod store;
pub mod streams;
pub mod subscriptions;
mod tags;
#[cfg(test)]
mod testing;
mod tuple;
pub mod usage;
pub mod webhooks;

pub use error::{LayerError, LayerResult};
pub use name::GroupedFilter;
pub use position::Position;
pub use positions::Positions;
pub use store::{Store, halved, resized};

/// Id of a broker, the first element of all its keys; 0 is the region.
pub type BrokerId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId<'a> {
    pub broker: BrokerId,
    pub client: &'a [u8],
}
