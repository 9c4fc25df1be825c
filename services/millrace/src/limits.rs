//! The limits of the edge as flags. Names, types and defaults come from `millrace_edge::Limits`; a
//! limit that is missing here does not compile.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use millrace_edge::{EdgeLimits, TOPIC_BYTES_MAX};
use tracing::info;

/// The error names the range.
pub(crate) fn whole_number<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync,
{
    move |text| match text.parse::<T>() {
        Ok(number) if number >= least && number <= most => Ok(number),
        _ => Err(format!("a whole number from {least} to {most} is allowed")),
    }
}

macro_rules! limits {
    ($($name:ident: $type:ident in $least:literal..=$most:expr, $unit:literal, $help:literal;)+) => {
        #[derive(Clone, Debug, clap::Args)]
        #[command(next_help_heading = "Limits")]
        pub(crate) struct LimitArgs {
            $(
                #[doc = $help]
                #[arg(long, value_name = $unit, default_value_t = EdgeLimits::default().$name)]
                #[arg(value_parser = whole_number::<$type>($least, $most))]
                $name: $type,
            )+
        }

        impl From<LimitArgs> for EdgeLimits {
            fn from(args: LimitArgs) -> Self {
                Self { $($name: args.$name),+ }
            }
        }
    };
}

/// Shortest secret of secret_key_file, characters: 32 random ones in base64 have 192 bits.
pub(crate) const SECRET_KEY_CHARS_MIN: usize = 32;
/// Time for secret_key_command: programs of clouds may take some seconds, and a service manager waits two minutes for a start.
pub(crate) const SECRET_COMMAND_TIME: Duration = Duration::from_secs(30);
/// Bytes that are read of each of its outputs.
pub(crate) const SECRET_COMMAND_BYTES_MAX: u64 = 64 * 1024;
/// E-mails that wait for the mail server; the server drops and logs an e-mail beyond it.
pub(crate) const QUEUED_MAILS_MAX: usize = 1_000;
/// How long the mail server may take for one step.
pub(crate) const SMTP_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest packet of the protocol: one byte, four bytes of remaining length, and the most that
/// these can express.
const PACKET_BYTES_MAX: u32 = 5 + 268_435_455;

