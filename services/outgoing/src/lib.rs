//! HTTP calls to URLs that tenants gave.
//!
//! A process has one [`HttpClient`]. It does not follow redirects and refuses URLs with
//! credentials. It connects only to the public internet, whatever name or literal hides the
//! address, unless the operator has allowed the network. Calls, connections and responses are
//! bounded ([`limits`]), also by host, so that one tenant's slow service does not take the capacity
//! of all.
//!
//! This crate never knows brokers, tenants or the store.

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
mod stream;

pub use call::{Call, Response};
pub use client::{CallSettings, HttpClient};
pub use error::CallError;
