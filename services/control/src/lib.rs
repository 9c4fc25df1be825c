//! The control plane: what a tenant does with the service, as operations and as an HTTP API.
//!
//! [`Control`] has the operations, each one transaction with its entry in the audit log; [`router`] is the API over them, which
//! never touches the store; [`Live`] is what the API asks who holds the connections.
//!
//! This crate must never know sockets, event loops or MQTT. What the edge knows of live clients comes in through a trait.

mod api;
mod domain;
mod limits;
mod live;
mod oidc;
mod secret;

pub use api::{
    Fabric, LocalDoor, OPERATOR_PATH, Operations, Options, OwnPod, PATH, openapi, operator_openapi,
    operator_router, router,
};
pub use domain::*;
pub use live::*;
pub use oidc::{OidcSettings, oidc_issuer};
pub use secret::{NoEntropy, Secret, generate as random_secret, outside_secret};
