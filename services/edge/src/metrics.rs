//! Counters: one set per core, written by that core alone and summed when read. Each metric is declared in
//! `services/edge/metrics.toml` too: `make lint` compares both.

mod connect_steps;
mod histogram;
mod latencies;
mod loudest;

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_layers::metering::{DROP_REASONS, DropCause};
use millrace_mqtt::Version;

pub(crate) use connect_steps::{ConnectStep, ConnectSteps, ConnectTimes};
pub(crate) use histogram::Histogram;
pub(crate) use latencies::Latencies;
pub(crate) use loudest::{LoudRow, LoudestBrokers};

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

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// A gauge of one core may have wrapped below zero, because the client connected on another.
    pub(crate) fn sum<'c>(counts: impl Iterator<Item = &'c Self>) -> u64 {
        counts.fold(0, |sum, count| sum.wrapping_add(count.get()))
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares a set of counters: field, kind, metric name, labels, help. `/metrics` shows exactly this list.
macro_rules! counters {
    ($(#[$doc:meta])* $set:ident { $($field:ident: $kind:literal $metric:literal [$($label:literal)?] $help:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        // No cache line (two of them, which processors fetch together) belongs to the sets of two cores.
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) labels: &'static str,
    pub(crate) help: &'static str,
}

counters! {
    CoreCounters {
        accepted: "counter" "millrace_connections_accepted_total" [] "Connections accepted on any listener.",
        open: "gauge" "millrace_connections_open" [] "Open network connections, whether or not they sent CONNECT.",
        bytes_in: "counter" "millrace_received_bytes_total" [] "Bytes read from connections.",
        outbound_bytes: "gauge" "millrace_outbound_bytes" [] "Bytes that wait in outbound buffers because sockets accept no more. Updated once a second.",
        bytes_out: "counter" "millrace_sent_bytes_total" [] "Bytes written to connections.",
        tls_full: "counter" "millrace_tls_handshakes_total" ["kind=\"full\""] "TLS handshakes that succeeded, by kind.",
        tls_resumed: "counter" "millrace_tls_handshakes_total" ["kind=\"resumed\""] "TLS handshakes that succeeded, by kind.",
        refused_unspread: "counter" "millrace_connects_refused_at_once_total" [] "CONNECT packets over the rate or a quota that were refused without delay, because the queue was full.",
        turns: "counter" "millrace_loop_turns_total" [] "Turns of the event loops.",
        wakes: "counter" "millrace_loop_wakes_total" [] "Times a core woke another one.",
        filter_edits: "counter" "millrace_loop_filter_edits_total" [] "Edits of a broker's filters for SUBSCRIBE and UNSUBSCRIBE packets. Packets of one turn share an edit.",
        scan_slices: "counter" "millrace_session_scan_slices_total" [] "Slices of the sessions in memory that were looked through, for lists of clients and for bans.",
        scans_refused: "counter" "millrace_session_scans_refused_total" [] "Lists of clients that were not made because too many were asked for at once.",
        traces_followed: "counter" "millrace_traces_total" ["result=\"followed\""] "Messages sampled for a trace: followed, or left out for the rate limit or because the queue of spans was full.",
        traces_over_rate: "counter" "millrace_traces_total" ["result=\"over_rate\""] "Messages sampled for a trace: followed, or left out for the rate limit or because the queue of spans was full.",
        traces_queue_full: "counter" "millrace_traces_total" ["result=\"queue_full\""] "Messages sampled for a trace: followed, or left out for the rate limit or because the queue of spans was full.",
        protocol_connected_v31: "gauge" "millrace_protocol_clients_connected" ["version=\"3.1\""] "Clients connected now, by protocol version.",
        protocol_connected_v311: "gauge" "millrace_protocol_clients_connected" ["version=\"3.1.1\""] "Clients connected now, by protocol version.",
        protocol_connected_v5: "gauge" "millrace_protocol_clients_connected" ["version=\"5.0\""] "Clients connected now, by protocol version.",
        protocol_connects_v31: "counter" "millrace_protocol_connects_total" ["version=\"3.1\""] "CONNECT packets accepted, by protocol version.",
        protocol_connects_v311: "counter" "millrace_protocol_connects_total" ["version=\"3.1.1\""] "CONNECT packets accepted, by protocol version.",
        protocol_connects_v5: "counter" "millrace_protocol_connects_total" ["version=\"5.0\""] "CONNECT packets accepted, by protocol version.",
        protocol_received_v31: "counter" "millrace_protocol_messages_received_total" ["version=\"3.1\""] "PUBLISH packets from clients, by protocol version.",
        protocol_received_v311: "counter" "millrace_protocol_messages_received_total" ["version=\"3.1.1\""] "PUBLISH packets from clients, by protocol version.",
        protocol_received_v5: "counter" "millrace_protocol_messages_received_total" ["version=\"5.0\""] "PUBLISH packets from clients, by protocol version.",
        accepts_failed: "counter" "millrace_accepts_failed_total" [] "Times that a listener paused for a second, because the process was out of open files or memory.",
        refused_limit: "counter" "millrace_connections_refused_total" ["reason=\"connections_max\""] "Connections closed before they belonged to a broker, by reason.",
        refused_files: "counter" "millrace_connections_refused_total" ["reason=\"open_files\""] "Connections closed before they belonged to a broker, by reason.",
        refused_address: "counter" "millrace_connections_refused_total" ["reason=\"address_connections\""] "Connections closed before they belonged to a broker, by reason.",
        refused_address_rate: "counter" "millrace_connections_refused_total" ["reason=\"address_rate\""] "Connections closed before they belonged to a broker, by reason.",
        refused_proxy: "counter" "millrace_connections_refused_total" ["reason=\"proxy_header\""] "Connections closed before they belonged to a broker, by reason.",
        refused_tls: "counter" "millrace_connections_refused_total" ["reason=\"tls_handshake\""] "Connections closed before they belonged to a broker, by reason.",
        refused_handshake: "counter" "millrace_connections_refused_total" ["reason=\"websocket_handshake\""] "Connections closed before they belonged to a broker, by reason.",
        refused_silent: "counter" "millrace_connections_refused_total" ["reason=\"connect_timeout\""] "Connections closed before they belonged to a broker, by reason.",
        refused_first: "counter" "millrace_connections_refused_total" ["reason=\"first_packet\""] "Connections closed before they belonged to a broker, by reason.",
        refused_connect: "counter" "millrace_connections_refused_total" ["reason=\"invalid_connect\""] "Connections closed before they belonged to a broker, by reason.",
        refused_broker: "counter" "millrace_connections_refused_total" ["reason=\"unknown_broker\""] "Connections closed before they belonged to a broker, by reason.",
        refused_frame: "counter" "millrace_connections_refused_total" ["reason=\"websocket_frame\""] "Connections closed before they belonged to a broker, by reason.",
        refused_slow: "counter" "millrace_connections_refused_total" ["reason=\"outbound_limit\""] "Connections closed before they belonged to a broker, by reason.",
        refused_input: "counter" "millrace_connections_refused_total" ["reason=\"input_memory\""] "Connections closed before they belonged to a broker, by reason.",
        refused_closed: "counter" "millrace_connections_refused_total" ["reason=\"closed_by_peer\""] "Connections closed before they belonged to a broker, by reason.",
        limit_broker_connections: "counter" "millrace_limits_reached_total" ["limit=\"broker.connections\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_connects: "counter" "millrace_limits_reached_total" ["limit=\"broker.connects_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_messages: "counter" "millrace_limits_reached_total" ["limit=\"broker.publishes_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_bytes: "counter" "millrace_limits_reached_total" ["limit=\"broker.publish_bytes_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_filter_rate: "counter" "millrace_limits_reached_total" ["limit=\"broker.filters_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_subscriptions: "counter" "millrace_limits_reached_total" ["limit=\"broker.subscriptions\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_queue_bytes: "counter" "millrace_limits_reached_total" ["limit=\"broker.queue_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_retained: "counter" "millrace_limits_reached_total" ["limit=\"broker.retained_messages\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_connects: "counter" "millrace_limits_reached_total" ["limit=\"client.connects_per_min\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_messages: "counter" "millrace_limits_reached_total" ["limit=\"client.publishes_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_bytes: "counter" "millrace_limits_reached_total" ["limit=\"client.publish_bytes_per_s\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_subscriptions: "counter" "millrace_limits_reached_total" ["limit=\"client.subscriptions\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_queue: "counter" "millrace_limits_reached_total" ["limit=\"client.queue\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_packet: "counter" "millrace_limits_reached_total" ["limit=\"client.packet_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_packet_properties: "counter" "millrace_limits_reached_total" ["limit=\"packet.properties\""] "Times that a limit of a tenant was reached, by limit.",
        limit_share_names: "counter" "millrace_limits_reached_total" ["limit=\"filter.share_names\""] "Times that a limit of a tenant was reached, by limit.",
        limit_retained_bytes: "counter" "millrace_limits_reached_total" ["limit=\"broker.retained_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_client_aliases: "counter" "millrace_limits_reached_total" ["limit=\"client.topic_alias_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_aliases: "counter" "millrace_limits_reached_total" ["limit=\"broker.topic_alias_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_filters: "counter" "millrace_limits_reached_total" ["limit=\"broker.filter_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_sessions: "counter" "millrace_limits_reached_total" ["limit=\"broker.stored_sessions\""] "Times that a limit of a tenant was reached, by limit.",
        limit_broker_wills: "counter" "millrace_limits_reached_total" ["limit=\"broker.will_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_filters: "counter" "millrace_limits_reached_total" ["limit=\"server.filter_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_input: "counter" "millrace_limits_reached_total" ["limit=\"server.input_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_retained: "counter" "millrace_limits_reached_total" ["limit=\"server.retained_bytes\""] "Times that a limit of a tenant was reached, by limit.",
        limit_memory: "counter" "millrace_limits_reached_total" ["limit=\"server.memory\""] "Times that a limit of a tenant was reached, by limit.",
        limit_matches: "counter" "millrace_limits_reached_total" ["limit=\"topic.matching_filters\""] "Times that a limit of a tenant was reached, by limit.",
    }
}

counters! {
    BrokerCounters {
        connects: "counter" "millrace_connects_total" [] "CONNECT packets accepted.",
        waited: "counter" "millrace_connects_waited_total" [] "CONNECT packets that waited, for their turn or to be refused.",
        connected: "gauge" "millrace_clients_connected" [] "Clients connected now.",
        sessions: "gauge" "millrace_sessions" [] "Sessions of open brokers, connected or not. A pod counts its own, and the offline ones that it found when it opened the broker.",
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
        refused_broker_rate: "counter" "millrace_connects_refused_total" ["reason=\"broker_rate\""] "CONNECT packets refused, by reason.",
        refused_client_rate: "counter" "millrace_connects_refused_total" ["reason=\"client_rate\""] "CONNECT packets refused, by reason.",
        refused_quota: "counter" "millrace_connects_refused_total" ["reason=\"connections_quota\""] "CONNECT packets refused, by reason.",
        refused_stored_quota: "counter" "millrace_connects_refused_total" ["reason=\"stored_quota\""] "CONNECT packets refused, by reason.",
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
        dropped_memory: "counter" "millrace_messages_dropped_total" ["reason=\"queue_memory\""] "Messages not delivered to a subscriber, by reason.",
        dropped_expired: "counter" "millrace_messages_dropped_total" ["reason=\"expired\""] "Messages not delivered to a subscriber, by reason.",
        dropped_too_large: "counter" "millrace_messages_dropped_total" ["reason=\"packet_too_large\""] "Messages not delivered to a subscriber, by reason.",
        dropped_matching: "counter" "millrace_messages_dropped_total" ["reason=\"matching_work\""] "Messages not delivered to a subscriber, by reason.",
        publish_denied: "counter" "millrace_publishes_refused_total" ["reason=\"not_authorized\""] "PUBLISH packets refused, by reason.",
        publish_quota: "counter" "millrace_publishes_refused_total" ["reason=\"retained_limit\""] "PUBLISH packets refused, by reason.",
        publish_matches: "counter" "millrace_publishes_refused_total" ["reason=\"matching_filters\""] "PUBLISH packets refused, by reason.",
        publish_topic_bytes: "counter" "millrace_publishes_refused_total" ["reason=\"topic_bytes\""] "PUBLISH packets refused, by reason.",
        publish_topic: "counter" "millrace_publishes_refused_total" ["reason=\"topic_levels\""] "PUBLISH packets refused, by reason.",
        publish_spend_cap: "counter" "millrace_publishes_refused_total" ["reason=\"spend_cap\""] "PUBLISH packets refused, by reason.",
        publish_rate: "counter" "millrace_publishes_refused_total" ["reason=\"publish_rate\""] "PUBLISH packets refused, by reason.",
        publish_store: "counter" "millrace_publishes_refused_total" ["reason=\"store\""] "PUBLISH packets refused, by reason.",
        subscribe_denied: "counter" "millrace_subscribes_refused_total" ["reason=\"not_authorized\""] "Subscriptions refused, by reason.",
        subscribe_quota: "counter" "millrace_subscribes_refused_total" ["reason=\"subscriptions_limit\""] "Subscriptions refused, by reason.",
        subscribe_invalid: "counter" "millrace_subscribes_refused_total" ["reason=\"invalid_filter\""] "Subscriptions refused, by reason.",
        revoked: "counter" "millrace_subscriptions_revoked_total" [] "Subscriptions that ended because the rules of their client do not allow them any more.",
        stored: "counter" "millrace_messages_stored_total" [] "Messages written to the store, each once for all sessions.",
        unstored: "counter" "millrace_messages_unstored_total" [] "Messages that were not written to the store because all sessions had acknowledged them.",
        trimmed: "counter" "millrace_messages_trimmed_total" [] "Stored messages that a limit removed before all sessions had them.",
        missed: "counter" "millrace_messages_missed_total" [] "Stored messages that a session missed because a limit had removed them.",
        unqueued: "counter" "millrace_webhook_events_unqueued_total" [] "Events for webhooks that the store could not accept: of clients, and messages with QoS 0.",
        wills_dropped: "counter" "millrace_wills_dropped_total" [] "Will messages that an older version of this server accepted and that cannot be written to the store.",
        wills_refused: "counter" "millrace_wills_refused_total" [] "Will messages that were not published, because their clients had lost the right to it.",
        wills: "counter" "millrace_wills_published_total" [] "Will messages published.",
        pauses: "counter" "millrace_publisher_pauses_total" [] "Times reading from a publisher paused because its receivers lagged.",
    }
}

/// The process-wide counters of one protocol version. They have no broker, so their number stays bounded.
pub(crate) struct ProtocolCounters<'a> {
    pub(crate) connected: &'a Count,
    pub(crate) connects: &'a Count,
    pub(crate) received: &'a Count,
}

impl CoreCounters {
    #[inline]
    pub(crate) fn protocol(&self, version: Version) -> ProtocolCounters<'_> {
        let (connected, connects, received) = match version {
            Version::V31 => {
                (&self.protocol_connected_v31, &self.protocol_connects_v31, &self.protocol_received_v31)
            }
            Version::V311 => {
                (&self.protocol_connected_v311, &self.protocol_connects_v311, &self.protocol_received_v311)
            }
            Version::V5 => {
                (&self.protocol_connected_v5, &self.protocol_connects_v5, &self.protocol_received_v5)
            }
        };
        ProtocolCounters { connected, connects, received }
    }
}

