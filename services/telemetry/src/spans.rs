//! Encodes spans as an OTLP export request, in one pass and without copies of their texts. The types of `opentelemetry_proto` would
//! need some twenty allocations for each span, and compute the length of each span four times. A test compares both.

use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message as _;

use crate::items::{FieldValue, SpanKind, TraceSpan};
use crate::request::scope;

/// The sampled bit of a span's `flags`.
const SAMPLED: u32 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// Enough for most encoded spans.
const SPAN_BYTES: usize = 320;

/// Wire types of protobuf.
const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const DELIMITED: u32 = 2;
const FIXED_32: u32 = 5;

/// [`TraceSpan::source`] is an index of `resources`. A span with another source is left out.
pub(crate) fn request(spans: &[TraceSpan], resources: &[Resource]) -> Vec<u8> {
    let mut request = ProtobufFields(Vec::with_capacity(spans.len() * SPAN_BYTES));
    for (source, resource) in resources.iter().enumerate() {
        let mut of_source = spans.iter().filter(|span| span.source == source).peekable();
        if of_source.peek().is_none() {
            continue;
        }
        let head = ResourceSpans { resource: Some(resource.clone()), ..ResourceSpans::default() };
        request.nested(1, |resource_spans| {
            resource_spans.0.extend(head.encode_to_vec());
            resource_spans.nested(2, |scope_spans| {
                let head = ScopeSpans { scope: scope(), ..ScopeSpans::default() };
                scope_spans.0.extend(head.encode_to_vec());
                of_source.for_each(|span| scope_spans.nested(2, |fields| fields.span(span)));
            });
        });
    }
    request.0
}

/// Encoded fields of a protobuf message. As in all protobuf, a number of 0 and an empty text are left out.
struct ProtobufFields(Vec<u8>);

impl ProtobufFields {
    /// Field numbers of `opentelemetry.proto.trace.v1.Span`.
    fn span(&mut self, span: &TraceSpan) {
        self.bytes(1, &span.trace_id);
        self.bytes(2, &span.span_id);
        self.bytes(4, span.parent.as_ref().map_or(&[], |parent| parent));
        self.bytes(5, span.name.as_bytes());
        self.number(
            6,
            match span.kind {
                SpanKind::Internal => 1,
                SpanKind::Server => 2,
                SpanKind::Producer => 4,
                SpanKind::Consumer => 5,
            },
        );
        self.fixed_64(7, span.start_ns);
        self.fixed_64(8, span.end_ns.max(span.start_ns));
        for (key, value) in span.attributes.iter().flatten() {
            self.nested(9, |attribute| {
                attribute.bytes(1, key.as_bytes());
                attribute.nested(2, |any| any.value(value));
            });
        }
        if span.is_error {
            self.nested(15, |status| status.number(3, ERROR));
        }
        self.key(16, FIXED_32);
        self.0.extend(SAMPLED.to_le_bytes());
    }

