//! Listeners and event loops that hold the connections and speak MQTT.
//!
//! One event loop a core. A loop owns its connections and the sessions of the client ids that fall to it; what several
//! loops need (brokers with their tries and retained messages) is shared as snapshots. This crate knows nothing of
//! command lines, files of settings or HTTP.
//!
//! Imports run one way; `.ci/structure/check.py` fails on a circle. From the bottom:
//!
//! 1. values without a broker: `limits`, `clock`, `metrics`, `traces`, `client_traces`, `config`, `home`, `outbound`, `encoding`;
//! 2. `broker`, the shared state of a tenant's broker, above its parts: `quota`, `incidents`, `metering`, `streams`, `elsewhere`,
//!    `authorization`;
//! 3. data that threads exchange: `routes`, `deliveries`, `jobs`, `clients`, `handover`, and `mailbox`, which carries them;
//! 4. parts with threads of their own, which know mail and no event loop: `access`, `authenticator`, `region`, `webhooks`, `store`,
//!    `reporters`;
//! 5. `process` owns all of them, `core` is the event loop, and `start` and `operate` are the crate's interface.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

mod access;
mod admission;
mod authenticator;
mod authorization;
mod broker;
mod check_files;
pub mod client_traces;
pub mod clients;
mod clock;
pub mod config;
mod connection_id;
mod core;
mod deliveries;
mod drain;
mod elsewhere;
mod encoding;
mod fair_queue;
mod files;
mod handover;
mod home;
mod incidents;
mod incomplete_packets;
mod jobs;
mod limits;
mod mailbox;
mod memory;
mod metering;
mod metrics;
mod operate;
mod outbound;
mod process;
mod quota;
mod random;
mod recent_peers;
mod region;
mod reload;
mod reporters;
mod routes;
mod shares;
mod start;
mod store;
pub mod stored;
mod streams;
mod tls;
mod traces;
mod webhooks;

use millrace_transport::{origin, proxy, ws};

pub use broker::is_broker_name;
pub use check_files::check_files;
pub use config::{Authentication, Config};
pub use drain::{DrainRate, Draining};
pub use files::reserved_files;
pub use limits::{EdgeLimits, TOPIC_BYTES_MAX};
pub use millrace_fabric as fabric;
pub use millrace_outgoing as outgoing;
pub use millrace_transport::addresses::Networks;
pub use millrace_transport::tls::files::Files as TlsFiles;
pub use millrace_transport::ws::handshake::Origins;
pub use operate::Asking;
pub use recent_peers::{RecentPeer, RecentPeers};
pub use start::{Edge, StartError, start, start_on};
pub use traces::{MessageSpan, SpanSink, TraceStep, Tracer};
