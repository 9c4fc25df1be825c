//! Bounded queues between producers and the exporting thread, and the counters of what became of each item.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::logs::Record;
use crate::request::Span;

/// Spans that wait to be exported: 40 seconds' worth at the default rate of traces, 1 MiB.
const SPANS_MAX: usize = 4096;
/// Log records that wait to be exported.
const RECORDS_MAX: usize = 2048;

/// The three kinds of telemetry of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Metrics,
    Traces,
    Logs,
}

impl Signal {
    pub(crate) const ALL: [Self; 3] = [Self::Metrics, Self::Traces, Self::Logs];

    /// The last part of its path.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
            Self::Logs => "logs",
        }
    }
}

/// Items of one signal, by what became of them. Items of metrics are data points.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// The collector took them.
    pub(crate) exported: AtomicU64,
    /// The collector did not take them, or could not be reached for too long.
    pub(crate) failed: AtomicU64,
    /// They did not fit into the queue.
    queue_full: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters([Counts; 3]);

impl Counters {
    pub(crate) fn of(&self, signal: Signal) -> &Counts {
        &self.0[signal as usize]
    }

    fn text(&self) -> String {
        let name = "millrace_otlp_items_total";
        let help = "Data points, spans and log records for the collector, by what became of them.";
        let mut out = format!("# HELP {name} {help}\n# TYPE {name} counter\n");
        for signal in Signal::ALL {
            let counts = self.of(signal);
            for (result, count) in [
                ("exported", &counts.exported),
                ("failed", &counts.failed),
                ("queue_full", &counts.queue_full),
            ] {
                let (signal, count) = (signal.name(), count.load(Ordering::Relaxed));
                let _ = writeln!(out, "{name}{{signal=\"{signal}\",result=\"{result}\"}} {count}");
            }
        }
        out
    }
}

/// The producers' end.
#[derive(Clone, Debug)]
pub struct Queue {
    spans: SyncSender<Span>,
    records: SyncSender<Record>,
    counters: Arc<Counters>,
}

/// The exporting thread's end.
#[derive(Debug)]
pub struct Inbox {
    pub(crate) spans: Receiver<Span>,
    pub(crate) records: Receiver<Record>,
    pub(crate) counters: Arc<Counters>,
}

/// Makes the queues. [`crate::Exporter::start`] takes the inbox.
#[must_use]
pub fn queue() -> (Queue, Inbox) {
    let (spans, spans_out) = sync_channel(SPANS_MAX);
    let (records, records_out) = sync_channel(RECORDS_MAX);
    let counters = Arc::new(Counters::default());
    let inbox = Inbox { spans: spans_out, records: records_out, counters: Arc::clone(&counters) };
    (Queue { spans, records, counters }, inbox)
}

impl Queue {
    /// Queues a span. Never waits and makes no system call: the exporting thread polls.
    pub fn span(&self, span: Span) {
        self.count(Signal::Traces, self.spans.try_send(span).is_ok());
    }

    pub(crate) fn record(&self, record: Record) {
        self.count(Signal::Logs, self.records.try_send(record).is_ok());
    }

    fn count(&self, signal: Signal, is_queued: bool) {
        if !is_queued {
            self.counters.of(signal).queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What became of the items so far, in Prometheus text.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.counters.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::span;

    #[test]
    fn a_full_queue_drops_and_counts_and_does_not_wait() {
        let (queue, inbox) = queue();
        for number in 0..SPANS_MAX + 3 {
            queue.span(span(&format!("{number}")));
        }
        assert_eq!(inbox.spans.try_iter().count(), SPANS_MAX);
        let line = "millrace_otlp_items_total{signal=\"traces\",result=\"queue_full\"} 3";
        assert!(queue.metrics().lines().any(|found| found == line), "{}", queue.metrics());
    }
}
