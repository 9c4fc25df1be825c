//! All limits of the edge.

use millrace_router::MatchLimits;

/// Bounds of one match of a topic with the filters of a broker. A PUBLISH whose topic exceeds them is refused (0x97): its cost
/// would grow with the subscriptions of any client of the broker, and the store accepts no more streams for one message. A match
/// of 8,192 nodes takes about a millisecond.
pub(crate) const MATCH: MatchLimits =
    MatchLimits { filters_max: millrace_layers::limits::STREAMS_PER_PUBLISH_MAX, nodes_max: 8_192 };

/// Share names on one topic filter. A SUBSCRIBE for one more is refused (0x97), because every message of the topic costs a
/// delivery for each share name.
pub(crate) const SHARE_NAMES_PER_FILTER_MAX: usize = 250;

/// Bytes of one event loop's cache of topics' receivers. The least recently used topics are evicted.
pub(crate) const ROUTE_CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: u32 = 10_000;
/// One address can use this part of the files that the process can open.
pub(crate) const FILES_PER_ADDRESS_DIVISOR: u64 = 4;

/// Bytes of replies (handshake, pongs, AUTH) that are queued before the CONNECT is accepted. Beyond it the server closes the
/// connection, because an unknown client must not decide how much memory it costs.
pub(crate) const STRANGER_ANSWER_BYTES_MAX: usize = 8 * 1024;

/// Bytes of topic aliases per connection that do not count for its broker.
pub(crate) const TOPIC_ALIAS_BYTES_FREE: usize = 4 * 1024;

/// Longest topic that the store accepts, bytes: the maximum of `topic_bytes_max`.
pub const TOPIC_BYTES_MAX: u16 = 4_096;
const _: () = assert!(TOPIC_BYTES_MAX as usize == millrace_layers::limits::TOPIC_BYTES_MAX);

