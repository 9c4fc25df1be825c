//! Bounded queues from producers to the exporting thread, with counters of exported and dropped
//! items.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::items::{LogEntry, Signal, TraceSpan};

/// Queued spans: 40 s at the default rate of traces, 2 MiB.
pub(crate) const SPANS_MAX: usize = 4096;
pub(crate) const RECORDS_MAX: usize = 2048;

/// Counts the items of one signal by what became of them; an item of metrics is a data point.
#[derive(Debug, Default)]
pub(crate) struct SignalCounts {
    pub(crate) exported: AtomicU64,
    /// The collector refused these items, or failed until the retries ended.
    pub(crate) failed: AtomicU64,
    queue_full: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct QueueCounters([SignalCounts; 3]);

impl QueueCounters {
    pub(crate) fn of(&self, signal: Signal) -> &SignalCounts {
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

#[derive(Clone, Debug)]
pub struct TelemetryQueue {
    spans: SyncSender<TraceSpan>,
    is_span_lost: Arc<AtomicBool>,
    records: SyncSender<LogEntry>,
    counters: Arc<QueueCounters>,
}

#[derive(Debug)]
pub struct TelemetryInbox {
    pub(crate) spans: Receiver<TraceSpan>,
    /// A span was dropped since the last time that the exporting thread took spans.
    pub(crate) is_span_lost: Arc<AtomicBool>,
    pub(crate) records: Receiver<LogEntry>,
    pub(crate) counters: Arc<QueueCounters>,
}

/// Makes a queue; its inbox is for [`crate::Exporter::start`].
#[must_use]
pub fn queue() -> (TelemetryQueue, TelemetryInbox) {
    let (spans, spans_out) = sync_channel(SPANS_MAX);
    let (records, records_out) = sync_channel(RECORDS_MAX);
    let (counters, is_span_lost) = (Arc::new(QueueCounters::default()), Arc::new(AtomicBool::new(false)));
    let inbox = TelemetryInbox {
        spans: spans_out,
        is_span_lost: Arc::clone(&is_span_lost),
        records: records_out,
        counters: Arc::clone(&counters),
    };
    (TelemetryQueue { spans, is_span_lost, records, counters }, inbox)
}

impl TelemetryQueue {
    /// Never waits and makes no system call: the exporting thread polls.
    pub fn span(&self, span: TraceSpan) {
        let is_queued = self.spans.try_send(span).is_ok();
        if !is_queued {
            self.is_span_lost.store(true, Ordering::Relaxed);
        }
        self.count(Signal::Traces, is_queued);
    }

    /// False from the first dropped span until the exporting thread takes spans again. Do not begin traces meanwhile: their
    /// spans would be dropped.
    #[must_use]
    pub fn has_room_for_spans(&self) -> bool {
        !self.is_span_lost.load(Ordering::Relaxed)
    }

    pub(crate) fn record(&self, record: LogEntry) {
        self.count(Signal::Logs, self.records.try_send(record).is_ok());
    }

    fn count(&self, signal: Signal, is_queued: bool) {
        if !is_queued {
            self.counters.of(signal).queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Exported, failed and dropped items, in Prometheus text.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.counters.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::tests::span;

    #[test]
    fn a_full_queue_drops_and_counts_and_does_not_wait() {
        let (queue, inbox) = queue();
        for number in 0..SPANS_MAX + 3 {
            assert_eq!(queue.has_room_for_spans(), number <= SPANS_MAX);
            queue.span(span(&format!("{number}")));
        }
        assert_eq!(inbox.spans.try_iter().count(), SPANS_MAX);
        let line = "millrace_otlp_items_total{signal=\"traces\",result=\"queue_full\"} 3";
        assert!(queue.metrics().lines().any(|found| found == line), "{}", queue.metrics());
    }
}
