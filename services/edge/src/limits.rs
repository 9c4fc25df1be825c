//! Limits of the edge.

use millrace_router::MatchLimits;

/// Bounds of one match of a topic with the filters of a broker. A PUBLISH whose topic exceeds them is refused (0x97): its cost
/// would grow with the subscriptions of any client of the broker, and the store accepts no more streams for one message. A match
/// of 8,192 nodes takes about a millisecond. To merge 50,000 subscriptions of several filters takes about 2 ms, in one step.
pub(crate) const MATCH: MatchLimits = MatchLimits {
    filters_max: millrace_layers::limits::STREAMS_PER_PUBLISH_MAX,
    nodes_max: 8_192,
    overlap_max: 50_000,
};
/// The same for the streams of a topic. The store accepts no more for one message.
pub(crate) const STREAM_MATCH: MatchLimits = MatchLimits { overlap_max: MATCH.filters_max, ..MATCH };

/// Share names on one topic filter. A SUBSCRIBE for one more is refused (0x97), because every message of the topic costs a
/// delivery for each share name.
pub(crate) const SHARE_NAMES_PER_FILTER_MAX: usize = 250;

/// Bytes of one event loop's cache of topics' receivers; the least recently used topics are evicted.
pub(crate) const ROUTE_CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// While the cache has more than this, topics are evicted that were not used for 5 s, plus a second for each 2,000 topics in the
/// cache. So a flood of topics does not hold memory, and idle topics of ordinary brokers stay.
pub(crate) const ROUTE_CACHE_UNUSED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Work that one broker may cause in a second by new topics from other pods, in units of 0.1 microseconds: a quarter of the
/// fabric's thread. Beyond it, the broker's live copies are dropped until the next second.
pub(crate) const FABRIC_MATCH_WORK_MAX: u64 = 2_500_000;

pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: u32 = 10_000;
/// One address can use this part of the files that the process can open.
pub(crate) const FILES_PER_ADDRESS_DIVISOR: u64 = 4;
/// Connections leave this part of the files that the process can open, but at least [`FILES_RESERVED_MIN`] and at most half.
pub(crate) const FILES_RESERVED_DIVISOR: u64 = 16;
pub(crate) const FILES_RESERVED_MIN: u64 = 256;

/// Bytes of replies (handshake, pongs, AUTH) that are queued before the CONNECT is accepted. Beyond it the server closes the
/// connection, because a client that is not authenticated must not decide how much memory it costs.
pub(crate) const UNAUTHENTICATED_REPLY_BYTES_MAX: usize = 8 * 1024;

/// Bytes of topic aliases per connection that do not count for its broker.
pub(crate) const TOPIC_ALIAS_BYTES_FREE: usize = 4 * 1024;

/// Memory of a broker for positions of removed retained messages, bytes. Beyond it an older copy of another pod that comes late
/// returns to memory until the topic changes.
pub(crate) const RETAINED_REMOVALS_BYTES_MAX: usize = 64 * 1024;

/// Expired retained messages that are removed before a limit refuses a new one: a bounded part of a turn.
pub(crate) const EXPIRED_AT_ONCE: usize = 64;

/// Longest topic that the store accepts, bytes: the maximum of `topic_bytes_max`.
pub const TOPIC_BYTES_MAX: u16 = 4_096;
const _: () = assert!(TOPIC_BYTES_MAX as usize == millrace_layers::limits::TOPIC_BYTES_MAX);

