//! The exporting thread: it polls the queues, sends batches, repeats failed requests, and pauses
//! while the collector fails.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::endpoint::CollectorEndpoint;
use crate::items::{FieldValue, LogEntry, Signal, TraceSpan, unix_ns};
use crate::prometheus::{self, Period};
use crate::queue::{RECORDS_MAX, SPANS_MAX, TelemetryInbox};
use crate::sender::{CollectorSender, Failed};
use crate::{logs, request, spans};

/// Interval of looking at the queues. Producers do not wake the thread, because that would cost a
/// system call for each span.
const POLL: Duration = Duration::from_millis(200);
/// Spans or log records in a request, the default of OpenTelemetry.
const BATCH_MAX: usize = 512;
/// Batches in one turn: a full queue, and one batch that is repeated. Without this bound, busy
/// producers could delay metrics for ever.
const SPAN_BATCHES_MAX: usize = SPANS_MAX.div_ceil(BATCH_MAX) + 1;
const RECORD_BATCHES_MAX: usize = RECORDS_MAX.div_ceil(BATCH_MAX) + 1;
/// First and longest pause after a failed request.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A batch is dropped after failing for this long.
const RETRY_FOR: Duration = Duration::from_secs(60);
/// Shortest interval of log lines about a failing collector.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct OtlpSettings {
    pub endpoint: CollectorEndpoint,
    /// Interval of exporting metrics; `None` exports none.
    pub interval: Option<Duration>,
    /// How long dropping the exporter waits for the collector to take what is queued.
    pub end_max: Duration,
    /// At least one; log records are sent under the first.
    pub sources: Vec<TelemetrySource>,
}

/// A part of the process with an identity of its own, such as a pod.
pub struct TelemetrySource {
    pub attributes: Vec<(&'static str, FieldValue)>,
    /// Returns metrics in Prometheus text, or `None` once the source has ended. Runs on the
    /// exporting thread.
    pub metrics: Box<dyn Fn() -> Option<String> + Send>,
}

impl fmt::Debug for TelemetrySource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TelemetrySource")
            .field("attributes", &self.attributes)
            .finish_non_exhaustive()
    }
}

