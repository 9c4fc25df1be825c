//! Clients that mean no good, are broken, slow or far too many, against a real edge over real sockets. Each test is
//! named after what the edge promises all the same, and looks at what it counted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "also what several tests share may fail a test")]

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod admission;
mod alive;
mod amplify;
mod cores;
mod drain;
mod ended_sessions;
mod garbage;
mod homes;
mod limits;
mod pipelined;
mod proxy;
mod shared;
mod shutdown;
mod slow;
mod takeover;
mod tls;
mod tools;
mod websocket;
mod wills;
mod ws;
