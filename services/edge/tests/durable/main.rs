//! State that survives the process: edges one after the other on one store.

#![allow(clippy::unwrap_used, clippy::panic, reason = "also what several tests share may fail a test")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../fabric/tests/real/support/relay.rs"]
mod relay;
#[path = "../../../fabric/tests/real/support/server.rs"]
mod server;
#[path = "../hostile/tools.rs"]
#[allow(dead_code, reason = "shared with the tests of hostile clients; a part is used here")]
mod tools;

mod access;
mod away;
mod brokers;
mod checkpoints;
mod client_traces;
mod clients;
mod digests;
mod drain;
mod expiry;
mod files;
mod full;
mod history;
mod hooks;
mod idle;
mod inflight;
mod key_sets;
mod leases;
mod limits;
mod no_local;
mod one_open;
mod order;
mod pods;
mod qos2_from_publishers;
mod qos2_to_subscribers;
mod region;
mod replays_due;
mod resubscribe;
mod retained;
mod revoked;
mod scram;
mod service;
mod sessions;
mod shared;
mod shared_pods;
mod slow;
mod steps;
mod store;
mod subscribing;
mod takeover;
mod usage;
mod webhooks;
mod will_rights;
mod wills;