limits! {
    connections_max: u32 in 1..=u32::MAX, "COUNT",
        "Connections at once; beyond it new ones are refused.";
    connections_per_broker_max: u32 in 1..=u32::MAX, "COUNT",
        "Connections of one broker at once; beyond it a CONNECT is refused.";
    connections_per_address_max: u32 in 0..=u32::MAX, "COUNT",
        "Connections of one address at once (IPv6: of one /64, and eight times as many of one /48); beyond it new ones are closed. 0 is a quarter of the files that the process may open, at most 10,000.";
    connects_per_address_per_second_max: u32 in 0..=u32::MAX, "COUNT",
        "Connections a second of one address (IPv6: as above); beyond it new ones are closed; 0 is no limit.";
    connects_per_address_burst: u32 in 1..=u32::MAX, "COUNT",
        "Connections of one address that the server accepts at once after a quiet time.";
    connects_per_second_max: u32 in 0..=u32::MAX, "COUNT",
        "CONNECT packets a second that the server reads, of all brokers; 0 is no limit.";
    connects_burst: u32 in 1..=u32::MAX, "COUNT",
        "CONNECT packets that the server reads at once after a quiet time.";
    connects_waiting_max: u32 in 0..=u32::MAX, "COUNT",
        "CONNECT packets over the rate that wait in a queue, half of them of one broker; beyond it the server refuses them.";
    refusal_spread_ms: u16 in 0..=u16::MAX, "MILLISECONDS",
        "Time over which refusals of CONNECT packets over the rate are spread at random.";
    connect_timeout_s: u16 in 1..=u16::MAX, "SECONDS",
        "Time from connecting to a whole CONNECT packet.";
    packet_size_max: u32 in 64..=PACKET_BYTES_MAX, "BYTES",
        "Largest packet a client may send; with a store at most 8000000, because that is its longest message.";
    connect_size_max: u32 in 64..=PACKET_BYTES_MAX, "BYTES",
        "Largest CONNECT packet.";
    keep_alive_max_s: u16 in 0..=u16::MAX, "SECONDS",
        "Largest keep alive. The server announces it to 5.0 clients that ask for more or for none; 0 is no limit.";
    client_id_bytes_max: u16 in 23..=u16::MAX, "BYTES",
        "Longest client identifier.";
    receive_maximum: u16 in 1..=u16::MAX, "MESSAGES",
        "QoS 1 and 2 messages a client may have unacknowledged towards the server.";
    inflight_max: u16 in 1..=u16::MAX, "MESSAGES",
        "QoS 1 and 2 messages the server has unacknowledged towards one client; with a stored session at most 4096.";
    topic_alias_max: u16 in 0..=u16::MAX, "COUNT",
        "Topic aliases a client may set.";
    topic_alias_bytes_max: u32 in 0..=u32::MAX, "BYTES",
        "Bytes of the topics for which one client has set aliases; beyond it the server closes the connection.";
    topic_alias_bytes_per_broker_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Bytes of the topics for which all clients of one broker have set aliases, beyond the first 4 KiB of each connection; 0 is a sixteenth of memory_max, and 64 MiB at least. Beyond it the server closes the connection that sets one more.";
    input_memory_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Memory of the incomplete packets of all clients, beyond the first 4 KiB of each connection; 0 is an eighth of memory_max, and 32 MiB at least. A quarter of it is for connections that have not sent their CONNECT; brokers share the rest, and one alone gets half. The server closes connections that would hold more, and those whose packet grows by less than 64 KiB a minute.";
    topic_alias_outbound_max: u16 in 0..=u16::MAX, "COUNT",
        "Topic aliases the server sets towards one client.";
    subscriptions_per_session_max: u32 in 1..=u32::MAX, "COUNT",
        "Subscriptions of one session; a persistent session has 1000 at most.";
    topic_levels_max: u16 in 1..=u16::MAX, "LEVELS",
        "Levels of the longest topic or topic filter.";
    topic_bytes_max: u16 in 1..=TOPIC_BYTES_MAX, "BYTES",
        "Longest topic or topic filter; a filter of a persistent session has 1024 at most.";
    stored_sessions_per_broker_max: u32 in 1..=u32::MAX, "COUNT",
        "Sessions of one broker that wait for their clients. Beyond it the server refuses a CONNECT that would begin another persistent session; clients return to their sessions.";
    will_bytes_per_broker_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Stored bytes of the wills of one broker's clients. Beyond it the server refuses a CONNECT whose will is larger than the former will of its session.";
    session_expiry_max_s: u32 in 0..=u32::MAX, "SECONDS",
        "Longest session expiry. The server announces it to 5.0 clients that ask for more.";
    session_expiry_v3_s: u32 in 0..=u32::MAX, "SECONDS",
        "Session expiry of 3.x clients that connect without clean session.";
    queue_messages_max: u32 in 0..=u32::MAX, "MESSAGES",
        "Messages that wait for the persistent sessions of one topic filter, or for one session in memory. Beyond it the oldest are dropped and counted; a session in memory drops the newest.";
    queue_bytes_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Bytes of messages that wait for the persistent sessions of one topic filter, or for one session in memory. Beyond it the oldest are dropped and counted; a session in memory drops the newest.";
    queue_memory_per_broker_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Memory of the messages that the sessions of one broker hold, a message of several sessions counted once: all messages of sessions in memory, and stored and retained messages that a client has not acknowledged, and stored ones that wait in memory for a connected client, each without the first 64 KiB of a client. 0 is half of queue_memory_max, and 64 MiB at least. Beyond it the server drops further messages for sessions in memory that hold more than a few small ones, and sends stored and retained messages as the client acknowledges earlier ones.";
    queue_memory_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "The same memory of all brokers; 0 is a quarter of memory_max. Beyond it the server drops further messages for sessions in memory, and sends stored and retained messages as the client acknowledges earlier ones.";
    filter_memory_per_broker_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Memory of the filters of one broker's sessions; 0 is half of filter_memory_max. Beyond it the server refuses a SUBSCRIBE, and a stored session that comes back.";
    filter_memory_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Memory of the filters of all brokers' sessions; 0 is a quarter of memory_max, and 256 MiB at least. Beyond it the server refuses a SUBSCRIBE, and a stored session that comes back.";
    retained_messages_max: u32 in 0..=u32::MAX, "MESSAGES",
        "Retained messages of one broker. Beyond it the server refuses another one.";
    retained_bytes_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Memory of the retained messages of one broker, about 100 bytes for each level of a topic included. Beyond it the server refuses a retained message.";
    retained_memory_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Memory of the retained messages of all brokers; 0 is half of what memory_max leaves beside the 128 MiB of the store, and 64 MiB at least. One broker may use three quarters of it. Beyond that the server refuses retained messages that are new or larger. It starts with as many as fit, and refuses subscriptions of a broker whose retained messages do not all fit.";
    memory_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Memory that the process may use; 0 is the memory of its cgroup or of the machine. From 70 % on the server drops more QoS 0 messages to busy sockets and refuses retained messages that are new or larger, from 80 % on it refuses new connections and closes clients that have read nothing for 10 s while more than 64 KiB wait for them, from 90 % on it reads publishers slowly.";
    outbound_memory_max: u64 in 0..=i64::MAX as u64, "BYTES",
        "Bytes that busy sockets may hold before the server drops QoS 0 messages to them; 0 is a quarter of memory_max. Each event loop has an equal part of it, and its busy sockets have equal shares of that, 32 KiB at least. Messages with QoS 1 and 2 and answers do not count.";
    outbound_soft_bytes: u32 in 0..=u32::MAX, "BYTES",
        "Bytes waiting for a busy socket above which the server stops reading from the publishers of QoS 0 messages to it. A receiver that takes fewer bytes than this in a second loses such messages, which are counted.";
    outbound_hard_bytes: u32 in 65_536..=u32::MAX, "BYTES",
        "Bytes waiting for a busy socket above which its connection is closed.";
    answers_bytes_max: u32 in 1024..=u32::MAX, "BYTES",
        "Bytes of answers, such as PUBACK and PINGRESP, that wait for a client that does not read them; beyond it the server reads nothing more from the client.";
    answers_timeout_s: u16 in 1..=u16::MAX, "SECONDS",
        "Time after which the server closes a client whose unread answers exceed answers_bytes_max.";
    home_clients_max: u32 in 0..=u32::MAX, "COUNT",
        "Client ids of one broker that one event loop serves; a broker with more spreads over all loops, which costs CPU time per message. 0 spreads every broker at once.";
    mailbox_bytes_max: u32 in 65_536..=u32::MAX, "BYTES",
        "Bytes between two event loops above which the server pauses reading from publishers.";
    store_bytes_max: u32 in 65_536..=u32::MAX, "BYTES",
        "Bytes that may wait to be stored. Brokers with queued bytes have equal shares; the server pauses reading from publishers and persistent subscribers of a broker over its share.";
    usage_interval_s: u16 in 0..=5, "SECONDS",
        "Time between two writes of the brokers' usage to the store. A killed server loses at most the last interval; 0 writes none.";
    broker_idle_s: u16 in 0..=u16::MAX, "SECONDS",
        "Time without a client after which the server closes a broker, whose memory is then free. Its next client opens it again from the store. 0 closes none; the brokers of --broker stay open.";
    sys_interval_s: u16 in 0..=u16::MAX, "SECONDS",
        "Time between updates of the $SYS topics; 0 is never.";
    metrics_brokers_max: u16 in 1..=u16::MAX, "COUNT",
        "Brokers that /metrics names, the loudest. All others are summed as the broker _other";
    http_head_bytes_max: u16 in 512..=u16::MAX, "BYTES",
        "Largest HTTP request head of a WebSocket handshake.";
}

