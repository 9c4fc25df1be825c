//! Listeners and event loops that hold the connections and speak MQTT.
//!
//! One event loop a core. A loop owns its connections and the sessions of the client ids that fall to it; what several
//! loops need (brokers with their tries and retained messages) is shared as snapshots. This crate knows nothing of
//! command lines, files of settings or HTTP.

mod access;
mod admission;
mod authenticator;
mod authorization;
mod broker;
pub mod clients;
mod clock;
pub mod config;
mod connection_id;
mod core;
mod deliveries;
mod drain;
mod elsewhere;
mod encoding;
mod handover;
mod home;
mod incidents;
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
mod region;
mod reload;
mod reporters;
mod routes;
mod start;
mod store;
pub mod stored;
mod streams;
mod tls;
mod traces;
mod webhooks;

use millrace_transport::{origin, proxy, ws};

pub use broker::is_broker_name;
pub use config::{Authentication, Config};
pub use drain::{DrainPace, Draining};
pub use limits::{Limits, TOPIC_BYTES_MAX};
pub use millrace_fabric as fabric;
pub use millrace_outgoing as outgoing;
pub use millrace_transport::addresses::Networks;
pub use millrace_transport::tls::files::Files as TlsFiles;
pub use millrace_transport::ws::handshake::Origins;
pub use operate::Asking;
pub use start::{Edge, StartError, start, start_on};
pub use traces::{MessageSpan, SpanSink, TraceStep, Tracer};
