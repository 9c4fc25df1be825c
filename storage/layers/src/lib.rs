//! What a broker keeps in the store, written once above its key-value interface: sessions, subscriptions and the filter index,
//! streams, retained messages, QoS 2 packet ids, due times, the catalog, and who uses the region.
//!
//! All functions take the caller's [`millrace_storage::Transaction`], so that several can be one transaction: a publish is
//! [`index::changes`], [`index::watch`], [`qos2::set`], [`streams::append`] and [`retained::set`], all or nothing.
//! [`Store`] runs the common ones by themselves. The table of all keys, with who writes and who reads each, is in README.md.
//!
//! This crate must never know packets, sockets, the pods' network, a clock or a runtime. Time comes in as unix milliseconds;
//! messages, wills and the details of sessions are bytes to it. Of topics it knows levels, wildcards and `$share`, no more.
//!
//! Transactions may be run twice, also when the first run did commit ([`millrace_storage::Attempt::maybe_committed`]). Everything
//! here may be done twice, with two exceptions to know: [`streams::append`] appends twice, which at-least-once allows (for QoS 2
//! the packet id, [`qos2::set`] in the same transaction, is there already), and what is added in [`usage`] and [`metering`] is added
//! twice, but for [`metering::flush`].

// Tests hold several transactions open at once, to see which of them conflict.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod accounts;
pub mod catalog;
pub mod documents;
pub mod due;
mod error;
pub mod incidents;
pub mod index;
pub mod limits;
pub mod look;
pub mod metering;
mod name;
pub mod once;
pub mod pods;
mod position;
pub mod qos2;
pub mod retained;
mod rows;
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

pub use error::{Error, Result};
pub use name::Filter;
pub use position::Position;
pub use store::{Store, resized};

/// The id of a broker: the first element of all its keys. 0 is the region.
pub type BrokerId = u64;
