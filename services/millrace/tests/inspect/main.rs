//! The commands that look into a store, as the built program: on a stopped data folder and on a
//! running server.
#![allow(clippy::unwrap_used, reason = "helpers of tests, where a panic is the failure")]

mod clusters;
mod copies;
mod running;
mod stopped;
mod tools;
