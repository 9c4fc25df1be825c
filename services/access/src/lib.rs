//! Who may connect to a broker and what they may do.
//!
//! - [`model`]: the records that the control plane stores and the edge reads.
//! - [`rules`]: what a client may publish and subscribe to.
//! - [`bans`]: who may not connect, whatever they show.
//! - [`entry`]: a CONNECT through all methods of a broker, step by step.
//! - [`jwt`]: tokens, their issuers, and when to fetch an issuer's keys.
//! - [`secrets`]: what passwords are checked against.
//! - [`x509`]: client certificates of a tenant's own authorities.
//! - [`scram`]: SCRAM-SHA-256, in which the password is not sent.
//! - [`webhook`]: what a service of the tenant's is asked, and what its answer means.
//! - [`files`]: the password file and the rules file of a single machine.
//!
//! This crate must never know sockets, the store, threads or the machine's clock: time and randomness come in as arguments, and
//! whatever must be fetched is said, not fetched.

pub mod bans;
pub mod connect_token;
pub mod entry;
pub mod files;
pub mod jwt;
pub mod limits;
pub mod model;
pub mod rules;
pub mod scram;
pub mod secrets;
pub mod webhook;
pub mod x509;
