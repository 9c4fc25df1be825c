//! Counters: one set a core, written by that core alone, summed when somebody asks.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter or gauge with a single writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Not a read-modify-write: the owning core is the only writer.
    #[inline]
    pub(crate) fn add(&self, n: usize) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n as u64), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn sub(&self, n: usize) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n as u64), Ordering::Relaxed);
    }

    /// The sum over the cores. A gauge of one core may have wrapped below zero: the client came on another.
    pub(crate) fn sum<'c>(counts: impl Iterator<Item = &'c Self>) -> u64 {
        counts.fold(0, |sum, count| sum.wrapping_add(count.get()))
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares a set of counters: field, kind, metric name, labels, help. The list that `/metrics` shows is this list.
macro_rules! counters {
    ($(#[$doc:meta])* $set:ident { $($field:ident: $kind:literal $metric:literal [$($label:literal)?] $help:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct $set { $(pub(crate) $field: Count,)* }

        impl $set {
            pub(crate) const METRICS: &'static [Metric] =
                &[$(Metric { kind: $kind, name: $metric, labels: concat!($($label)?), help: $help },)*];

            pub(crate) fn values(&self) -> Vec<u64> {
                vec![$(self.$field.get(),)*]
            }
        }
    };
}

/// Durations of one kind, counted by length. One thread adds to it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Histogram {
    /// How many were at most as long as each of [`Histogram::BOUNDS_US`] and longer than the one before; then the rest.
    buckets: [Count; Self::BOUNDS_US.len() + 1],
    sum_us: Count,
}

impl Histogram {
    /// Upper bounds of the buckets, microseconds.
    const BOUNDS_US: [u64; 11] = [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 250_000];

    pub(crate) fn note(&self, micros: u64) {
        let bucket = Self::BOUNDS_US.partition_point(|bound| *bound < micros);
        self.buckets[bucket].add(1);
        self.sum_us.add(usize::try_from(micros).unwrap_or(usize::MAX));
    }

    /// Appends the sum of `parts` in the text format.
    pub(crate) fn write(out: &mut String, name: &str, help: &str, parts: &[Self]) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut count = 0;
        for (index, bound) in Self::BOUNDS_US.iter().enumerate() {
            count += Count::sum(parts.iter().map(|part| &part.buckets[index]));
            let _ = writeln!(out, "{name}_bucket{{le=\"{}\"}} {count}", *bound as f64 / 1e6);
        }
        count += Count::sum(parts.iter().map(|part| &part.buckets[Self::BOUNDS_US.len()]));
        let sum = Count::sum(parts.iter().map(|part| &part.sum_us)) as f64 / 1e6;
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
    }
}

/// One line of `/metrics`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) labels: &'static str,
    pub(crate) help: &'static str,
}

