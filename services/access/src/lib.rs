//! Authentication and authorization of MQTT clients: who a client is, and what it can publish and
//! subscribe to.
//!
//! - [`model`]: the records that the control plane stores and the edge reads.
//! - [`rules`]: authorization of publishes and subscriptions.
//! - [`bans`]: clients that are refused whatever they present.
//! - [`entry`]: a CONNECT through all methods of a broker, step by step.
//! - [`connect_token`]: short-lived passwords that the control plane signs.
//! - [`jwt`]: tokens, their issuers, and when to fetch an issuer's keys.
//! - [`secrets`]: hashes of passwords.
//! - [`x509`]: client certificates of a tenant's own authorities.
//! - [`scram`]: SCRAM-SHA-256, which does not send the password.
//! - [`webhook`]: the request to a tenant's HTTP service, and the meaning of its response.
//! - [`files`]: the password file and the rules file of a single machine.
//!
//! This crate must not know sockets, the store, threads or the machine's clock. Time and randomness
//! are arguments, and the caller does all I/O.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

pub mod bans;
pub mod connect_token;
pub mod entry;
pub mod files;
pub mod jwt;
pub mod limits;
pub mod model;
mod phc;
pub mod rules;
pub mod scram;
pub mod secrets;
pub mod webhook;
pub mod x509;
