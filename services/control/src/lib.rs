//! The control plane: what tenants do with the service, as operations and as an HTTP API.
//!
//! [`Control`] has the operations, each one transaction with its entry in the audit log. [`router`] is the API over
//! them and never touches the store. The API asks [`Live`] about connected clients.
//!
//! This crate never knows sockets, event loops or MQTT.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

mod api;
mod domain;
mod forgetting;
mod limits;
mod live;
mod network;
mod oidc;
mod secret;
mod webauthn;

pub use api::{
    ApiOptions, FabricState, GatewayPeer, HealthCheck, LocalDoor, OPERATOR_PATH, Operations, OwnPod, PATH,
    RequestMetrics, is_expensive, is_loopback_host, openapi, operator_openapi, operator_router, outside,
    router, unanswered,
};
pub use domain::*;
pub use limits::CHANGES_MAX;
pub use live::*;
pub use network::network;
pub use oidc::{OidcSettings, Visitor, oidc_issuer};
pub use secret::{NoEntropy, Secret, generate as random_secret, outside_secret};
