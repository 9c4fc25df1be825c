//! Counts what the fabric sends, receives and loses, for the metrics page.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct FabricCount(AtomicU64);

impl FabricCount {
    pub(crate) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, n: usize) {
        self.0.store(n as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricMetric {
    /// `counter` or `gauge`.
    pub kind: &'static str,
    pub name: &'static str,
    /// Such as `reason="outage"`; may be empty.
    pub labels: &'static str,
    pub help: &'static str,
}

/// Each line is: field, kind, metric name, labels, help.
macro_rules! counters {
    ($($field:ident: $kind:literal $name:literal [$($label:literal)?] $help:literal,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counts { $(pub(crate) $field: FabricCount,)* }

        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $(#[doc = $help] pub $field: u64,)* }

        impl Counts {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($field: self.$field.get(),)* }
            }
        }

        impl Counters {
            /// In a fixed order; metrics of one name are adjacent.
            pub fn metrics(&self) -> impl Iterator<Item = (FabricMetric, u64)> + use<> {
                [$((FabricMetric { kind: $kind, name: $name, labels: concat!($($label)?), help: $help }, self.$field),)*]
                    .into_iter()
            }
        }
    };
}

counters! {
    sent: "counter" "millrace_fabric_messages_sent_total" [] "Messages queued for other pods.",
    unwanted: "counter" "millrace_fabric_messages_unwanted_total" [] "Messages not sent because no other pod listens.",
    dropped_queue: "counter" "millrace_fabric_messages_dropped_total" ["reason=\"queue_full\""] "Messages not sent, by reason.",
    dropped_receiver: "counter" "millrace_fabric_messages_dropped_total" ["reason=\"receiver_full\""] "Messages not sent, by reason.",
    dropped_share: "counter" "millrace_fabric_messages_dropped_total" ["reason=\"share_full\""] "Messages not sent, by reason.",
    dropped_outage: "counter" "millrace_fabric_messages_dropped_total" ["reason=\"outage\""] "Messages not sent, by reason.",
    dropped_too_large: "counter" "millrace_fabric_messages_dropped_total" ["reason=\"too_large\""] "Messages not sent, by reason.",
    dropped_streams: "counter" "millrace_fabric_messages_dropped_total" ["reason=\"streams_max\""] "Messages not sent, by reason.",
    dropped_stopped: "counter" "millrace_fabric_messages_dropped_total" ["reason=\"stopped\""] "Messages not sent, by reason.",
    batches_sent: "counter" "millrace_fabric_batches_sent_total" [] "Batches of messages given to NATS.",
    bytes_sent: "counter" "millrace_fabric_sent_bytes_total" [] "Bytes given to NATS, with all that the fabric adds.",
    parts_sent: "counter" "millrace_fabric_parts_sent_total" [] "Parts of batches that were too long for one NATS message.",
    heartbeats_sent: "counter" "millrace_fabric_heartbeats_sent_total" [] "Times a receiver was sent the number of messages, so that it can notice a loss.",
    received: "counter" "millrace_fabric_messages_received_total" [] "Messages from other pods.",
    batches_received: "counter" "millrace_fabric_batches_received_total" [] "Batches of messages from other pods.",
    bytes_received: "counter" "millrace_fabric_received_bytes_total" [] "Bytes received from NATS, with all that the fabric adds.",
    gaps: "counter" "millrace_fabric_gaps_total" [] "Times messages of another pod were missing.",
    missed: "counter" "millrace_fabric_messages_missed_total" [] "Messages of other pods that were missing, as far as their number is known.",
    late: "counter" "millrace_fabric_frames_discarded_total" ["reason=\"late\""] "Frames from other pods that were not taken, by reason.",
    malformed: "counter" "millrace_fabric_frames_discarded_total" ["reason=\"malformed\""] "Frames from other pods that were not taken, by reason.",
    version: "counter" "millrace_fabric_frames_discarded_total" ["reason=\"version\""] "Frames from other pods that were not taken, by reason.",
    parts_limit: "counter" "millrace_fabric_frames_discarded_total" ["reason=\"parts_limit\""] "Frames from other pods that were not taken, by reason.",
    parts_incomplete: "counter" "millrace_fabric_frames_discarded_total" ["reason=\"incomplete\""] "Frames from other pods that were not taken, by reason.",
    pods_limit: "counter" "millrace_fabric_frames_discarded_total" ["reason=\"pods_max\""] "Frames from other pods that were not taken, by reason.",
    joins_refused: "counter" "millrace_fabric_joins_refused_total" [] "Joins refused at the limit.",
    joins_unconfirmed: "counter" "millrace_fabric_joins_unconfirmed_total" [] "Joins reported before all pods had confirmed them.",
    connects: "counter" "millrace_fabric_connects_total" [] "Connections made to a NATS server.",
    slow_consumer: "counter" "millrace_fabric_slow_consumer_total" [] "Times NATS or its client gave up messages because this pod did not take them in time.",
    server_errors: "counter" "millrace_fabric_server_errors_total" [] "Errors that the NATS server sent.",
    connected: "gauge" "millrace_fabric_connected" [] "1 while connected to a NATS server.",
    pods: "gauge" "millrace_fabric_pods" [] "Other pods that are alive.",
    joined: "gauge" "millrace_fabric_joined" [] "Brokers and groups joined.",
    streams: "gauge" "millrace_fabric_streams" [] "Receivers whose messages are numbered.",
    queue_bytes: "gauge" "millrace_fabric_queue_bytes" [] "Bytes that wait to be sent.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_one_name_stand_together() {
        let names: Vec<_> = Counters::default().metrics().map(|(metric, _)| metric.name).collect();
        let mut unique = names.clone();
        unique.dedup();
        let count = unique.len();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), count);
        assert!(names.iter().all(|name| name.starts_with("millrace_fabric_")));
    }
}
