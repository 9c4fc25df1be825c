//! The exporter against a collector that this test plays.
#![allow(clippy::unwrap_used, clippy::panic, reason = "also what several tests share may fail a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use millrace_telemetry::{
    Exporter, FieldValue, LogLayer, OtlpSettings, SpanKind, TelemetryInbox, TelemetryQueue, TelemetrySource,
    TraceSpan, queue,
};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use prost::Message;
use tracing_subscriber::layer::SubscriberExt;

const PATIENCE: Duration = Duration::from_secs(60);
const PAGE: &str = "# HELP x_total X.\n# TYPE x_total counter\nx_total{reason=\"a\"} 3\n";

/// Answers each request with the next of `statuses`, then with 200, and passes on path and body of
/// each.
fn collector(statuses: &'static [&'static str]) -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
    collector_that(statuses, |_| ())
}

/// Calls `on_request` with the path of each request before the answer.
fn collector_that(
    statuses: &'static [&'static str],
    on_request: impl Fn(&str) + Send + 'static,
) -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, requests) = sync_channel(1000);
    std::thread::spawn(move || {
        let mut statuses = statuses.iter();
        while let Ok((stream, _)) = listener.accept() {
            answer(stream, &mut statuses, &on_request, &seen);
        }
    });
    (address, requests)
}

/// One request of a connection: the connection ends with the answer, so that one thread can serve
/// all.
fn answer<'s>(
    mut stream: TcpStream,
    statuses: &mut impl Iterator<Item = &'s &'s str>,
    on_request: &impl Fn(&str),
    seen: &SyncSender<(String, Vec<u8>)>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            break;
        }
        match line.to_lowercase().strip_prefix("content-length: ") {
            Some(text) => length = text.trim().parse().unwrap(),
            None if path.is_empty() => line.split(' ').nth(1).unwrap().clone_into(&mut path),
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    on_request(&path);
    let status = statuses.next().unwrap_or(&"200 OK");
    // The test finds each answered request in the channel, so the request goes there first. Nobody
    // reads the channel any more when the test has ended.
    let _ = seen.try_send((path, body));
    // An exporter that ends abandons its request.
    let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

fn start(address: SocketAddr) -> (TelemetryQueue, Exporter) {
    // A long interval: metrics are sent at the start, and with the end.
    start_with(address, Some(Duration::from_secs(3600)), PATIENCE)
}

fn start_with(
    address: SocketAddr,
    interval: Option<Duration>,
    end_max: Duration,
) -> (TelemetryQueue, Exporter) {
    let (queue, inbox) = queue();
    (queue, start_at(&format!("http://{address}"), inbox, interval, end_max))
}

fn start_at(
    endpoint: &str,
    inbox: TelemetryInbox,
    interval: Option<Duration>,
    end_max: Duration,
) -> Exporter {
    let sources = vec![TelemetrySource {
        attributes: vec![("service.name", FieldValue::Text("millrace".into()))],
        metrics: Box::new(|| Some(PAGE.to_owned())),
    }];
    let endpoint = endpoint.parse().unwrap();
    Exporter::start(OtlpSettings { endpoint, interval, end_max, sources }, inbox).unwrap()
}

fn span() -> TraceSpan {
    TraceSpan {
        source: 0,
        trace_id: [1; 16],
        span_id: [2; 8],
        parent: Some([3; 8]),
        name: "commit",
        kind: SpanKind::Internal,
        start_ns: 10,
        end_ns: 20,
        attributes: [
            Some(("messaging.destination.name", FieldValue::Text("a/b".into()))),
            None,
            None,
            None,
            None,
        ],
        is_error: false,
    }
}

/// The next request for a signal.
fn next(requests: &Receiver<(String, Vec<u8>)>, path: &str) -> Vec<u8> {
    loop {
        let (found, body) = requests.recv_timeout(PATIENCE).expect("no request came");
        if found == path {
            return body;
        }
    }
}

/// The targets of the log records of a request.
fn targets_of(body: &[u8]) -> Vec<String> {
    let request = ExportLogsServiceRequest::decode(body).unwrap();
    let scopes = request.resource_logs.into_iter().flat_map(|of| of.scope_logs);
    let attributes = scopes.flat_map(|of| of.log_records).flat_map(|record| record.attributes);
    let targets = attributes.filter(|attribute| attribute.key == "code.namespace");
    let text = |value: AnyValue| match value.value {
        Some(any_value::Value::StringValue(text)) => text,
        other => panic!("{other:?}"),
    };
    targets.map(|target| text(target.value.unwrap())).collect()
}

fn spans_of(body: &[u8]) -> usize {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    request.resource_spans.iter().flat_map(|of| &of.scope_spans).map(|of| of.spans.len()).sum()
}

#[test]
fn metrics_spans_and_log_lines_arrive() {
    let (address, requests) = collector(&[]);
    let (queue, exporter) = start(address);
    let metrics = ExportMetricsServiceRequest::decode(&*next(&requests, "/v1/metrics")).unwrap();
    let of_source = &metrics.resource_metrics[0];
    assert_eq!(of_source.resource.as_ref().unwrap().attributes[0].key, "service.name");
    assert_eq!(of_source.scope_metrics[0].metrics[0].name, "x_total");

    queue.span(span());
    let traces = ExportTraceServiceRequest::decode(&*next(&requests, "/v1/traces")).unwrap();
    let found = &traces.resource_spans[0].scope_spans[0].spans[0];
    assert_eq!(
        (&*found.name, &found.trace_id[..], &found.parent_span_id[..]),
        ("commit", &[1; 16][..], &[3; 8][..])
    );

    let subscriber = tracing_subscriber::registry().with(LogLayer(queue.clone()));
    tracing::subscriber::with_default(subscriber, || tracing::info!(target: "millrace", "hello"));
    let logs = ExportLogsServiceRequest::decode(&*next(&requests, "/v1/logs")).unwrap();
    assert_eq!(logs.resource_logs[0].scope_logs[0].log_records[0].severity_text, "INFO");

    // Spans that are queued at the end are sent.
    queue.span(span());
    drop(exporter);
    assert_eq!(spans_of(&next(&requests, "/v1/traces")), 1);
    for line in ["signal=\"traces\",result=\"exported\"} 2", "signal=\"logs\",result=\"exported\"} 1"] {
        assert!(queue.metrics().contains(line), "no {line} in\n{}", queue.metrics());
    }
}

#[test]
fn the_exporters_own_log_lines_are_not_exported_and_metrics_go_on() {
    let (address, requests) = collector(&[]);
    let (queue, inbox) = queue();
    // The only subscriber that also sees the exporter's threads. It has no filter, so it passes
    // every level.
    let subscriber = tracing_subscriber::registry().with(LogLayer(queue.clone()));
    tracing::subscriber::set_global_default(subscriber).unwrap();
    // With a name, the client also logs from the thread that resolves it.
    let endpoint = format!("http://localhost:{}", address.port());
    let exporter = start_at(&endpoint, inbox, Some(Duration::from_secs(1)), Duration::from_secs(1));
    tracing::info!(target: "millrace", "hello");
    let (mut metrics, mut targets) = (0, Vec::new());
    while metrics < 3 {
        let (path, body) = requests.recv_timeout(PATIENCE).expect("no request came");
        metrics += usize::from(path == "/v1/metrics");
        if path == "/v1/logs" {
            targets.extend(targets_of(&body));
            assert!(targets.iter().all(|target| target == "millrace"), "{targets:?}");
        }
    }
    drop(exporter);
    assert_eq!(targets, ["millrace"]);
}

#[test]
fn metrics_go_on_while_the_queue_never_gets_empty() {
    let (queue, inbox) = queue();
    let producer = queue.clone();
    // The next span is queued before the request with the last one is answered.
    let (address, requests) = collector_that(&[], move |path| {
        if path == "/v1/traces" {
            producer.span(span());
        }
    });
    queue.span(span());
    let exporter =
        start_at(&format!("http://{address}"), inbox, Some(Duration::from_secs(1)), Duration::from_millis(1));
    for _ in 0..3 {
        next(&requests, "/v1/metrics");
    }
    drop(exporter);
}

#[test]
fn without_an_interval_no_metrics_are_sent() {
    let (address, requests) = collector(&[]);
    let (queue, exporter) = start_with(address, None, PATIENCE);
    queue.span(span());
    drop(exporter);
    let paths: Vec<String> = requests.try_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["/v1/traces"]);
    assert!(queue.metrics().contains("signal=\"metrics\",result=\"exported\"} 0"), "{}", queue.metrics());
}

