//! Every limit of a pod's connection to the other pods, with unit, default and reason.

/// Frames that leave in a row before the sending task looks whether it must stop or change the
/// server. No setting, because it costs nothing.
pub(crate) const ROUND_FRAMES_MAX: u32 = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricLimits {
    /// Shortest interval of sending rounds, microseconds. Messages of that time share a batch; the
    /// first message after a pause leaves at once. 200 µs allow 5,000 rounds a second, and are less
    /// than a network's own delay.
    pub linger_us: u32,
    /// Bytes of a batch; a longer message is a batch of its own. Longer batches would save nothing
    /// and delay other messages.
    pub batch_bytes_max: u32,
    /// Bytes of one NATS message, fewer if the server accepts fewer. Longer batches are sent in
    /// parts.
    pub part_bytes_max: u32,
    /// Bytes of a message, half the queue; a longer one is dropped.
    pub message_bytes_max: u32,
    /// Bytes queued for sending. Further messages are dropped, because a live copy that comes so
    /// late is of little use.
    pub queue_bytes_max: u32,
    /// Bytes queued for one receiver, so that no broker takes the whole queue.
    pub queue_bytes_per_receiver_max: u32,
    /// Bytes queued while NATS is disconnected: enough for a server that moves its clients.
    pub outage_bytes_max: u32,
    /// Receivers with numbered messages at one time, about 150 bytes each; messages to more
    /// receivers are dropped. A receiver is forgotten after a minute without messages.
    pub streams_max: u32,
    /// Joined brokers and groups (about 6 KiB each here, 2 KiB on the server), and pods' own parts
    /// of a broker (about 150 bytes here).
    pub joins_max: u32,
    /// Other pods; any more are ignored.
    pub pods_max: u32,
    /// Bytes of batches that have not arrived with all parts.
    pub parts_bytes_max: u32,
    /// Milliseconds without a message after which a heartbeat says how many there were; repeated
    /// after 4 and 16 times as long. After 64 times as long the receiver is forgotten.
    pub heartbeat_ms: u32,
    /// Interval of Hellos, by which a pod shows that it is alive, milliseconds.
    pub hello_ms: u32,
    /// Milliseconds without a Hello after which a pod counts as gone.
    pub pod_gone_ms: u32,
    /// Milliseconds after which a join is reported, confirmed or not.
    pub join_wait_ms: u32,
    /// Milliseconds after connecting in which the other pods announce themselves. No join is
    /// confirmed before.
    pub settle_ms: u32,
    /// Longest outage of this pod after which numbers still show every loss, milliseconds. After a
    /// longer outage every join is in doubt. Must be less than 32 heartbeats.
    pub outage_ms_max: u32,
    pub connect_timeout_ms: u32,
    /// Longest wait before a failed server is tried again, milliseconds. It starts at 100 ms and
    /// doubles.
    pub reconnect_ms_max: u32,
    /// Interval of pings to the server, milliseconds. The third ping without an answer ends the
    /// connection.
    pub ping_ms: u32,
    /// Longest time to send the queued messages when the pod stops, milliseconds.
    pub stop_ms: u32,
}

impl Default for FabricLimits {
    fn default() -> Self {
        Self {
            linger_us: 200,
            batch_bytes_max: 64 << 10,
            part_bytes_max: 256 << 10,
            message_bytes_max: 16 << 20,
            queue_bytes_max: 32 << 20,
            queue_bytes_per_receiver_max: 8 << 20,
            outage_bytes_max: 1 << 20,
            streams_max: 200_000,
            joins_max: 400_000,
            pods_max: 10_000,
            parts_bytes_max: 64 << 20,
            heartbeat_ms: 1000,
            hello_ms: 2000,
            pod_gone_ms: 7000,
            join_wait_ms: 1000,
            settle_ms: 300,
            outage_ms_max: 30_000,
            connect_timeout_ms: 5000,
            reconnect_ms_max: 5000,
            ping_ms: 2000,
            stop_ms: 1000,
        }
    }
}
