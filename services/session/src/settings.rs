//! Limits of the state machine, which the edge fills from its configuration.

/// Unacknowledged QoS 1 and 2 messages to the client of a stored session, whatever [`SessionSettings::inflight_max`] allows:
/// the store remembers in one value which messages after the oldest of them are acknowledged.
pub(crate) const STORED_INFLIGHT_MAX: usize = 4_096;
/// Unacknowledged bytes to one client of a stored session, or of retained messages, that no [`crate::Budget`] counts, and as many
/// waiting ones: enough for the window of an ordinary client, so its messages cost no atomic operation.
pub const UNCOUNTED_BYTES_MAX: u64 = 64 * 1024;
/// QoS 2 packet ids that a client has not released, unless Receive Maximum is larger. 5.0 clients reach it by reconnecting only, and
/// 3.x clients cannot learn Receive Maximum.
pub(crate) const RECEIVED_MAX: u16 = 4_096;
/// The longest topic that gets an alias towards a client, bytes, because aliases keep their topics as long as the connection.
pub(crate) const ALIASED_TOPIC_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Unacknowledged QoS 1 and 2 messages from one 5.0 client.
    pub receive_maximum: u16,
    /// Unacknowledged QoS 1 and 2 messages to one client, whatever it allows.
    pub inflight_max: u16,
    pub packet_size_max: u32,
    pub topic_alias_max: u16,
    /// Topic aliases towards one client, whatever it allows.
    pub topic_alias_outbound_max: u16,
    /// 0 for none.
    pub keep_alive_max_s: u16,
    pub session_expiry_max_s: u32,
    pub session_expiry_v3_s: u32,
    pub client_id_bytes_max: u16,
    pub queue_messages_max: u32,
    pub queue_bytes_max: u64,
    pub authentication_method: Option<&'static str>,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            receive_maximum: 1024,
            inflight_max: 1024,
            packet_size_max: 1024 * 1024,
            topic_alias_max: 64,
            topic_alias_outbound_max: 16,
            keep_alive_max_s: 0,
            session_expiry_max_s: 90 * 24 * 3600,
            session_expiry_v3_s: 7 * 24 * 3600,
            client_id_bytes_max: 1024,
            queue_messages_max: 100_000,
            queue_bytes_max: 64 * 1024 * 1024,
            authentication_method: None,
        }
    }
}
