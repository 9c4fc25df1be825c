//! Exports metrics, traces and logs of this process over OTLP/HTTP, as protobuf.
//!
//! In: metrics in Prometheus text, which the program makes anyway; spans; events of `tracing`. Out: requests to one OpenTelemetry
//! Collector. One thread sends. Producers put spans and log records into bounded queues and never wait for that thread: what does
//! not fit is dropped and counted. This crate knows nothing of MQTT, brokers or the store.

mod endpoint;
mod exporter;
mod logs;
mod prometheus;
mod queue;
mod request;
mod sender;

pub use endpoint::Endpoint;
pub use exporter::{Exporter, Settings, Source};
pub use logs::{LogLayer, SECRET_TARGET};
pub use queue::{Inbox, Queue, queue};
pub use request::{Span, SpanKind, Value};
