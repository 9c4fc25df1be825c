//! Converts log records and metrics into OTLP export requests. Spans have a module of their own, because they are many.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::items::{FieldValue, LogEntry};

pub(crate) fn resource(attributes: &[(&'static str, FieldValue)]) -> Resource {
    let attributes = attributes.iter().map(|(key, value)| attribute(key, value.clone())).collect();
    Resource { attributes, ..Resource::default() }
}

pub(crate) fn attribute(key: &str, value: FieldValue) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(any(value)), ..KeyValue::default() }
}

fn any(value: FieldValue) -> AnyValue {
    let value = match value {
        FieldValue::Text(text) => any_value::Value::StringValue(text),
        FieldValue::Constant(text) => any_value::Value::StringValue(text.to_owned()),
        FieldValue::Shared(text) => any_value::Value::StringValue(text.as_ref().to_owned()),
        FieldValue::Number(number) => any_value::Value::IntValue(number),
        FieldValue::Float(number) => any_value::Value::DoubleValue(number),
        FieldValue::Bool(yes) => any_value::Value::BoolValue(yes),
    };
    AnyValue { value: Some(value) }
}

pub(crate) fn scope() -> Option<InstrumentationScope> {
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

/// Log records belong to the process as a whole, so they go under its first source.
pub(crate) fn of_records(records: Vec<LogEntry>, resource: &Resource) -> ExportLogsServiceRequest {
    let log_records = records.into_iter().map(LogRecord::from).collect();
    let scope_logs = vec![ScopeLogs { scope: scope(), log_records, schema_url: String::new() }];
    let resource = Some(resource.clone());
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs { resource, scope_logs, schema_url: String::new() }],
    }
}

impl From<LogEntry> for LogRecord {
    fn from(record: LogEntry) -> Self {
        Self {
            time_unix_nano: record.time_ns,
            observed_time_unix_nano: record.time_ns,
            severity_number: record.severity(),
            severity_text: record.level.to_string(),
            body: Some(any(FieldValue::Text(record.message))),
            attributes: record.fields.into_iter().map(|(key, value)| attribute(key, value)).collect(),
            ..Self::default()
        }
    }
}
