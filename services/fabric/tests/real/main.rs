//! Fabrics on real NATS servers, on loopback and free ports. Without nats-server, which is
//! installed with Go, they are skipped.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what several tests share may fail a test, and say why"
)]

mod support;

mod bench;
mod churn;
mod cluster;
mod fanout;
mod large;
mod outage;
mod secure;
mod slow;