/// The limits of an edge process. Each is a setting of the same name, whose help text (in the `millrace` crate) has its
/// unit and what happens beyond it. `with_memory` derives limits of bytes whose default is 0. Reason
/// codes: 0x89 server busy, 0x97 quota exceeded, 0x9F connection rate exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeLimits {
    /// A further connection is closed, or refused with 0x89.
    pub connections_max: u32,
    /// One tenant must not take all of `connections_max`; a further CONNECT is refused with 0x97.
    pub connections_per_broker_max: u32,
    /// One address must not use up `connections_max` or the files that the process can open. 0: a quarter of these files, at most
    /// 10,000, which is room for a site of many devices behind one address.
    pub connections_per_address_max: u32,
    pub connects_per_address_per_second_max: u32,
    /// The default lets the devices of a site reconnect together.
    pub connects_per_address_burst: u32,
    /// The default is about the capacity of two cores when persistent sessions reconnect (18,000 of them take 2.3 to 4 s of
    /// CPU time), so that a storm takes the whole machine but not more.
    pub connects_per_second_max: u32,
    /// The default is two seconds' worth: that many clients reconnect without noticing the rate.
    pub connects_burst: u32,
    /// Further CONNECTs are refused with 0x9F, or 0x89 when the server cannot keep up; the same number of refusals may be delayed at
    /// once.
    pub connects_waiting_max: u32,
    /// Refusals are spread over this many milliseconds at random, so that clients that came together do not come back together.
    pub refusal_spread_ms: u16,
    /// A connection that sends no CONNECT must not hold a socket.
    pub connect_timeout_s: u16,
    pub packet_size_max: u32,
    /// The server buffers a CONNECT before it knows the client; the largest will and password fit.
    pub connect_size_max: u32,
    /// A 5.0 client that asks for a longer keep alive, or for none, gets this one in CONNACK.
    pub keep_alive_max_s: u16,
    pub client_id_bytes_max: u16,
    pub receive_maximum: u16,
    /// The server keeps to this limit whatever the client allows, because a 3.x client cannot name a limit; it bounds the
    /// retransmissions after a reconnect.
    pub inflight_max: u16,
    /// Topic Alias Maximum of CONNACK: each alias costs memory for a topic.
    pub topic_alias_max: u16,
    /// Beyond it the connection is closed (0x97), because a server cannot refuse an alias and continue.
    pub topic_alias_bytes_max: u32,
    /// The first 4 KiB of each connection do not count, so that a fleet of ordinary devices never reaches it.
    pub topic_alias_bytes_per_broker_max: u64,
    /// The server sets no more aliases, whatever the client allows.
    pub topic_alias_outbound_max: u16,
    /// A client sends the rest of a packet when it likes. A connection that would exceed the share of its broker is closed,
    /// see `incomplete_packets`.
    pub input_memory_max: u64,
    /// A persistent session has 1000 at most, so that one transaction can delete it.
    pub subscriptions_per_session_max: u32,
    /// Bounds the work of a match.
    pub topic_levels_max: u16,
    /// Beyond [`TOPIC_BYTES_MAX`] the store has no key for a retained message.
    pub topic_bytes_max: u16,
    /// Counts sessions that wait for their clients. Beyond it only clients that have a session may begin a persistent one.
    pub stored_sessions_per_broker_max: u32,
    /// Beyond it a CONNECT is refused with 0x97, unless its will is at most as large as the session's former one.
    pub will_bytes_per_broker_max: u64,
    pub session_expiry_max_s: u32,
    pub session_expiry_v3_s: u32,
    /// Beyond it the oldest messages are dropped and counted. It limits a stream, and the queue of each in-memory session, which grows
    /// while the client is offline or has as many unacknowledged messages as its receive maximum.
    pub queue_messages_max: u32,
    /// Counts topic, properties and payload.
    pub queue_bytes_max: u64,
    /// A message counts once, however many sessions hold it, queued or unacknowledged. Beyond the limit, a session that holds
    /// more than a few small messages gets no further ones.
    pub queue_memory_per_broker_max: u64,
    /// Beyond it in-memory sessions get no messages that they would have to queue.
    pub queue_memory_max: u64,
    /// Beyond it a SUBSCRIBE is refused with 0x97, and a stored session that comes back is closed with it.
    pub filter_memory_per_broker_max: u64,
    pub filter_memory_max: u64,
    pub retained_messages_max: u32,
    /// Beyond it no retained message may be set or grow. Opening a broker reads retained messages up to it, so that too many do not
    /// make the process end again and again; SUBSCRIBEs that need the rest are refused.
    pub retained_memory_max: u64,
    /// From 70 % on load is shed, in the order of `memory::Pressure`.
    pub memory_max: u64,
    /// Beyond it a retained message is refused with 0x97.
    pub retained_bytes_max: u64,
    /// Loops have equal parts, which their busy sockets share. Beyond its share a receiver loses QoS 0.
    pub outbound_memory_max: u64,
    pub outbound_soft_bytes: u32,
    /// The connection is closed with 0x97; acknowledgements and QoS 1 within the receive maximum stay below it.
    pub outbound_hard_bytes: u32,
    /// Beyond it the server stops reading from the client until half of the replies (PINGRESP, PUBACK, PUBREC, SUBACK,
    /// pongs) are written.
    pub answers_bytes_max: u32,
    pub answers_timeout_s: u16,
    /// All clients of a small broker live on one loop, its home, so that their messages cross no loops. A broker with more client
    /// ids spreads over all loops until it is closed; clients that are connected at that time stay on the home loop.
    pub home_clients_max: u32,
    pub mailbox_bytes_max: u32,
    /// Brokers with queued bytes have equal shares. Clients of a broker over its share that publish or change stored subscriptions
    /// are not read until the queue is shorter.
    pub store_bytes_max: u32,
    pub sys_interval_s: u16,
    /// Each of these brokers has about 80 series per pod; the series of all others are added up.
    pub metrics_brokers_max: u16,
    /// 0: only stored messages are counted. A killed process loses the usage since the last flush.
    pub usage_interval_s: u16,
    /// Opening a broker reads its filters and retained messages, so one that is used now and then should stay open.
    pub broker_idle_s: u16,
    pub http_head_bytes_max: u16,
}