impl BrokerCounters {
    /// In the order of [`DropCause`].
    pub(crate) fn drops(&self) -> [u64; DROP_REASONS] {
        [
            &self.dropped_busy,
            &self.dropped_queue,
            &self.dropped_memory,
            &self.dropped_expired,
            &self.dropped_too_large,
            &self.trimmed,
        ]
        .map(Count::get)
    }

    /// Without the messages that a limit of the store removed.
    pub(crate) fn dropped(&self) -> u64 {
        self.drops()[..DropCause::StoredLimit as usize].iter().sum::<u64>() + self.dropped_matching.get()
    }
}

pub(crate) fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { kind: "gauge", name, labels: "", help }
}

pub(crate) fn sum(sets: impl IntoIterator<Item = Vec<u64>>) -> Vec<u64> {
    let add = |mut sums: Vec<u64>, set: Vec<u64>| {
        sums.iter_mut().zip(set).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
        sums
    };
    sets.into_iter().reduce(add).unwrap_or_default()
}

/// Appends the text format of `metrics`. Each row has a label (with quotes), which comes first, and a value of each metric.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn write(out: &mut String, metrics: &[Metric], rows: &[(String, Vec<u64>)]) {
    let columns: Vec<_> = metrics.iter().enumerate().collect();
    for of_one_name in columns.chunk_by(|(_, one), (_, other)| one.name == other.name) {
        let lines = rows.iter().flat_map(|(label, values)| {
            of_one_name.iter().map(move |(index, metric)| (**metric, &**label, values[*index] as f64))
        });
        write_lines(out, lines);
    }
}

/// Writes metrics, each with its own label or `""`. Metrics of one name must be adjacent.
pub(crate) fn write_lines<'l>(out: &mut String, lines: impl Iterator<Item = (Metric, &'l str, f64)>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_one_name_stand_together() {
        for metrics in [CoreCounters::METRICS, BrokerCounters::METRICS] {
            let names: Vec<_> =
                metrics.chunk_by(|one, next| one.name == next.name).map(|of_one| of_one[0].name).collect();
            let unique: std::collections::HashSet<_> = names.iter().collect();
            assert_eq!(unique.len(), names.len(), "{names:?}");
        }
    }
}