/// Dropping it tries once to send what is queued, then ends the thread.
#[derive(Debug)]
pub struct Exporter {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Fails when the thread cannot be started, or when an `https` endpoint needs the system's
    /// certificate authorities and they cannot be read.
    pub fn start(settings: OtlpSettings, inbox: TelemetryInbox) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Name resolution runs on threads of the runtime.
            .on_thread_start(logs::exclude_this_thread)
            .build()?;
        let stop = Arc::new(Notify::new());
        let thread = Thread::new(settings, inbox)?;
        let stopped = Arc::clone(&stop);
        let run = move || run(&runtime, thread, &stopped);
        let thread = std::thread::Builder::new().name("otlp".into()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(runtime: &Runtime, mut thread: Thread, stop: &Notify) {
    logs::exclude_this_thread();
    let (stopping, end_max) = (Notify::new(), thread.end_max);
    let send = async {
        while tokio::time::timeout(POLL, stopping.notified()).await.is_err() {
            thread.turn().await;
        }
        thread.last_turn().await;
    };
    // A request in flight may take longer than `end_max`, so the deadline is a future of its own.
    let deadline = async {
        stop.notified().await;
        stopping.notify_one();
        tokio::time::sleep(end_max).await;
    };
    runtime.block_on(async {
        tokio::select! {
            () = deadline => {}
            () = send => {}
        }
    });
}

/// A batch that must be sent again, and since when it fails.
struct PendingBatch<T> {
    items: Vec<T>,
    since: Instant,
}

struct Thread {
    sender: CollectorSender,
    inbox: TelemetryInbox,
    sources: Vec<TelemetrySource>,
    resources: Vec<Resource>,
    interval: Option<Duration>,
    end_max: Duration,
    started_ns: u64,
    metrics_at: Instant,
    spans: Option<PendingBatch<TraceSpan>>,
    records: Option<PendingBatch<LogEntry>>,
    trouble: Trouble,
}

impl Thread {
    fn new(settings: OtlpSettings, inbox: TelemetryInbox) -> std::io::Result<Self> {
        let OtlpSettings { endpoint, interval, end_max, sources } = settings;
        Ok(Self {
            sender: CollectorSender::new(endpoint)?,
            inbox,
            resources: sources.iter().map(|source| request::resource(&source.attributes)).collect(),
            sources,
            interval,
            end_max,
            started_ns: unix_ns(),
            metrics_at: Instant::now(),
            spans: None,
            records: None,
            trouble: Trouble::default(),
        })
    }

    async fn turn(&mut self) {
        if self.trouble.is_pausing() {
            return;
        }
        if let Some(interval) = self.interval
            && self.metrics_at <= Instant::now()
        {
            self.metrics_at = Instant::now() + interval;
            self.send_metrics().await;
        }
        for _ in 0..SPAN_BATCHES_MAX {
            if self.trouble.is_pausing() || !self.send_spans().await {
                break;
            }
        }
        for _ in 0..RECORD_BATCHES_MAX {
            if self.trouble.is_pausing() || !self.send_records().await {
                break;
            }
        }
    }

    async fn last_turn(&mut self) {
        self.trouble.until = None;
        self.metrics_at = Instant::now();
        self.turn().await;
    }

    async fn send_metrics(&mut self) {
        let period = Period { start_ns: self.started_ns, now_ns: unix_ns() };
        let of_source = |(source, resource): (&TelemetrySource, &Resource)| {
            Some((resource.clone(), prometheus::metrics(&(source.metrics)()?, period)))
        };
        let all: Vec<_> = self.sources.iter().zip(&self.resources).filter_map(of_source).collect();
        let points = all.iter().flat_map(|(_, metrics)| metrics).map(prometheus::points).sum();
        if points == 0 {
            return;
        }
        // A failed export is not repeated: metrics are cumulative, so the next export says the
        // same.
        self.send(Signal::Metrics, request::of_metrics(all).encode_to_vec(), points, true).await;
    }

    /// True when the queue may hold more spans.
    async fn send_spans(&mut self) -> bool {
        let taken = || {
            let taken: Vec<_> = self.inbox.spans.try_iter().take(BATCH_MAX).collect();
            self.inbox.is_span_lost.store(false, Ordering::Relaxed);
            taken
        };
        let Some(pending) = take(&mut self.spans, taken) else {
            return false;
        };
        let request = spans::request(&pending.items, &self.resources);
        let is_last_try = pending.since.elapsed() >= RETRY_FOR;
        if !self.send(Signal::Traces, request, pending.items.len(), is_last_try).await {
            self.spans = Some(pending);
        }
        true
    }

    async fn send_records(&mut self) -> bool {
        let Some(pending) =
            take(&mut self.records, || self.inbox.records.try_iter().take(BATCH_MAX).collect())
        else {
            return false;
        };
        let request = request::of_records(pending.items.clone(), &self.resources[0]);
        let is_last_try = pending.since.elapsed() >= RETRY_FOR;
        if !self.send(Signal::Logs, request.encode_to_vec(), pending.items.len(), is_last_try).await {
            self.records = Some(pending);
        }
        true
    }

    /// False when the request must be sent again.
    async fn send(&mut self, signal: Signal, request: Vec<u8>, items: usize, is_last_try: bool) -> bool {
        let sent = self.sender.send(signal, request).await;
        let counts = self.inbox.counters.of(signal);
        let items = items as u64;
        let (exported, failed) = match &sent {
            Ok(refused) => (items.saturating_sub(*refused), *refused),
            Err(Failed::ForNow(_)) if !is_last_try => (0, 0),
            Err(_) => (0, items),
        };
        counts.exported.fetch_add(exported, Ordering::Relaxed);
        counts.failed.fetch_add(failed, Ordering::Relaxed);
        self.trouble.note(&sent, &self.sender.endpoint);
        is_last_try || !matches!(sent, Err(Failed::ForNow(_)))
    }
}

fn take<T>(
    pending: &mut Option<PendingBatch<T>>,
    queued: impl FnOnce() -> Vec<T>,
) -> Option<PendingBatch<T>> {
    pending.take().or_else(|| {
        let items = queued();
        (!items.is_empty()).then(|| PendingBatch { items, since: Instant::now() })
    })
}

/// The state of a collector that fails: the present pause and its end, and when that was logged
/// last.
#[derive(Default)]
struct Trouble {
    pause: Option<Duration>,
    until: Option<Instant>,
    logged_at: Option<Instant>,
}

impl Trouble {
    fn is_pausing(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    fn note(&mut self, sent: &Result<u64, Failed>, endpoint: &CollectorEndpoint) {
        let why = match sent {
            Ok(0) => return self.end_pause(),
            Ok(refused) => format!("it refused {refused} items of a request"),
            Err(Failed::ForGood(why)) => why.clone(),
            Err(Failed::ForNow(why)) => {
                let pause = self.pause.map_or(PAUSE.0, |pause| (pause * 2).min(PAUSE.1));
                self.pause = Some(pause);
                self.until = Some(Instant::now() + pause);
                why.clone()
            }
        };
        if self.logged_at.is_none_or(|at| at.elapsed() >= BETWEEN_LINES) {
            self.logged_at = Some(Instant::now());
            tracing::warn!(
                %endpoint, %why,
                "the collector does not accept telemetry, so items are dropped when the queue is full; clients are not affected: check otlp_endpoint"
            );
        }
    }

    fn end_pause(&mut self) {
        if self.pause.take().is_some() {
            tracing::info!("the collector accepts telemetry again");
        }
        self.until = None;
    }
}
