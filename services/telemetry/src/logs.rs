//! Converts events of `tracing` into log records.

use std::cell::Cell;
use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::items::{FieldValue, LogEntry, unix_ns};
use crate::queue::TelemetryQueue;

/// Bytes of the longest message or field; the rest is cut off.
const TEXT_BYTES_MAX: usize = 8192;
/// This crate logs that telemetry cannot be sent, so its own events are not exported.
const OWN_TARGET: &str = env!("CARGO_CRATE_NAME");

/// Target of events with secrets for the operator who started the process, such as the link of the
/// first account; they are never exported.
pub const SECRET_TARGET: &str = "millrace::secret";

thread_local! {
    static IS_EXPORTER: Cell<bool> = const { Cell::new(false) };
}

/// Excludes the calling thread's events. The exporter's HTTP client logs each request at debug, so
/// exporting these events would cause the next request.
pub(crate) fn exclude_this_thread() {
    IS_EXPORTER.set(true);
}

/// Queues every event that the subscriber's filter passes, except those of the exporter.
#[derive(Debug)]
pub struct LogLayer(pub TelemetryQueue);

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        // A thread that is ending has no thread-local values any more.
        let is_exporter = IS_EXPORTER.try_with(Cell::get).unwrap_or(false);
        if is_exporter || metadata.target().starts_with(OWN_TARGET) || metadata.target() == SECRET_TARGET {
            return;
        }
        let mut fields = LogFields::default();
        event.record(&mut fields);
        fields.all.push(("code.namespace", FieldValue::Text(metadata.target().to_owned())));
        self.0.record(LogEntry {
            time_ns: unix_ns(),
            level: *metadata.level(),
            message: fields.message,
            fields: fields.all,
        });
    }
}

#[derive(Default)]
struct LogFields {
    message: String,
    all: Vec<(&'static str, FieldValue)>,
}

impl Visit for LogFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.all.push((field.name(), FieldValue::Float(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.all.push((field.name(), FieldValue::Number(value)));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.all.push((
            field.name(),
            i64::try_from(value).map_or(FieldValue::Text(value.to_string()), FieldValue::Number),
        ));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.all.push((field.name(), FieldValue::Bool(value)));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }
}

impl LogFields {
    fn text(&mut self, field: &Field, mut text: String) {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        match field.name() {
            "message" => self.message = text,
            name => self.all.push((name, FieldValue::Text(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::queue::queue;

    #[test]
    fn an_event_keeps_its_level_message_and_fields() {
        let (queue, inbox) = queue();
        let subscriber = tracing_subscriber::registry().with(LogLayer(queue));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "millrace_edge", count = 3, client = "a", "it is {}", "slow");
            tracing::error!("of this crate: it is not exported");
            tracing::info!(target: SECRET_TARGET, "the first link: it is not exported");
            tracing::info!(target: "millrace_edge", long = "ä".repeat(TEXT_BYTES_MAX), "cut");
        });
        let found: Vec<_> = inbox.records.try_iter().collect();
        let [first, cut] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&*first.message, first.level, first.severity()), ("it is slow", Level::WARN, 13));
        assert_eq!(first.fields[0], ("count", FieldValue::Number(3)));
        assert_eq!(first.fields[1], ("client", FieldValue::Text("a".into())));
        assert_eq!(first.fields[2], ("code.namespace", FieldValue::Text("millrace_edge".into())));
        assert_eq!(cut.fields[0], ("long", FieldValue::Text("ä".repeat(TEXT_BYTES_MAX / 2))));
    }
}