counters! {
    /// What concerns the process as a whole: before a connection belongs to a broker.
    CoreCounters {
        accepted: "counter" "millrace_connections_accepted_total" [] "Connections accepted on any listener.",
        open: "gauge" "millrace_connections_open" [] "Open network connections, whether or not they sent CONNECT.",
        bytes_in: "counter" "millrace_bytes_received_total" [] "Bytes read from connections.",
        bytes_out: "counter" "millrace_bytes_sent_total" [] "Bytes written to connections.",
        refused_unspread: "counter" "millrace_connects_refused_at_once_total" [] "CONNECT packets over the rate or a quota that were refused without delay, for want of room to wait.",
        turns: "counter" "millrace_loop_turns_total" [] "Turns of the event loops.",
        wakes: "counter" "millrace_loop_wakes_total" [] "Times a core woke another one.",
        scan_slices: "counter" "millrace_session_scan_slices_total" [] "Slices of the sessions in memory that were looked through, for lists of clients and for bans.",
        scans_refused: "counter" "millrace_session_scans_refused_total" [] "Lists of clients that were not made because too many were asked for at once.",
        refused_limit: "counter" "millrace_connections_refused_total" ["reason=\"connections_max\""] "Connections closed before they belonged to a broker, by reason.",
        refused_files: "counter" "millrace_connections_refused_total" ["reason=\"open_files\""] "Connections closed before they belonged to a broker, by reason.",
        refused_proxy: "counter" "millrace_connections_refused_total" ["reason=\"proxy_header\""] "Connections closed before they belonged to a broker, by reason.",
        refused_handshake: "counter" "millrace_connections_refused_total" ["reason=\"websocket_handshake\""] "Connections closed before they belonged to a broker, by reason.",
        refused_silent: "counter" "millrace_connections_refused_total" ["reason=\"connect_timeout\""] "Connections closed before they belonged to a broker, by reason.",
        refused_first: "counter" "millrace_connections_refused_total" ["reason=\"first_packet\""] "Connections closed before they belonged to a broker, by reason.",
        refused_connect: "counter" "millrace_connections_refused_total" ["reason=\"invalid_connect\""] "Connections closed before they belonged to a broker, by reason.",
        refused_broker: "counter" "millrace_connections_refused_total" ["reason=\"unknown_broker\""] "Connections closed before they belonged to a broker, by reason.",
        refused_frame: "counter" "millrace_connections_refused_total" ["reason=\"websocket_frame\""] "Connections closed before they belonged to a broker, by reason.",
        refused_slow: "counter" "millrace_connections_refused_total" ["reason=\"outbound_limit\""] "Connections closed before they belonged to a broker, by reason.",
        refused_closed: "counter" "millrace_connections_refused_total" ["reason=\"closed_by_peer\""] "Connections closed before they belonged to a broker, by reason.",
        limit_broker_connections: "counter" "millrace_limits_reached_total" ["limit=\"broker.connections\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_connects: "counter" "millrace_limits_reached_total" ["limit=\"broker.connects_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_messages: "counter" "millrace_limits_reached_total" ["limit=\"broker.publishes_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_bytes: "counter" "millrace_limits_reached_total" ["limit=\"broker.publish_bytes_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_subscriptions: "counter" "millrace_limits_reached_total" ["limit=\"broker.subscriptions\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_queue_bytes: "counter" "millrace_limits_reached_total" ["limit=\"broker.queue_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_retained: "counter" "millrace_limits_reached_total" ["limit=\"broker.retained_messages\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_connects: "counter" "millrace_limits_reached_total" ["limit=\"client.connects_per_min\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_messages: "counter" "millrace_limits_reached_total" ["limit=\"client.publishes_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_bytes: "counter" "millrace_limits_reached_total" ["limit=\"client.publish_bytes_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_subscriptions: "counter" "millrace_limits_reached_total" ["limit=\"client.subscriptions\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_queue: "counter" "millrace_limits_reached_total" ["limit=\"client.queue\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_packet: "counter" "millrace_limits_reached_total" ["limit=\"client.packet_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_share_names: "counter" "millrace_limits_reached_total" ["limit=\"filter.share_names\""] "Times that a limit of a tenant was reached, by limit.",
        limit_retained_bytes: "counter" "millrace_limits_reached_total" ["limit=\"broker.retained_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_memory: "counter" "millrace_limits_reached_total" ["limit=\"server.memory\""] "Times that a limit of a tenant was reached, by limit.",
        limit_matches: "counter" "millrace_limits_reached_total" ["limit=\"topic.matching_filters\""] "Times that a limit of a tenant was reached, by limit.",
    }
}

