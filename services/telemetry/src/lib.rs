//! Exports metrics, traces and logs of this process over OTLP/HTTP, as protobuf.
//!
//! Metrics in Prometheus text, spans, and events of `tracing` come in. Requests to one
//! OpenTelemetry Collector go out, from one thread. Producers put spans and log records into
//! bounded queues and never wait: a full queue drops items and counts them. This crate must not
//! know MQTT, brokers or the store.

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

mod endpoint;
mod exporter;
mod items;
mod logs;
mod prometheus;
mod queue;
mod request;
mod sender;
mod spans;

pub use endpoint::CollectorEndpoint;
pub use exporter::{Exporter, OtlpSettings, TelemetrySource};
pub use items::{FieldValue, SPAN_ATTRIBUTES_MAX, SpanKind, TraceSpan};
pub use logs::{LogLayer, SECRET_TARGET};
pub use queue::{TelemetryInbox, TelemetryQueue, queue};
