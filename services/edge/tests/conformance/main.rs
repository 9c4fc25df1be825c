//! Each normative statement of MQTT that binds a server, shown on a real edge over real sockets. The modules follow the
//! chapters of the standard; `make conformance` lists the statements.
#![allow(clippy::unwrap_used, clippy::panic, reason = "also what several tests share may fail a test")]

mod clock;
#[path = "../common/mod.rs"]
mod common;
mod v31;
mod v311_connect;
mod v311_publish;
mod v311_retain;
mod v311_session;
mod v311_subscribe;
mod v311_violations;
mod v311_websocket;
mod v311_will;
mod v5_connack;
mod v5_connect;
mod v5_errors;
mod v5_flow;
mod v5_publish;
mod v5_qos;
mod v5_session;
mod v5_shared;
mod v5_subscribe;
mod v5_will;
