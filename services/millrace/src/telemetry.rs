//! Settings of the export of metrics, traces and logs, and the resource attributes of each pod.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use millrace_edge::{MessageSpan, SpanSink, TraceStep, Tracer};
use millrace_telemetry::{
    CollectorEndpoint, Exporter, FieldValue, LogLayer, OtlpSettings, SpanKind, TelemetryInbox,
    TelemetryQueue, TelemetrySource, TraceSpan,
};

use crate::limits::whole_number;

/// A server that has stopped waits this long for the collector.
const END_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Args)]
pub(crate) struct TelemetryArgs {
    /// OpenTelemetry collector that receives metrics, traces and log lines over OTLP/HTTP, such as
    /// http://127.0.0.1:4318; "off" or an empty text sends nothing. The server drops and counts
    /// data that the collector does not take in time.
    #[arg(long, value_name = "URL", default_value = "off", value_parser = endpoint)]
    pub(crate) otlp_endpoint: Collector,

    /// Seconds between two exports of metrics. Set 0, which exports none, where a scrape reads
    /// /metrics: both together would count twice.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    #[arg(value_parser = whole_number::<u16>(0, 3600))]
    pub(crate) otlp_interval_s: u16,

    /// Share of the messages that the server traces, from 0 to 1. Each traced message costs CPU.
    /// With 0 the server traces only messages whose publishers ask for it with a sampled
    /// traceparent.
    #[arg(long, value_name = "RATIO", default_value_t = 0.0, value_parser = ratio)]
    pub(crate) trace_ratio: f64,

    /// Most traced messages a second; each event loop has an equal part, rounded up. Messages whose
    /// publishers ask for it take at most half, those of one broker a quarter. Further samples count
    /// as over_rate, and cost nothing. 0 traces none.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    #[arg(value_parser = whole_number::<u32>(0, 100_000))]
    pub(crate) traces_per_second_max: u32,
}

impl TelemetryArgs {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.trace_ratio > 0.0 && self.otlp_endpoint == Collector::Off {
            return Err(
                "trace_ratio follows messages, but nothing says where traces go: set otlp_endpoint too"
                    .into(),
            );
        }
        Ok(())
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("a number from 0 to 1 is allowed, such as 0.01 for one of a hundred messages".into()),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Collector {
    Off,
    At(CollectorEndpoint),
}

fn endpoint(text: &str) -> Result<Collector, String> {
    match text {
        "" | "off" => Ok(Collector::Off),
        url => url.parse().map(Collector::At).map_err(|what: String| format!("{what}, or \"off\"")),
    }
}

/// Exists before the pods start, so that log lines are queued from the beginning.
pub(crate) struct Telemetry {
    settings: Option<(CollectorEndpoint, Option<Duration>)>,
    traces: (f64, u32),
    queue: Option<TelemetryQueue>,
    inbox: Option<TelemetryInbox>,
}

impl Telemetry {
    pub(crate) fn new(args: &TelemetryArgs) -> Self {
        let traces = (args.trace_ratio, args.traces_per_second_max);
        let Collector::At(endpoint) = &args.otlp_endpoint else {
            return Self { settings: None, traces, queue: None, inbox: None };
        };
        let (queue, inbox) = millrace_telemetry::queue();
        let interval = Some(args.otlp_interval_s).filter(|seconds| *seconds > 0);
        let interval = interval.map(|seconds| Duration::from_secs(seconds.into()));
        let settings = Some((endpoint.clone(), interval));
        Self { settings, traces, queue: Some(queue), inbox: Some(inbox) }
    }

    pub(crate) fn log_layer(&self) -> Option<LogLayer> {
        self.queue.clone().map(LogLayer)
    }

    /// Pods put their data here; `None` without a collector.
    pub(crate) fn queue(&self) -> Option<&TelemetryQueue> {
        self.queue.as_ref()
    }

    /// `source` is the number of the pod, from 0; `None` when no messages are traced.
    pub(crate) fn tracer(&self, source: usize) -> Option<Arc<Tracer>> {
        let (ratio, per_second_max) = self.traces;
        let queue = self.queue.clone().filter(|_| per_second_max > 0)?;
        Some(Arc::new(Tracer::new(Arc::new(Spans { queue, source }), ratio, per_second_max)))
    }

