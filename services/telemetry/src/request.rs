//! Requests of OTLP: what this crate is given, in the messages of the specification.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{self as trace, ResourceSpans, ScopeSpans, Status, status};

use crate::logs::Record;

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Any other number.
    Float(f64),
    /// Yes or no.
    Bool(bool),
}

/// The part that a span plays between services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A step inside this process.
    Internal,
    /// It answers a request.
    Server,
    /// It hands a message to a receiver.
    Producer,
    /// It takes a message from a sender.
    Consumer,
}

/// A finished span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Which of the exporter's [`crate::Source`]s it is of.
    pub source: usize,
    /// Not all zero.
    pub trace_id: [u8; 16],
    /// Not all zero.
    pub span_id: [u8; 8],
    /// `None` for the first of a trace.
    pub parent: Option<[u8; 8]>,
    /// What was done.
    pub name: &'static str,
    /// The part that it plays.
    pub kind: SpanKind,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    /// Nanoseconds since 1970.
    pub end_ns: u64,
    /// Keys and values.
    pub attributes: Vec<(&'static str, Value)>,
    /// Whether what was done has failed.
    pub is_error: bool,
}

/// The attributes of a source.
pub(crate) fn resource(attributes: &[(&'static str, Value)]) -> Resource {
    let attributes = attributes.iter().map(|(key, value)| attribute(key, value.clone())).collect();
    Resource { attributes, ..Resource::default() }
}

pub(crate) fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(any(value)), ..KeyValue::default() }
}

fn any(value: Value) -> AnyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::StringValue(text),
        Value::Number(number) => any_value::Value::IntValue(number),
        Value::Float(number) => any_value::Value::DoubleValue(number),
        Value::Bool(yes) => any_value::Value::BoolValue(yes),
    };
    AnyValue { value: Some(value) }
}

fn scope() -> Option<InstrumentationScope> {
    let (name, version) = ("millrace".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Some(InstrumentationScope { name, version, ..InstrumentationScope::default() })
}

pub(crate) fn of_metrics(all: Vec<(Resource, Vec<Metric>)>) -> ExportMetricsServiceRequest {
    let of_source = |(resource, metrics)| ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![ScopeMetrics { scope: scope(), metrics, schema_url: String::new() }],
        schema_url: String::new(),
    };
    ExportMetricsServiceRequest { resource_metrics: all.into_iter().map(of_source).collect() }
}

/// `resources` are those of the sources, in order.
pub(crate) fn of_spans(spans: Vec<Span>, resources: &[Resource]) -> ExportTraceServiceRequest {
    let mut by_source: Vec<Vec<trace::Span>> = resources.iter().map(|_| Vec::new()).collect();
    for span in spans {
        if let Some(spans) = by_source.get_mut(span.source) {
            spans.push(span.into());
        }
    }
    let used = resources.iter().zip(by_source).filter(|(_, spans)| !spans.is_empty());
    let of_source = |(resource, spans): (&Resource, _)| ResourceSpans {
        resource: Some(resource.clone()),
        scope_spans: vec![ScopeSpans { scope: scope(), spans, schema_url: String::new() }],
        schema_url: String::new(),
    };
    ExportTraceServiceRequest { resource_spans: used.map(of_source).collect() }
}

/// Log lines are of the process: they come under its first source.
pub(crate) fn of_records(records: Vec<Record>, resource: &Resource) -> ExportLogsServiceRequest {
    let log_records = records.into_iter().map(LogRecord::from).collect();
    let scope_logs = vec![ScopeLogs { scope: scope(), log_records, schema_url: String::new() }];
    let resource = Some(resource.clone());
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs { resource, scope_logs, schema_url: String::new() }],
    }
}

/// `flags` of a span that is sampled.
const SAMPLED: u32 = 1;

impl From<Span> for trace::Span {
    fn from(span: Span) -> Self {
        let kind = match span.kind {
            SpanKind::Internal => trace::span::SpanKind::Internal,
            SpanKind::Server => trace::span::SpanKind::Server,
            SpanKind::Producer => trace::span::SpanKind::Producer,
            SpanKind::Consumer => trace::span::SpanKind::Consumer,
        };
        let failed = || Status { code: status::StatusCode::Error as i32, message: String::new() };
        Self {
            trace_id: span.trace_id.to_vec(),
            span_id: span.span_id.to_vec(),
            parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.to_vec()),
            flags: SAMPLED,
            name: span.name.to_owned(),
            kind: kind as i32,
            start_time_unix_nano: span.start_ns,
            end_time_unix_nano: span.end_ns.max(span.start_ns),
            attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
            status: span.is_error.then(failed),
            ..Self::default()
        }
    }
}

impl From<Record> for LogRecord {
    fn from(record: Record) -> Self {
        Self {
            time_unix_nano: record.time_ns,
            observed_time_unix_nano: record.time_ns,
            severity_number: record.severity(),
            severity_text: record.level.to_string(),
            body: Some(any(Value::Text(record.message))),
            attributes: record.fields.into_iter().map(|(key, value)| attribute(key, value)).collect(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn span(topic: &str) -> Span {
        Span {
            source: 0,
            trace_id: [7; 16],
            span_id: [8; 8],
            parent: None,
            name: "publish",
            kind: SpanKind::Server,
            start_ns: 5,
            end_ns: 4,
            attributes: vec![("topic", Value::Text(topic.to_owned()))],
            is_error: true,
        }
    }

    #[test]
    fn spans_come_under_the_resource_of_their_source() {
        let resources = [resource(&[("pod", Value::Number(1))]), resource(&[("pod", Value::Number(2))])];
        let spans = vec![Span { source: 1, ..span("a") }, Span { source: 9, ..span("of nobody") }];
        let request = of_spans(spans, &resources);
        let [of_source] = &request.resource_spans[..] else { panic!("{request:?}") };
        assert_eq!(of_source.resource.as_ref(), Some(&resources[1]));
        let span = &of_source.scope_spans[0].spans[0];
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (5, 5), "time never runs backwards");
        assert!(span.parent_span_id.is_empty() && span.status.is_some());
    }
}