counters! {
    /// What belongs to one broker.
    BrokerCounters {
        connects: "counter" "millrace_connects_total" [] "CONNECT packets accepted.",
        waited: "counter" "millrace_connects_waited_total" [] "CONNECT packets that waited, for their turn or to be refused.",
        connected: "gauge" "millrace_clients_connected" [] "Clients connected now.",
        sessions: "gauge" "millrace_sessions" [] "Sessions, connected or not.",
        refused_credentials: "counter" "millrace_connects_refused_total" ["reason=\"credentials\""] "CONNECT packets refused, by reason.",
        refused_will_topic: "counter" "millrace_connects_refused_total" ["reason=\"will_topic\""] "CONNECT packets refused, by reason.",
        refused_authorization: "counter" "millrace_connects_refused_total" ["reason=\"not_authorized\""] "CONNECT packets refused, by reason.",
        refused_method: "counter" "millrace_connects_refused_total" ["reason=\"authentication_method\""] "CONNECT packets refused, by reason.",
        refused_banned: "counter" "millrace_connects_refused_total" ["reason=\"banned\""] "CONNECT packets refused, by reason.",
        refused_busy: "counter" "millrace_connects_refused_total" ["reason=\"busy\""] "CONNECT packets refused, by reason.",
        refused_unavailable: "counter" "millrace_connects_refused_total" ["reason=\"unavailable\""] "CONNECT packets refused, by reason.",
        refused_keys: "counter" "millrace_connects_refused_total" ["reason=\"no_keys\""] "CONNECT packets refused, by reason.",
        refused_webhook: "counter" "millrace_connects_refused_total" ["reason=\"webhook_failed\""] "CONNECT packets refused, by reason.",
        refused_rate: "counter" "millrace_connects_refused_total" ["reason=\"rate\""] "CONNECT packets refused, by reason.",
        refused_quota: "counter" "millrace_connects_refused_total" ["reason=\"connections_quota\""] "CONNECT packets refused, by reason.",
        refused_spend_cap: "counter" "millrace_connects_refused_total" ["reason=\"spend_cap\""] "CONNECT packets refused, by reason.",
        refused_draining: "counter" "millrace_connects_refused_total" ["reason=\"draining\""] "CONNECT packets refused, by reason.",
        refused_store: "counter" "millrace_connects_refused_total" ["reason=\"store\""] "CONNECT packets refused, by reason.",
        ended_client: "counter" "millrace_disconnects_total" ["reason=\"client\""] "Connections that ended, by reason.",
        ended_lost: "counter" "millrace_disconnects_total" ["reason=\"lost\""] "Connections that ended, by reason.",
        ended_keep_alive: "counter" "millrace_disconnects_total" ["reason=\"keep_alive\""] "Connections that ended, by reason.",
        ended_taken_over: "counter" "millrace_disconnects_total" ["reason=\"taken_over\""] "Connections that ended, by reason.",
        ended_malformed: "counter" "millrace_disconnects_total" ["reason=\"malformed_packet\""] "Connections that ended, by reason.",
        ended_protocol: "counter" "millrace_disconnects_total" ["reason=\"protocol_error\""] "Connections that ended, by reason.",
        ended_too_large: "counter" "millrace_disconnects_total" ["reason=\"packet_too_large\""] "Connections that ended, by reason.",
        ended_frame: "counter" "millrace_disconnects_total" ["reason=\"websocket_frame\""] "Connections that ended, by reason.",
        ended_topic: "counter" "millrace_disconnects_total" ["reason=\"invalid_topic\""] "Connections that ended, by reason.",
        ended_alias: "counter" "millrace_disconnects_total" ["reason=\"topic_alias\""] "Connections that ended, by reason.",
        ended_receive_maximum: "counter" "millrace_disconnects_total" ["reason=\"receive_maximum\""] "Connections that ended, by reason.",
        ended_slow: "counter" "millrace_disconnects_total" ["reason=\"outbound_limit\""] "Connections that ended, by reason.",
        ended_shutdown: "counter" "millrace_disconnects_total" ["reason=\"shutdown\""] "Connections that ended, by reason.",
        ended_drained: "counter" "millrace_disconnects_total" ["reason=\"drained\""] "Connections that ended, by reason.",
        ended_kicked: "counter" "millrace_disconnects_total" ["reason=\"administrative_action\""] "Connections that ended, by reason.",
        ended_banned: "counter" "millrace_disconnects_total" ["reason=\"banned\""] "Connections that ended, by reason.",
        ended_other: "counter" "millrace_disconnects_total" ["reason=\"other\""] "Connections that ended, by reason.",
        received_qos0: "counter" "millrace_messages_received_total" ["qos=\"0\""] "PUBLISH packets from clients.",
        received_qos1: "counter" "millrace_messages_received_total" ["qos=\"1\""] "PUBLISH packets from clients.",
        received_qos2: "counter" "millrace_messages_received_total" ["qos=\"2\""] "PUBLISH packets from clients.",
        sent: "counter" "millrace_messages_sent_total" [] "Messages sent or queued to subscribers.",
        dropped_busy: "counter" "millrace_messages_dropped_total" ["reason=\"busy_socket\""] "Messages not delivered to a subscriber, by reason.",
        dropped_queue: "counter" "millrace_messages_dropped_total" ["reason=\"queue_full\""] "Messages not delivered to a subscriber, by reason.",
        dropped_expired: "counter" "millrace_messages_dropped_total" ["reason=\"expired\""] "Messages not delivered to a subscriber, by reason.",
        dropped_too_large: "counter" "millrace_messages_dropped_total" ["reason=\"packet_too_large\""] "Messages not delivered to a subscriber, by reason.",
        publish_denied: "counter" "millrace_publishes_refused_total" ["reason=\"not_authorized\""] "PUBLISH packets refused, by reason.",
        publish_quota: "counter" "millrace_publishes_refused_total" ["reason=\"retained_limit\""] "PUBLISH packets refused, by reason.",
        publish_matches: "counter" "millrace_publishes_refused_total" ["reason=\"matching_filters\""] "PUBLISH packets refused, by reason.",
        publish_topic_bytes: "counter" "millrace_publishes_refused_total" ["reason=\"topic_bytes\""] "PUBLISH packets refused, by reason.",
        publish_topic: "counter" "millrace_publishes_refused_total" ["reason=\"topic_levels\""] "PUBLISH packets refused, by reason.",
        publish_spend_cap: "counter" "millrace_publishes_refused_total" ["reason=\"spend_cap\""] "PUBLISH packets refused, by reason.",
        subscribe_denied: "counter" "millrace_subscribes_refused_total" ["reason=\"not_authorized\""] "Subscriptions refused, by reason.",
        subscribe_quota: "counter" "millrace_subscribes_refused_total" ["reason=\"subscriptions_limit\""] "Subscriptions refused, by reason.",
        subscribe_invalid: "counter" "millrace_subscribes_refused_total" ["reason=\"invalid_filter\""] "Subscriptions refused, by reason.",
        revoked: "counter" "millrace_subscriptions_revoked_total" [] "Subscriptions that ended because the rules of their client do not allow them any more.",
        publish_store: "counter" "millrace_publishes_refused_total" ["reason=\"store\""] "PUBLISH packets refused, by reason.",
        stored: "counter" "millrace_messages_stored_total" [] "Messages written to the store, each once for all sessions.",
        unstored: "counter" "millrace_messages_unstored_total" [] "Messages that were not written to the store because all sessions had acknowledged them.",
        trimmed: "counter" "millrace_messages_trimmed_total" [] "Stored messages that a limit removed before all sessions had them.",
        missed: "counter" "millrace_messages_missed_total" [] "Stored messages that a session missed because a limit had removed them.",
        unqueued: "counter" "millrace_webhook_events_unqueued_total" [] "Events for webhooks that the store could not take: of clients, and messages with QoS 0.",
        wills_dropped: "counter" "millrace_wills_dropped_total" [] "Will messages that the store cannot hold, of older versions of this server.",
        wills: "counter" "millrace_wills_published_total" [] "Will messages published.",
        pauses: "counter" "millrace_publisher_pauses_total" [] "Times a publisher was not read because its receivers were behind.",
    }
}