    /// A pod's position in `sources` is the number that [`Self::tracer`] got.
    pub(crate) fn start(self, sources: Vec<TelemetrySource>) -> Result<Option<Exporter>, String> {
        let (Some((endpoint, interval)), Some(inbox)) = (self.settings, self.inbox) else {
            return Ok(None);
        };
        let shown = endpoint.to_string();
        let exporter = Exporter::start(OtlpSettings { endpoint, interval, end_max: END_MAX, sources }, inbox);
        exporter.map(Some).map_err(|error| {
            format!(
                "telemetry cannot be sent to {shown}: {error}; set otlp_endpoint to \"off\" to continue without it"
            )
        })
    }
}

struct Spans {
    queue: TelemetryQueue,
    source: usize,
}

impl SpanSink for Spans {
    fn has_room(&self) -> bool {
        self.queue.has_room_for_spans()
    }

    fn span(&self, span: MessageSpan) {
        let kind = match span.step {
            TraceStep::Publish => SpanKind::Server,
            TraceStep::Deliver => SpanKind::Producer,
            TraceStep::Fabric => SpanKind::Consumer,
            _ => SpanKind::Internal,
        };
        let count = i64::try_from(span.count).unwrap_or(i64::MAX);
        // Names follow OpenTelemetry's conventions for messaging, where these have one.
        let counted = match span.step {
            TraceStep::Deliver => Some(("millrace.receivers", FieldValue::Number(count))),
            TraceStep::Commit => Some(("millrace.transaction.jobs", FieldValue::Number(count))),
            _ => None,
        };
        let attributes = [
            Some(("messaging.system", FieldValue::Constant("mqtt"))),
            Some(("messaging.destination.name", FieldValue::Shared(span.topic))),
            Some(("millrace.broker", FieldValue::Shared(span.broker))),
            Some(("millrace.qos", FieldValue::Number(span.qos as i64))),
            counted,
        ];
        self.queue.span(TraceSpan {
            source: self.source,
            trace_id: span.trace_id,
            span_id: span.span_id,
            parent: span.parent,
            name: span.step.name(),
            kind,
            start_ns: span.start_ns,
            end_ns: span.end_ns,
            attributes,
            is_error: span.is_error,
        });
    }
}

/// Attributes of a pod, named by OpenTelemetry's conventions for resources. `http` is the address
/// that Prometheus scrapes.
pub(crate) fn source(
    pod: Option<&str>,
    http: Option<SocketAddr>,
    metrics: impl Fn() -> Option<String> + Send + 'static,
) -> TelemetrySource {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let instance = match (pod, http) {
        (Some(name), _) => name.to_owned(),
        // The form in which Prometheus names a scraped page.
        (None, Some(http)) => format!("{host}:{}", http.port()),
        (None, None) => host.clone(),
    };
    let text = |text: &str| FieldValue::Text(text.to_owned());
    TelemetrySource {
        attributes: vec![
            ("service.name", text("millrace")),
            ("service.version", text(env!("CARGO_PKG_VERSION"))),
            ("service.instance.id", FieldValue::Text(instance)),
            ("host.name", FieldValue::Text(host)),
            ("process.pid", FieldValue::Number(i64::from(std::process::id()))),
        ],
        metrics: Box::new(metrics),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_a_part_of_one_and_needs_a_collector() {
        assert_eq!((ratio("0"), ratio("0.01"), ratio("1")), (Ok(0.0), Ok(0.01), Ok(1.0)));
        for text in ["-0.1", "1.1", "NaN", "1%", ""] {
            assert!(ratio(text).is_err(), "{text}");
        }
        let args = |otlp_endpoint| TelemetryArgs {
            otlp_endpoint,
            otlp_interval_s: 10,
            trace_ratio: 0.01,
            traces_per_second_max: 100,
        };
        assert!(args(Collector::Off).check().is_err());
        assert_eq!(args(endpoint("http://a").unwrap()).check(), Ok(()));
    }

    #[test]
    fn publishers_can_ask_for_traces_at_ratio_0_unless_the_rate_is_0_too() {
        let tracer = |url, traces_per_second_max| {
            let otlp_endpoint = endpoint(url).unwrap();
            let args =
                TelemetryArgs { otlp_endpoint, otlp_interval_s: 10, trace_ratio: 0.0, traces_per_second_max };
            Telemetry::new(&args).tracer(0)
        };
        assert!(tracer("http://a", 1).is_some());
        assert!(tracer("http://a", 0).is_none());
        assert!(tracer("off", 1).is_none());
    }

    #[test]
    fn an_empty_endpoint_is_off_and_others_are_urls() {
        assert_eq!((endpoint(""), endpoint("off")), (Ok(Collector::Off), Ok(Collector::Off)));
        assert!(matches!(endpoint("http://127.0.0.1:4318"), Ok(Collector::At(_))));
        assert!(endpoint("127.0.0.1:4318").unwrap_err().ends_with("or \"off\""));
    }
}