#[test]
fn a_batch_is_sent_again_after_an_answer_that_says_so() {
    // The first request has the metrics.
    let (address, requests) = collector(&["200 OK", "503 Service Unavailable"]);
    let (queue, exporter) = start(address);
    next(&requests, "/v1/metrics");
    queue.span(span());
    assert_eq!(spans_of(&next(&requests, "/v1/traces")), 1, "refused for now");
    assert_eq!(spans_of(&next(&requests, "/v1/traces")), 1, "sent again");
    drop(exporter);
    let text = queue.metrics();
    assert!(text.contains("signal=\"traces\",result=\"exported\"} 1"), "{text}");
    assert!(text.contains("signal=\"traces\",result=\"failed\"} 0"), "{text}");
}

#[test]
fn a_batch_that_the_collector_rejects_is_counted_and_dropped() {
    let (address, requests) = collector(&["200 OK", "400 Bad Request"]);
    let (queue, exporter) = start(address);
    next(&requests, "/v1/metrics");
    queue.span(span());
    next(&requests, "/v1/traces");
    drop(exporter);
    let text = queue.metrics();
    assert!(text.contains("signal=\"traces\",result=\"failed\"} 1"), "{text}");
}

#[test]
fn an_exporter_whose_collector_is_dead_ends_and_producers_do_not_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            drop(stream);
        }
    });
    let (queue, exporter) = start(address);
    for _ in 0..10_000 {
        queue.span(span());
    }
    drop(exporter);
    let text = queue.metrics();
    assert!(!text.contains("signal=\"traces\",result=\"queue_full\"} 0"), "{text}");
    assert!(text.contains("signal=\"traces\",result=\"exported\"} 0"), "{text}");
}

#[test]
fn the_end_abandons_a_request_that_the_collector_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let interval = Some(Duration::from_secs(3600));
    let (queue, exporter) = start_with(listener.local_addr().unwrap(), interval, Duration::from_millis(1));
    let (mut stream, _) = listener.accept().unwrap();
    // The request with the metrics is in flight once its first byte is here.
    stream.read_exact(&mut [0]).unwrap();
    drop(exporter);
    // A request that runs into its own timeout is counted as failed.
    assert!(queue.metrics().contains("signal=\"metrics\",result=\"failed\"} 0"), "{}", queue.metrics());
}