    /// Field numbers of `opentelemetry.proto.common.v1.AnyValue`, a choice, so that empty values are written too.
    fn value(&mut self, value: &FieldValue) {
        match value {
            FieldValue::Text(text) => self.delimited(1, text.as_bytes()),
            FieldValue::Constant(text) => self.delimited(1, text.as_bytes()),
            FieldValue::Shared(text) => self.delimited(1, text.as_bytes()),
            FieldValue::Bool(yes) => {
                self.key(2, VARINT);
                self.varint(u64::from(*yes));
            }
            FieldValue::Number(number) => {
                self.key(3, VARINT);
                self.varint(number.cast_unsigned());
            }
            FieldValue::Float(number) => {
                self.key(4, FIXED_64);
                self.0.extend(number.to_le_bytes());
            }
        }
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint((field << 3 | wire_type).into());
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.key(field, VARINT);
            self.varint(number);
        }
    }

    fn fixed_64(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.key(field, FIXED_64);
            self.0.extend(number.to_le_bytes());
        }
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.delimited(field, bytes);
        }
    }

    fn delimited(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A message as a field. Its length precedes it, but is known only afterwards.
    fn nested(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.key(field, DELIMITED);
        let start = self.0.len();
        self.0.push(0);
        write(self);
        let length = (self.0.len() - start - 1) as u64;
        if length < 0x80 {
            self.0[start] = length.to_le_bytes()[0];
        } else {
            let end = self.0.len();
            self.varint(length);
            // From the end to its field in front of the message.
            let bytes = self.0.len() - end;
            self.0.remove(start);
            self.0[start..].rotate_right(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::trace::v1::{self as trace, Status, span::SpanKind as Kind, status};

    use super::*;
    use crate::items::tests::span;
    use crate::request::{attribute, resource};

    /// The span as the types of OTLP have it.
    fn otlp(span: &TraceSpan, kind: Kind) -> trace::Span {
        let failed = || Status { code: status::StatusCode::Error as i32, message: String::new() };
        let attributes = span.attributes.iter().flatten();
        trace::Span {
            trace_id: span.trace_id.to_vec(),
            span_id: span.span_id.to_vec(),
            parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.to_vec()),
            flags: SAMPLED,
            name: span.name.to_owned(),
            kind: kind as i32,
            start_time_unix_nano: span.start_ns,
            end_time_unix_nano: span.end_ns.max(span.start_ns),
            attributes: attributes.map(|(key, value)| attribute(key, value.clone())).collect(),
            status: span.is_error.then(failed),
            ..trace::Span::default()
        }
    }

    fn attributes(values: [FieldValue; 5]) -> [Option<(&'static str, FieldValue)>; 5] {
        values.map(|value| Some(("key", value)))
    }

    #[test]
    fn bytes_are_those_of_the_types_of_otlp() {
        let long = "x".repeat(300);
        let kinds = [
            (SpanKind::Internal, Kind::Internal),
            (SpanKind::Server, Kind::Server),
            (SpanKind::Producer, Kind::Producer),
            (SpanKind::Consumer, Kind::Consumer),
        ];
        let values = [
            FieldValue::Number(-1),
            FieldValue::Float(0.5),
            FieldValue::Bool(false),
            FieldValue::Shared("".into()),
            FieldValue::Text(long.clone()),
        ];
        let mut spans = vec![
            TraceSpan { attributes: attributes(values), ..span("a") },
            TraceSpan { parent: Some([9; 8]), start_ns: 0, end_ns: u64::MAX, is_error: false, ..span(&long) },
        ];
        spans.extend(kinds.map(|(kind, _)| TraceSpan { kind, ..span("") }));
        let resources = [resource(&[("pod", FieldValue::Number(1))])];
        let kind_of = |span: &TraceSpan| kinds.iter().find(|(kind, _)| *kind == span.kind).unwrap().1;
        let scope_spans = ScopeSpans {
            scope: scope(),
            spans: spans.iter().map(|span| otlp(span, kind_of(span))).collect(),
            ..ScopeSpans::default()
        };
        let wanted = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(resources[0].clone()),
                scope_spans: vec![scope_spans],
                ..ResourceSpans::default()
            }],
        };
        let bytes = request(&spans, &resources);
        assert_eq!(ExportTraceServiceRequest::decode(&bytes[..]).unwrap(), wanted);
        assert_eq!(bytes, wanted.encode_to_vec());
    }

    #[test]
    fn spans_come_under_the_resource_of_their_source() {
        let resources =
            [resource(&[("pod", FieldValue::Number(1))]), resource(&[("pod", FieldValue::Number(2))])];
        let spans = [TraceSpan { source: 1, ..span("a") }, TraceSpan { source: 9, ..span("of nobody") }];
        let request = ExportTraceServiceRequest::decode(&request(&spans, &resources)[..]).unwrap();
        let [of_source] = &request.resource_spans[..] else { panic!("{request:?}") };
        assert_eq!(of_source.resource.as_ref(), Some(&resources[1]));
        let [span] = &of_source.scope_spans[0].spans[..] else { panic!("{request:?}") };
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (5, 5), "time never runs backwards");
    }
}