/// Threads of the API; requests of one tenant take at most half of them.
pub(crate) const API_THREADS: usize = 4;
/// Threads of requests that read much. The control plane lets two of them run at once.
pub(crate) const LOW_PRIORITY_THREADS: usize = 2;
/// Added to the nice value of these threads.
pub(crate) const LOW_PRIORITY_NICE: i32 = 5;
/// An endless answer ends when its client does not read for this time.
pub(crate) const STREAM_STALL_MAX: Duration = Duration::from_secs(30);
/// Time for the head of a request, also of the next request on an open connection.
pub(crate) const HTTP_HEAD_TIME: Duration = Duration::from_secs(30);
/// Bytes that each connection reads ahead; with the number of connections they bound the memory.
pub(crate) const HTTP_BUFFER_BYTES: usize = 32 * 1024;
/// Pause after accepting failed for lack of descriptors.
pub(crate) const HTTP_ACCEPT_PAUSE: Duration = Duration::from_millis(100);
pub(crate) const ADMIN_CONNECTIONS_MAX: usize = 128;
/// The default admin port is the HTTP port plus this.
pub(crate) const ADMIN_PORT_ABOVE: u16 = 10;

/// Bytes of an answer of an API. A page of 200 rows, each with the largest webhook or certificate,
/// is smaller.
pub(crate) const API_ANSWER_BYTES_MAX: usize = 64 << 20;
/// The API itself ends a request after 30 seconds.
pub(crate) const API_ANSWER_S_MAX: u64 = 40;
/// Longest line with a secret on standard input, bytes: a password of 65,535 bytes and the end of
/// the line.
pub(crate) const SECRET_BYTES_MAX: u64 = 65_537;

