//! The connection to NATS: choice of the server, options, state.

pub(crate) mod options;
mod servers;
pub(crate) mod state;
