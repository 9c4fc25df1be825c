//! The thread that sends.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::endpoint::Endpoint;
use crate::logs::Record;
use crate::prometheus::{self, Period};
use crate::queue::{Inbox, Signal};
use crate::request::{self, Span, Value};
use crate::sender::{Failed, Sender};

/// How often the queues are emptied. Producers do not wake the thread: that would be a system call for each span.
const POLL: Duration = Duration::from_millis(200);
/// Most items of one request.
const BATCH_MAX: usize = 512;
/// First and longest pause after a request that failed for now.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A batch that could not be sent for so long is dropped.
const RETRY_FOR: Duration = Duration::from_secs(60);
/// Time between two log lines about a collector that does not take what is sent.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// What is exported from where to where.
#[derive(Debug)]
pub struct Settings {
    /// The collector.
    pub endpoint: Endpoint,
    /// Time between two exports of metrics; `None`: metrics are not exported.
    pub interval: Option<Duration>,
    /// How long the end waits for the collector to take what is queued.
    pub end_max: Duration,
    /// Where metrics and spans come from, at least one. Log lines come under the first.
    pub sources: Vec<Source>,
}

/// A part of the process with an identity of its own, such as a pod.
pub struct Source {
    /// Its resource attributes, such as `service.name`.
    pub attributes: Vec<(&'static str, Value)>,
    /// Its metrics in Prometheus text; `None` once there are none. Called by the exporting thread.
    pub metrics: Box<dyn Fn() -> Option<String> + Send>,
}

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Source").field("attributes", &self.attributes).finish_non_exhaustive()
    }
}

/// The exporting thread. It ends when this is dropped, after it has tried once to send what is queued.
#[derive(Debug)]
pub struct Exporter {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts it.
    ///
    /// # Errors
    /// When the thread cannot be started, or the system's certificate authorities cannot be read for an `https` endpoint.
    pub fn start(settings: Settings, inbox: Inbox) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
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

/// Nanoseconds since 1970.
#[allow(clippy::disallowed_methods)]
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn run(runtime: &Runtime, mut thread: Thread, stop: &Notify) {
    let (stopping, end_max) = (Notify::new(), thread.end_max);
    let send = async {
        while tokio::time::timeout(POLL, stopping.notified()).await.is_err() {
            thread.turn().await;
        }
        thread.last_turn().await;
    };
    // A request in flight may outlast `end_max`, so the deadline runs beside the turns.
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

/// A batch that is being sent.
struct Pending<T> {
    items: Vec<T>,
    since: Instant,
}

struct Thread {
    sender: Sender,
    inbox: Inbox,
    sources: Vec<Source>,
    resources: Vec<Resource>,
    interval: Option<Duration>,
    end_max: Duration,
    started_ns: u64,
    metrics_at: Instant,
    spans: Option<Pending<Span>>,
    records: Option<Pending<Record>>,
    trouble: Trouble,
}

impl Thread {
    fn new(settings: Settings, inbox: Inbox) -> std::io::Result<Self> {
        let Settings { endpoint, interval, end_max, sources } = settings;
        Ok(Self {
            sender: Sender::new(endpoint)?,
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

    /// Sends what is there, unless the collector is being left alone for a while.
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
        while !self.trouble.is_pausing() && self.send_spans().await {}
        while !self.trouble.is_pausing() && self.send_records().await {}
    }

    async fn last_turn(&mut self) {
        self.trouble.until = None;
        self.metrics_at = Instant::now();
        self.turn().await;
    }

    async fn send_metrics(&mut self) {
        let period = Period { start_ns: self.started_ns, now_ns: unix_ns() };
        let of_source = |(source, resource): (&Source, &Resource)| {
            Some((resource.clone(), prometheus::metrics(&(source.metrics)()?, period)))
        };
        let all: Vec<_> = self.sources.iter().zip(&self.resources).filter_map(of_source).collect();
        let points = all.iter().flat_map(|(_, metrics)| metrics).map(prometheus::points).sum();
        if points == 0 {
            return;
        }
        // Metrics that could not be sent need no second try: the next ones say the same and more.
        self.send(Signal::Metrics, &request::of_metrics(all), points, true).await;
    }

    /// True when there may be more.
    async fn send_spans(&mut self) -> bool {
        let Some(pending) = take(&mut self.spans, || self.inbox.spans.try_iter().take(BATCH_MAX).collect())
        else {
            return false;
        };
        let request = request::of_spans(pending.items.clone(), &self.resources);
        let is_last_try = pending.since.elapsed() >= RETRY_FOR;
        if !self.send(Signal::Traces, &request, pending.items.len(), is_last_try).await {
            self.spans = Some(pending);
        }
        true
    }

    /// True when there may be more.
    async fn send_records(&mut self) -> bool {
        let Some(pending) =
            take(&mut self.records, || self.inbox.records.try_iter().take(BATCH_MAX).collect())
        else {
            return false;
        };
        let request = request::of_records(pending.items.clone(), &self.resources[0]);
        let is_last_try = pending.since.elapsed() >= RETRY_FOR;
        if !self.send(Signal::Logs, &request, pending.items.len(), is_last_try).await {
            self.records = Some(pending);
        }
        true
    }

    /// False when the request is to be sent again.
    async fn send(
        &mut self,
        signal: Signal,
        request: &impl Message,
        items: usize,
        is_last_try: bool,
    ) -> bool {
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

/// The batch that is to be sent: an earlier one, or what is queued.
fn take<T>(pending: &mut Option<Pending<T>>, queued: impl FnOnce() -> Vec<T>) -> Option<Pending<T>> {
    pending.take().or_else(|| {
        let items = queued();
        (!items.is_empty()).then(|| Pending { items, since: Instant::now() })
    })
}

/// What is wrong with the collector.
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

    fn note(&mut self, sent: &Result<u64, Failed>, endpoint: &Endpoint) {
        let why = match sent {
            Ok(0) => return self.is_over(),
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
                "the collector does not take telemetry; clients are not affected, what does not fit into the queue is dropped"
            );
        }
    }

    fn is_over(&mut self) {
        if self.pause.take().is_some() {
            tracing::info!("the collector takes telemetry again");
        }
        self.until = None;
    }
}
