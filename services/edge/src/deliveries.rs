//! Messages on their way to receivers: a run of QoS 0 publishes, and a committed message for persistent sessions. Event loops,
//! the writer and the network between pods create them.

use std::sync::Arc;

use millrace_mqtt::{Packet, Version, decode, frame};
use millrace_session::Message;

use crate::connection_id::ConnectionId;
use crate::metering::Amount;
use crate::routes::Routes;

/// Consecutive QoS 0 messages of one publisher to one topic.
pub(crate) struct Run {
    pub(crate) routes: Arc<Routes>,
    /// Whole PUBLISH packets without RETAIN, encoded for receivers of this version (5.0 or not).
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) is_v5: bool,
    pub(crate) amount: Amount,
    /// `None`: the publisher is on another pod.
    pub(crate) from: Option<ConnectionId>,
    /// As [`crate::encoding::record::publisher`] has it; 0: the publisher is on another pod.
    pub(crate) publisher: u64,
    /// [`Message::received_at`].
    pub(crate) received_us: u32,
}

/// A message that the store has committed, for the persistent sessions of an event loop.
pub(crate) struct CommittedMessage {
    pub(crate) routes: Arc<Routes>,
    pub(crate) message: Arc<Message>,
    /// As [`crate::encoding::record::publisher`] has it.
    pub(crate) publisher: u64,
    /// The publisher's connection, among those of all pods; 0: none.
    pub(crate) sender: u64,
}

pub(crate) fn amount_of_run(topic: &str, bytes: &[u8], is_v5: bool) -> Amount {
    let mut amount = Amount::default();
    each_publish(bytes, is_v5, |payload| amount.add(topic.len() + payload.len()));
    amount
}

pub(crate) fn each_publish(bytes: &[u8], is_v5: bool, mut f: impl FnMut(&[u8])) {
    let version = if is_v5 { Version::V5 } else { Version::V311 };
    let mut rest = bytes;
    while let Ok(Ok(framed)) = frame(rest, u32::MAX) {
        if let Ok(Packet::Publish(publish)) = decode(framed.first, framed.body, Some(version)) {
            f(publish.payload);
        }
        rest = &rest[framed.size..];
    }
}