/// The limits of an edge process. Each is a setting of the same name (`--packet-size-max`, `packet_size_max` in the file,
/// `MILLRACE_PACKET_SIZE_MAX`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of all brokers. A further connection is closed (or refused with 0x89).
    pub connections_max: u32,
    /// Connections of one broker, so that one tenant does not take all of `connections_max`. A further CONNECT is refused (0x97).
    pub connections_per_broker_max: u32,
    /// Connections of one address (IPv6: of one /64), so that it does not take all of `connections_max`. A further connection is
    /// closed. 0: a quarter of the files that the process can open, because one address must not use those up either; at most
    /// 10,000, which is room for a site of many devices behind one address.
    pub connections_per_address_max: u32,
    /// Connections a second of one address; 0: no limit. A further connection is closed.
    pub connects_per_address_per_second_max: u32,
    /// Connections of one address at once after a quiet time. The default lets the devices of a site reconnect together.
    pub connects_per_address_burst: u32,
    /// Admitted CONNECTs a second, of all brokers; 0: no limit. The default is about the capacity of two cores when persistent
    /// sessions reconnect (18,000 of them take 2.3 to 4 s of CPU time), so that a storm takes the whole machine but not more.
    pub connects_per_second_max: u32,
    /// Admitted CONNECTs at once after a quiet time. The default is two seconds' worth: that many clients reconnect without
    /// noticing the rate.
    pub connects_burst: u32,
    /// CONNECTs over the rate in the queue, by brokers in turn, half of them of one broker. Further ones are refused (0x9F, or
    /// 0x89 when the server cannot keep up). As many delayed refusals are remembered. The default is a second's worth for one
    /// broker.
    pub connects_waiting_max: u32,
    /// Refusals are spread over this many milliseconds at random, so that clients that came together do not come back together.
    pub refusal_spread_ms: u16,
    /// Seconds from accept to a whole CONNECT: a connection that sends none must not hold a socket.
    pub connect_timeout_s: u16,
    /// Largest packet from a client, bytes (Maximum Packet Size of CONNACK).
    pub packet_size_max: u32,
    /// Largest CONNECT, bytes: the server buffers it before it knows the client. The largest will and password fit.
    pub connect_size_max: u32,
    /// Largest keep alive, seconds. A 5.0 client that asks for more (or for none) gets this one in CONNACK. 0: no limit.
    pub keep_alive_max_s: u16,
    /// Longest client identifier, bytes.
    pub client_id_bytes_max: u16,
    /// Unacknowledged QoS 1 and 2 messages from a client (Receive Maximum of CONNACK).
    pub receive_maximum: u16,
    /// Unacknowledged QoS 1 and 2 messages to one client, whatever it allows (a 3.x client cannot name a limit): bounds the
    /// retransmissions after a reconnect.
    pub inflight_max: u16,
    /// Topic aliases that a client can set (Topic Alias Maximum of CONNACK): each costs memory for a topic.
    pub topic_alias_max: u16,
    /// Bytes of one client's aliased topics. Beyond it the connection is closed (0x97), because a server cannot refuse an alias
    /// and go on.
    pub topic_alias_bytes_max: u32,
    /// The same of all clients of one broker; 0: a sixteenth of `memory_max`, and 64 MiB at least. The first 4 KiB of each
    /// connection do not count, so that a fleet of ordinary devices never reaches it.
    pub topic_alias_bytes_per_broker_max: u64,
    /// Topic aliases towards one client, whatever it allows.
    pub topic_alias_outbound_max: u16,
    /// Subscriptions of one session. A persistent session has 1000 at most, so that one transaction can delete it.
    pub subscriptions_per_session_max: u32,
    /// Levels of a topic filter or topic name: bounds the work of a match.
    pub topic_levels_max: u16,
    /// Longest topic filter or topic name, bytes. Over [`TOPIC_BYTES_MAX`] the store has no key for a retained message.
    pub topic_bytes_max: u16,
    /// Longest session expiry, seconds. A 5.0 client that asks for more gets this one in CONNACK.
    pub session_expiry_max_s: u32,
    /// Session expiry of 3.x clients without clean session, seconds.
    pub session_expiry_v3_s: u32,
    /// Queued messages of the sessions of one topic filter: beyond it the oldest are dropped and counted. Without a store: of one
    /// session, offline or over its receive maximum.
    pub queue_messages_max: u32,
    /// Queued bytes (topic, properties and payload) of one session.
    pub queue_bytes_max: u64,
    /// Memory of the messages of one broker's in-memory sessions, bytes, queued or unacknowledged. A message counts once, however
    /// many sessions hold it. Beyond it, a session that holds more than a few small messages gets no further ones. 0: half of
    /// `queue_memory_max`, and 64 MiB at least.
    pub queue_memory_per_broker_max: u64,
    /// The same of all brokers; 0: a quarter of `memory_max`. Beyond it in-memory sessions get no messages that they would have
    /// to queue.
    pub queue_memory_max: u64,
    /// Memory of the filters of one broker's connected or in-memory sessions, bytes; 0: half of `filter_memory_max`. Beyond it a
    /// SUBSCRIBE is refused (0x97).
    pub filter_memory_per_broker_max: u64,
    /// The same of all brokers; 0: a quarter of `memory_max`, and 256 MiB at least.
    pub filter_memory_max: u64,
    /// Retained messages of one broker.
    pub retained_messages_max: u32,
    /// Memory that the process can use, bytes; 0: the limit of its cgroup or the memory of the machine. From 70 % on load is
    /// shed, in the order of `memory::Pressure`.
    pub memory_max: u64,
    /// Memory of one broker's retained messages, bytes, with about 100 bytes for each level of a topic. Beyond it a retained
    /// message is refused (0x97).
    pub retained_bytes_max: u64,
    /// Bytes queued for a busy socket above which QoS 0 messages to it are dropped.
    pub outbound_soft_bytes: u32,
    /// Bytes queued for a busy socket above which the connection is closed (0x97). Acknowledgements and QoS 1 within the receive
    /// maximum stay below it.
    pub outbound_hard_bytes: u32,
    /// Bytes of replies (PINGRESP, PUBACK, PUBREC, SUBACK, pongs) queued for a client that does not read them. Beyond it the
    /// server stops reading from the client until half of them are written.
    pub answers_bytes_max: u32,
    /// Seconds after which the server closes such a client.
    pub answers_timeout_s: u16,
    /// Client ids of one broker that one event loop serves, so that messages between them cross no loops. A broker with more
    /// spreads over all loops until the process ends; clients at home stay there. 0: every broker is spread from the start.
    pub home_clients_max: u32,
    /// Bytes between two cores above which reading from publishers pauses.
    pub mailbox_bytes_max: u32,
    /// Bytes queued for the store. Brokers with queued bytes have equal shares; reading from the publishers of a broker over its
    /// share pauses.
    pub store_bytes_max: u32,
    /// Seconds between updates of the `$SYS` topics of each broker; 0: never.
    pub sys_interval_s: u16,
    /// Brokers with metrics of their own, the busiest; the others are summed. Each has about 80 series per pod.
    pub metrics_brokers_max: u16,
    /// Seconds between flushes of usage to the store; 0: never, then only stored messages are counted. A killed process loses the
    /// usage since the last flush.
    pub usage_interval_s: u16,
    /// Largest HTTP request head of a WebSocket handshake, bytes.
    pub http_head_bytes_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1_000_000,
            connections_per_broker_max: 1_000_000,
            connections_per_address_max: 0,
            connects_per_address_per_second_max: 500,
            connects_per_address_burst: 5_000,
            connects_per_second_max: 10_000,
            connects_burst: 20_000,
            connects_waiting_max: 20_000,
            refusal_spread_ms: 1_000,
            connect_timeout_s: 10,
            packet_size_max: 1024 * 1024,
            connect_size_max: 256 * 1024,
            keep_alive_max_s: 0,
            client_id_bytes_max: 1024,
            receive_maximum: 1024,
            inflight_max: 1024,
            topic_alias_max: 64,
            topic_alias_bytes_max: 64 * 1024,
            topic_alias_bytes_per_broker_max: 0,
            topic_alias_outbound_max: 16,
            subscriptions_per_session_max: 100_000,
            topic_levels_max: 128,
            topic_bytes_max: TOPIC_BYTES_MAX,
            session_expiry_max_s: 90 * 24 * 3600,
            session_expiry_v3_s: 7 * 24 * 3600,
            queue_messages_max: 100_000,
            queue_bytes_max: 64 * 1024 * 1024,
            queue_memory_per_broker_max: 0,
            queue_memory_max: 0,
            filter_memory_per_broker_max: 0,
            filter_memory_max: 0,
            retained_messages_max: 1_000_000,
            memory_max: 0,
            retained_bytes_max: 1024 * 1024 * 1024,
            outbound_soft_bytes: 1024 * 1024,
            outbound_hard_bytes: 64 * 1024 * 1024,
            answers_bytes_max: 256 * 1024,
            answers_timeout_s: 60,
            home_clients_max: 256,
            mailbox_bytes_max: 4 * 1024 * 1024,
            store_bytes_max: 32 * 1024 * 1024,
            sys_interval_s: 10,
            metrics_brokers_max: 20,
            usage_interval_s: 2,
            http_head_bytes_max: 8192,
        }
    }
}

