//! The job that gives a session to a connection, and its answer.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use millrace_layers::subscriptions::StoredSubscription;
use millrace_layers::{Position, Positions};
use millrace_mqtt::PacketId;
use millrace_session::{InFlight, Message};

use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::encoding::inflight::InFlightRow;

pub(crate) struct AttachWrite {
    pub(crate) broker: Arc<Broker>,
    pub(crate) client: Arc<str>,
    pub(crate) connection: ConnectionId,
    pub(crate) clean: bool,
    /// Session expiry interval in seconds; 0: the session ends with the connection.
    pub(crate) expiry_s: u32,
    /// The will, and its delay in seconds.
    pub(crate) will: Option<(Arc<Message>, u32)>,
    /// Whether the client proved the password of a credential, which with its group and broker has all rules of the client.
    pub(crate) by_password: bool,
    pub(crate) user: Option<Box<str>>,
    /// Whether the client has a connect token: it may use neither another user's session nor one without a user.
    pub(crate) is_visitor: bool,
    /// The owner that was asked to release the session.
    pub(crate) asked: Option<AskedOwner>,
    /// When the writer tries again, in milliseconds of the process.
    pub(crate) ask_at: u64,
    /// The CONNECT holds the other end. Once its client is gone, it takes nothing from another pod by force, and asks no other owner.
    pub(crate) asker: Weak<()>,
}

pub(crate) struct AskedOwner {
    pub(crate) owner: Bytes,
    pub(crate) epoch: u64,
    pub(crate) at_ms: u64,
}

impl AttachWrite {
    /// When the present owner was asked; another owner, or another connection of the same one, has not been.
    pub(crate) fn asked_at(&self, owner: &[u8], epoch: u64) -> Option<u64> {
        let asked = self.asked.as_ref().filter(|asked| *asked.owner == *owner && asked.epoch == epoch);
        asked.map(|asked| asked.at_ms)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.asker.strong_count() == 0
    }
}

#[derive(Default)]
pub(crate) struct AttachedSession {
    pub(crate) client: Arc<str>,
    /// 0: the session is not stored.
    pub(crate) epoch: u64,
    pub(crate) expiry_s: u32,
    pub(crate) present: bool,
    pub(crate) subscriptions: Vec<StoredSubscription>,
    /// The stored form of `in_flight`, until the first page is read with its messages.
    pub(crate) rows: Vec<(PacketId, InFlightRow)>,
    pub(crate) in_flight: Vec<(PacketId, InFlight)>,
    /// QoS 2 packet ids that the client has in use.
    pub(crate) received: Vec<PacketId>,
    /// Everything up to here is acknowledged, and `acknowledged` after it.
    pub(crate) cursor: Position,
    pub(crate) acknowledged: Positions,
    /// A crashed owner may have sent messages up to here.
    pub(crate) maybe_sent: Position,
}
