//! The HTTP API as a client sees it, over the store in memory.

mod accounts;
mod brokers;
mod contract;
mod credentials;
mod parts;
mod requests;
mod tenancy;
mod tokens;
mod tools;
