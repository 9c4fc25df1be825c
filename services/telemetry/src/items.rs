//! The items that producers queue and the exporting thread sends: spans and log records.

use std::sync::Arc;
use std::time::SystemTime;

use tracing::Level;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Metrics,
    Traces,
    Logs,
}

impl Signal {
    pub(crate) const ALL: [Self; 3] = [Self::Metrics, Self::Traces, Self::Logs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
            Self::Logs => "logs",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    Text(String),
    Constant(&'static str),
    /// A text that the producer has already, so that it need not copy it.
    Shared(Arc<str>),
    Number(i64),
    Float(f64),
    Bool(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal,
    Server,
    Producer,
    Consumer,
}

/// Most attributes of a span. They are part of it, because event loops make spans and an allocation is a large part of that cost.
pub const SPAN_ATTRIBUTES_MAX: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub struct TraceSpan {
    /// Index into the `sources` of [`crate::OtlpSettings`].
    pub source: usize,
    /// Ids are not all zero.
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    /// `None` for the first span of a trace.
    pub parent: Option<[u8; 8]>,
    pub name: &'static str,
    pub kind: SpanKind,
    /// Both times are nanoseconds since 1970.
    pub start_ns: u64,
    pub end_ns: u64,
    pub attributes: [Option<(&'static str, FieldValue)>; SPAN_ATTRIBUTES_MAX],
    pub is_error: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    pub(crate) time_ns: u64,
    pub(crate) level: Level,
    pub(crate) message: String,
    pub(crate) fields: Vec<(&'static str, FieldValue)>,
}

impl LogEntry {
    /// `SeverityNumber` of OTLP.
    pub(crate) fn severity(&self) -> i32 {
        match self.level {
            Level::ERROR => 17,
            Level::WARN => 13,
            Level::INFO => 9,
            Level::DEBUG => 5,
            Level::TRACE => 1,
        }
    }
}

#[allow(clippy::disallowed_methods)]
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn span(topic: &str) -> TraceSpan {
        TraceSpan {
            source: 0,
            trace_id: [7; 16],
            span_id: [8; 8],
            parent: None,
            name: "publish",
            kind: SpanKind::Server,
            start_ns: 5,
            end_ns: 4,
            attributes: [Some(("topic", FieldValue::Text(topic.to_owned()))), None, None, None, None],
            is_error: true,
        }
    }
}
