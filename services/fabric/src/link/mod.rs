//! The connection to NATS: which server, how, and how it is.

pub(crate) mod options;
mod servers;
pub(crate) mod state;
