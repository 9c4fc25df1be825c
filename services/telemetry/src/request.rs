//! Converts spans, log records and metrics into OTLP export requests.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{self as trace, ResourceSpans, ScopeSpans, Status, status};

use crate::items::{Record, SpanKind, TraceSpan, Value};

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

/// [`TraceSpan::source`] is an index of `resources`. A span with another source is dropped.
pub(crate) fn of_spans(spans: Vec<TraceSpan>, resources: &[Resource]) -> ExportTraceServiceRequest {
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

/// Log records belong to the process as a whole, so they go under its first source.
pub(crate) fn of_records(records: Vec<Record>, resource: &Resource) -> ExportLogsServiceRequest {
    let log_records = records.into_iter().map(LogRecord::from).collect();
    let scope_logs = vec![ScopeLogs { scope: scope(), log_records, schema_url: String::new() }];
    let resource = Some(resource.clone());
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs { resource, scope_logs, schema_url: String::new() }],
    }
}

/// The sampled bit of a span's `flags`.
const SAMPLED: u32 = 1;

impl From<TraceSpan> for trace::Span {
    fn from(span: TraceSpan) -> Self {
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
mod tests {
    use super::*;
    use crate::items::tests::span;

    #[test]
    fn spans_come_under_the_resource_of_their_source() {
        let resources = [resource(&[("pod", Value::Number(1))]), resource(&[("pod", Value::Number(2))])];
        let spans = vec![TraceSpan { source: 1, ..span("a") }, TraceSpan { source: 9, ..span("of nobody") }];
        let request = of_spans(spans, &resources);
        let [of_source] = &request.resource_spans[..] else { panic!("{request:?}") };
        assert_eq!(of_source.resource.as_ref(), Some(&resources[1]));
        let span = &of_source.scope_spans[0].spans[0];
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (5, 5), "time never runs backwards");
        assert!(span.parent_span_id.is_empty() && span.status.is_some());
    }
}