impl BrokerCounters {
    /// Messages that did not reach a subscriber.
    pub(crate) fn dropped(&self) -> u64 {
        let reasons =
            [&self.dropped_busy, &self.dropped_queue, &self.dropped_expired, &self.dropped_too_large];
        reasons.into_iter().map(Count::get).sum()
    }
}

/// Appends the text format of `metrics`. `sets` are summed for each label (with quotes), which comes first.
pub(crate) fn write(out: &mut String, metrics: &[Metric], sets: &[(String, Vec<Vec<u64>>)]) {
    let columns: Vec<_> = metrics.iter().enumerate().collect();
    for of_one_name in columns.chunk_by(|(_, one), (_, other)| one.name == other.name) {
        let lines = sets.iter().flat_map(|(label, sets)| {
            of_one_name.iter().map(move |(index, metric)| {
                // A gauge is a sum of wrapping differences: a client may come on one core and go on another.
                let value = sets.iter().fold(0u64, |sum, set| sum.wrapping_add(set[*index]));
                (**metric, &**label, value)
            })
        });
        write_lines(out, lines);
    }
}

/// Writes metrics, of which those of one name stand together, each with a label of its own or `""`, and its value.
pub(crate) fn write_lines<'l>(out: &mut String, lines: impl Iterator<Item = (Metric, &'l str, u64)>) {
    let mut last = "";
    for (Metric { name, kind, help, labels }, label, value) in lines {
        if name != last {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            last = name;
        }
        let comma = if label.is_empty() || labels.is_empty() { "" } else { "," };
        let _ = match (label, labels) {
            ("", "") => writeln!(out, "{name} {value}"),
            _ => writeln!(out, "{name}{{{label}{comma}{labels}}} {value}"),
        };
    }
}
