//! Webhooks: POST a broker's events to its tenant as CloudEvents. Each webhook has a queue of its own in the store
//! (`millrace_layers::webhooks`). The transaction that makes a message's PUBACK true also queues its event; events of clients are
//! queued the same way. One thread delivers the queues of all brokers of the store, whether open here or not; a lease keeps two
//! pods from delivering the same queue at once. An event without a result is delivered again, under the same id.

mod deliver;
mod event;
mod queued;
mod worker;

use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_layers::Store;
use millrace_layers::streams::ReadLimit;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

pub(crate) use event::EventKind;
pub(crate) use queued::QueuedWebhooks;

use crate::StartError;
use crate::broker::Brokers;
use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::{Count, Metric};
use worker::{Worker, WorkerContext};

/// How often the thread searches for queues that no local event announced.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often the waiting events are counted, in up to 1,000 queues.
const COUNT_EVERY: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 256;
/// A tenant has at most a quarter of the deliveries that could still begin.
const AT_ONCE_PART: usize = 4;
/// Deliveries in a row to one webhook, before other webhooks have their turn.
const TURN: usize = 16;
/// How soon a pausing webhook is checked again, milliseconds: its tenant may ask for an immediate retry.
const LOOK_AGAIN_MS: u64 = 5_000;
/// How often each pod trims the queue of a pausing webhook, milliseconds.
const LIMIT_EVERY_MS: u64 = 30_000;
/// The timeout of a call, well below the lease.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Largest response, bytes; it is discarded.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of events after which a request ends; a single larger event is still sent.
const REQUEST_BYTES: usize = 256 * 1024;
/// First pause after a failure, milliseconds; it doubles each time.
const PAUSE_MS: u64 = 1_000;
/// Longest pause, milliseconds: a service that recovered is noticed within the hour.
const PAUSE_MS_MAX: u64 = 3_600_000;
/// A refused event becomes a dead letter after this time, milliseconds: a day, so that a night's outage loses nothing.
const TRY_MS_MAX: u64 = 86_400_000;
/// A queue without progress drops events after this time, milliseconds: three days.
const QUEUE_MS_MAX: u64 = 3 * 86_400_000;

pub(crate) struct Webhooks {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<WebhookCounters>,
}

#[derive(Debug, Default)]
struct WebhookCounters {
    calls_accepted: Count,
    calls_failed: Count,
    calls_refused: Count,
    events_delivered: Count,
    events_dead: Count,
    events_lost: Count,
    events_waiting: Count,
    queue_bytes: Count,
    oldest_s: Count,
}

impl Webhooks {
    pub(crate) fn start(
        store: Store,
        clock: Clock,
        queued_webhooks: Arc<QueuedWebhooks>,
        config: &Config,
        brokers: Arc<Brokers>,
    ) -> Result<Self, StartError> {
        let counters = Arc::new(WebhookCounters::default());
        let owner = config.pod_name().to_owned();
        let (counted, outgoing, limits) = (counters.clone(), config.outgoing.clone(), config.limits.clone());
        let parts =
            WorkerContext { store, clock, queued_webhooks, owner, brokers, outgoing, counters: counted };
        let (stop, stopped) = oneshot::channel();
        let failed = |error| StartError(format!("cannot start a thread: {error}"));
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
        let run = move || {
            let worker = Rc::new(Worker::new(parts, &limits));
            LocalSet::new().block_on(&runtime, worker.run(stopped));
            // Does not wait for name lookups.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("webhooks".into()).spawn(run).map_err(failed)?;
        Ok(Self { stop: Some(stop), thread: Some(thread), counters })
    }

    pub(crate) fn metrics(&self) -> Vec<(Metric, u64)> {
        let metric = |name, labels, help| Metric { kind: "counter", name, labels, help };
        let call = |labels| metric("millrace_webhook_calls_total", labels, "Calls of webhooks, by result.");
        let event = |labels| {
            metric(
                "millrace_webhook_events_total",
                labels,
                "Events of webhooks that left their queues, by result.",
            )
        };
        let counters = &self.counters;
        let level = |name, help| Metric { kind: "gauge", name, labels: "", help };
        vec![
            (
                level(
                    "millrace_webhook_events_waiting",
                    "Events in queues of webhooks. Every pod shows the number of the whole store.",
                ),
                counters.events_waiting.get(),
            ),
            (
                level(
                    "millrace_webhook_queue_bytes",
                    "Bytes of the events in queues of webhooks. Every pod shows the number of the whole store.",
                ),
                counters.queue_bytes.get(),
            ),
            (
                level(
                    "millrace_webhook_oldest_event_seconds",
                    "Age of the oldest event in a queue of a webhook. Every pod shows that of the whole store.",
                ),
                counters.oldest_s.get(),
            ),
            (call("result=\"accepted\""), counters.calls_accepted.get()),
            (call("result=\"failed\""), counters.calls_failed.get()),
            (call("result=\"refused\""), counters.calls_refused.get()),
            (event("result=\"delivered\""), counters.events_delivered.get()),
            (event("result=\"dead\""), counters.events_dead.get()),
            (event("result=\"lost\""), counters.events_lost.get()),
        ]
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.stop = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(
                "the thread that delivers webhooks ended with a panic: report it with the log before it"
            );
        }
    }
}

fn page(batch_max: u16) -> ReadLimit {
    ReadLimit { entries: batch_max.max(1).into(), bytes: REQUEST_BYTES }
}