/// The HTTP port may use this part (1/n) of the files that MQTT connections leave free; the store needs the rest.
const HTTP_FILES_DIVISOR: u64 = 4;

/// One address may use this part (1/n) of a lowered limit, as in the defaults of the settings.
const ADDRESS_DIVISOR: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) all: usize,
    /// Connections of one address, or of one IPv6 network of 64 bits.
    pub(crate) per_address: usize,
    /// Only `all` limits these addresses, because many people come from them.
    pub(crate) proxies: Vec<IpNet>,
    /// Time for the head of a request, from the opening of the connection or from the last answer.
    pub(crate) head: Duration,
}

impl ConnectionLimits {
    /// Lowers the limits if MQTT connections leave few `files` free.
    pub(crate) fn within(self, port: &str, files: u64) -> Self {
        let share = usize::try_from(files / HTTP_FILES_DIVISOR).unwrap_or(usize::MAX).max(1);
        if self.all <= share {
            return self;
        }
        // A limit per address that is not below `all` has no effect, and keeps none.
        let is_limited = self.per_address < self.all;
        let address_share = if is_limited { (share / ADDRESS_DIVISOR).max(1) } else { share };
        let per_address = self.per_address.min(address_share);
        info!(
            port,
            connections_max = share,
            connections_per_address = per_address,
            instead_of = self.all,
            instead_of_per_address = self.per_address,
            "fewer HTTP connections than set are allowed, because the store and MQTT need most of the files that the process may open: raise the limit of open files (ulimit -n, LimitNOFILE)"
        );
        Self { all: share, per_address, ..self }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        limits: LimitArgs,
    }

    #[test]
    fn http_connections_leave_files_to_the_store_and_to_other_addresses() {
        let within = |per_address, files| {
            let proxies = Vec::new();
            let limits = ConnectionLimits { all: 2048, per_address, proxies, head: HTTP_HEAD_TIME };
            let within = limits.within("http", files);
            (within.all, within.per_address)
        };
        let default = [0, 32, 256, 8_192, u64::MAX].map(|files| within(256, files));
        assert_eq!(default, [(1, 1), (8, 1), (64, 8), (2_048, 256), (2_048, 256)]);
        assert_eq!([within(4, 256), within(4, 32)], [(64, 4), (8, 1)]);
        assert_eq!([within(2_048, 256), within(4_096, 256)], [(64, 64), (64, 64)], "no limit of one address");
    }

    #[test]
    fn the_flags_default_to_the_edges_defaults() {
        let matches = Only::command().get_matches_from(["millrace"]);
        let only = Only::from_arg_matches(&matches).unwrap();
        assert_eq!(EdgeLimits::from(only.limits), EdgeLimits::default());
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_the_range() {
        let parse = whole_number::<u16>(1, 10);
        assert_eq!(parse("7"), Ok(7));
        for wrong in ["0", "11", "-1", "ten", "", "70000", "1.5"] {
            assert_eq!(parse(wrong), Err("a whole number from 1 to 10 is allowed".to_owned()), "{wrong}");
        }
    }
}