const FILTER_MEMORY_MIN: u64 = 256 * 1024 * 1024;
/// The least default memory of one broker's queues, and of its topic aliases, bytes.
const PER_BROKER_MIN: u64 = 64 * 1024 * 1024;
/// Filters can use one part in so many of the process' memory, and messages that sessions hold as well.
const MEMORY_DIVISOR: u64 = 4;
/// The topic aliases of one broker can use one part in so many of that.
const ALIASES_DIVISOR: u64 = 4;

impl Limits {
    /// Fills in the defaults that derive from `memory`; 0 is unknown.
    pub(crate) fn with_memory(mut self, memory: u64) -> Self {
        let or = |said: u64, otherwise: u64| if said == 0 { otherwise } else { said };
        let share = if memory == 0 { u64::MAX } else { memory / MEMORY_DIVISOR };
        self.queue_memory_max = or(self.queue_memory_max, share);
        self.queue_memory_per_broker_max =
            or(self.queue_memory_per_broker_max, (self.queue_memory_max / 2).max(PER_BROKER_MIN));
        self.topic_alias_bytes_per_broker_max =
            or(self.topic_alias_bytes_per_broker_max, (share / ALIASES_DIVISOR).max(PER_BROKER_MIN));
        self.filter_memory_max = or(self.filter_memory_max, share.max(FILTER_MEMORY_MIN));
        self.filter_memory_per_broker_max = or(self.filter_memory_per_broker_max, self.filter_memory_max / 2);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_memory_follow_from_what_the_process_may_use() {
        const GIB: u64 = 1 << 30;
        let of = |limits: Limits, memory| {
            let limits = limits.with_memory(memory);
            (limits.queue_memory_max, limits.filter_memory_max, limits.filter_memory_per_broker_max)
        };
        assert_eq!(of(Limits::default(), 4 * GIB), (GIB, GIB, GIB / 2));
        assert_eq!(of(Limits::default(), GIB / 2), (GIB / 8, GIB / 4, GIB / 8));
        assert_eq!(of(Limits::default(), 0), (u64::MAX, u64::MAX, u64::MAX / 2));
        let said = Limits { queue_memory_max: 1, filter_memory_max: 10, ..Limits::default() };
        assert_eq!(of(said, 4 * GIB), (1, 10, 5));
    }

    #[test]
    fn limits_of_one_broker_follow_from_the_memory_and_admit_ordinary_fleets() {
        const GIB: u64 = 1 << 30;
        const MIB: u64 = 1 << 20;
        let of = |limits: Limits, memory| {
            let limits = limits.with_memory(memory);
            (limits.queue_memory_per_broker_max, limits.topic_alias_bytes_per_broker_max)
        };
        assert_eq!(of(Limits::default(), 4 * GIB), (512 * MIB, 256 * MIB));
        assert_eq!(of(Limits::default(), GIB / 4), (64 * MIB, 64 * MIB));
        assert_eq!(of(Limits::default(), 0), (u64::MAX / 2, u64::MAX / 4));
        let said = Limits {
            queue_memory_per_broker_max: 1,
            topic_alias_bytes_per_broker_max: 2,
            ..Limits::default()
        };
        assert_eq!(of(said, 4 * GIB), (1, 2));
        // 10,000 subscribers with 100 unacknowledged messages each.
        let held = 10_000 * 100 * millrace_session::Budget::HOLDER_BYTES;
        assert!(of(Limits::default(), GIB).0 > held, "{held}");
    }
}
