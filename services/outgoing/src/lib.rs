//! HTTP calls to URLs that tenants gave.
//!
//! A [`Client`] is one for a process. It does not follow redirects, takes no part of a URL for a name or password, and never connects to
//! an address that is not of the public internet, whatever name or form of literal it hides behind, unless the operator has allowed its
//! network. Calls, connections and answers are bounded ([`limits`]), by host too, so that one tenant's slow service does not take all.
//!
//! This crate must never know brokers, tenants or the store.

mod call;
mod client;
mod connector;
mod error;
mod guard;
pub mod limits;
mod lookups;
mod places;
mod stream;

pub use call::{Answer, Call};
pub use client::{Client, Settings};
pub use error::Error;
