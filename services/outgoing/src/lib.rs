//! HTTP calls to URLs that tenants gave, such as key sets and webhooks.
//!
//! A process has one [`HttpClient`]. It connects only to the public internet, whatever name or
//! literal hides the address, unless the operator allowed the network. It follows no redirects and
//! refuses URLs with credentials. Calls, connections and responses are bounded ([`limits`]), in
//! total and by host, so that one tenant's slow service does not take the capacity of all.
//!
//! This crate must not know brokers, tenants or the store.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

mod body;
mod call;
mod client;
mod connector;
mod error;
mod guard;
pub mod limits;
mod lookups;
mod permits;
mod resolver;
mod stored_url;
mod stream;

pub use call::{Call, Response};
pub use client::{CallSettings, HttpClient};
pub use error::CallError;
