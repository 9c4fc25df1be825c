//! The HTTP API as a client sees it, over the store in memory.
#![allow(clippy::unwrap_used, reason = "helpers of tests, where a panic is the failure")]

mod account_links;
mod accounts;
mod audit;
mod bodies;
mod bounds;
mod brokers;
mod budget;
mod contract;
mod credentials;
mod described;
mod export;
mod fleets;
mod full_disk;
mod hashing;
mod held_bodies;
mod incidents;
mod local;
mod mail;
mod metrics;
mod oidc;
mod operator;
mod parts;
mod passkeys;
mod requests;
mod rotations;
mod second_factor;
mod sign_in_limits;
mod tenancy;
mod tokens;
mod tools;
mod usage;
mod webhooks;