impl Default for EdgeLimits {
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
            input_memory_max: 0,
            topic_alias_outbound_max: 16,
            subscriptions_per_session_max: 100_000,
            topic_levels_max: 128,
            topic_bytes_max: TOPIC_BYTES_MAX,
            stored_sessions_per_broker_max: 1_000_000,
            will_bytes_per_broker_max: 256 * 1024 * 1024,
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
            retained_memory_max: 0,
            retained_bytes_max: 1024 * 1024 * 1024,
            outbound_memory_max: 0,
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
            broker_idle_s: 300,
            http_head_bytes_max: 8192,
        }
    }
}

const FILTER_MEMORY_MIN: u64 = 256 * 1024 * 1024;
/// The least default memory of one broker's queues, and of its topic aliases, bytes.
const PER_BROKER_MIN: u64 = 64 * 1024 * 1024;
/// The least default memory of incomplete packets, and of retained messages, bytes.
const INPUT_MEMORY_MIN: u64 = 32 * 1024 * 1024;
const RETAINED_MEMORY_MIN: u64 = 64 * 1024 * 1024;
/// Memtables and block cache of the embedded store, bytes.
const STORE_MEMORY: u64 = 128 * 1024 * 1024;
/// Filters, and messages that sessions hold, may each use this part (1/n) of the process's memory.
const MEMORY_DIVISOR: u64 = 4;
/// The topic aliases of one broker may use this part (1/n) of the memory of all filters.
const ALIASES_DIVISOR: u64 = 4;

impl EdgeLimits {
    /// Fills in the defaults that derive from `memory`; 0 is unknown.
    pub(crate) fn with_memory(mut self, memory: u64) -> Self {
        let or = |set: u64, default: u64| if set == 0 { default } else { set };
        let share = if memory == 0 { u64::MAX } else { memory / MEMORY_DIVISOR };
        self.queue_memory_max = or(self.queue_memory_max, share);
        self.queue_memory_per_broker_max =
            or(self.queue_memory_per_broker_max, (self.queue_memory_max / 2).max(PER_BROKER_MIN));
        self.topic_alias_bytes_per_broker_max =
            or(self.topic_alias_bytes_per_broker_max, (share / ALIASES_DIVISOR).max(PER_BROKER_MIN));
        self.outbound_memory_max = or(self.outbound_memory_max, share);
        self.input_memory_max = or(self.input_memory_max, (share / 2).max(INPUT_MEMORY_MIN));
        let half = memory.saturating_sub(STORE_MEMORY) / 2;
        let half = if memory == 0 { u64::MAX } else { half.max(RETAINED_MEMORY_MIN) };
        self.retained_memory_max = or(self.retained_memory_max, half);
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
        let of = |limits: EdgeLimits, memory| {
            let limits = limits.with_memory(memory);
            (limits.queue_memory_max, limits.filter_memory_max, limits.filter_memory_per_broker_max)
        };
        assert_eq!(of(EdgeLimits::default(), 4 * GIB), (GIB, GIB, GIB / 2));
        assert_eq!(of(EdgeLimits::default(), GIB / 2), (GIB / 8, GIB / 4, GIB / 8));
        assert_eq!(of(EdgeLimits::default(), 0), (u64::MAX, u64::MAX, u64::MAX / 2));
        let set = EdgeLimits { queue_memory_max: 1, filter_memory_max: 10, ..EdgeLimits::default() };
        assert_eq!(of(set, 4 * GIB), (1, 10, 5));
    }

    #[test]
    fn limits_of_one_broker_follow_from_the_memory_and_admit_ordinary_fleets() {
        const GIB: u64 = 1 << 30;
        const MIB: u64 = 1 << 20;
        let of = |limits: EdgeLimits, memory| {
            let limits = limits.with_memory(memory);
            (limits.queue_memory_per_broker_max, limits.topic_alias_bytes_per_broker_max)
        };
        assert_eq!(of(EdgeLimits::default(), 4 * GIB), (512 * MIB, 256 * MIB));
        assert_eq!(of(EdgeLimits::default(), GIB / 4), (64 * MIB, 64 * MIB));
        assert_eq!(of(EdgeLimits::default(), 0), (u64::MAX / 2, u64::MAX / 4));
        let set = EdgeLimits {
            queue_memory_per_broker_max: 1,
            topic_alias_bytes_per_broker_max: 2,
            ..EdgeLimits::default()
        };
        assert_eq!(of(set, 4 * GIB), (1, 2));
        // 10,000 subscribers with 100 unacknowledged messages each.
        let held = 10_000 * 100 * millrace_session::Budget::HOLDER_BYTES;
        assert!(of(EdgeLimits::default(), GIB).0 > held, "{held}");
    }
}
