//! Jobs that write and remove the subscriptions of a session. A long list of filters is written in several transactions.

use std::sync::Weak;

use millrace_layers::subscriptions::{StoredOptions, Subscribed};
use millrace_mqtt::{PacketId, QoS, ReasonCode};
use millrace_router::Target;
use millrace_session::ClientSubscription;
use smallvec::SmallVec;

use super::SessionKey;
use super::replay::Replay;

pub(crate) struct SubscribeWrite {
    pub(crate) session: SessionKey,
    pub(crate) target: Target,
    /// Granted filters, with their index among the reason codes.
    pub(crate) filters: Vec<(Box<str>, StoredOptions, usize)>,
    /// Shared subscriptions that are not persistent: the store has to say whether other members of the group are.
    pub(crate) shared: Vec<Box<str>>,
    pub(crate) pending: PendingSubscribe,
    /// Results of the filters that the transactions so far have written; `None`: the store can never hold this one.
    pub(crate) written: Vec<Option<Subscribed>>,
    /// End of the filters that the next transaction writes.
    pub(crate) until: usize,
}

impl SubscribeWrite {
    pub(crate) fn new(
        session: SessionKey,
        target: Target,
        filters: Vec<(Box<str>, StoredOptions, usize)>,
        shared: Vec<Box<str>>,
        pending: PendingSubscribe,
    ) -> Self {
        let until = filters.len();
        Self { session, target, filters, shared, pending, written: Vec::new(), until }
    }

    pub(crate) fn ends(&self) -> bool {
        self.until >= self.filters.len()
    }

    pub(crate) fn left(&self) -> usize {
        self.filters.len() - self.written.len()
    }

    pub(crate) fn part(&self) -> &[(Box<str>, StoredOptions, usize)] {
        &self.filters[self.written.len()..self.until]
    }

    /// False for a session in memory that only needs its retained messages from the store.
    pub(crate) fn is_stored(&self) -> bool {
        !(self.filters.is_empty() && self.shared.is_empty())
    }
}

pub(crate) struct PendingSubscribe {
    /// `None`: no client waits for an answer.
    pub(crate) packet_id: Option<PacketId>,
    /// Its number among the SUBSCRIBE packets of its session that wait for the store; 0: it does not wait for the store.
    pub(crate) number: u64,
    /// One for each distinct filter, as in `requested_qos`.
    pub(crate) reasons: SmallVec<[ReasonCode; 4]>,
    pub(crate) requested_qos: SmallVec<[QoS; 4]>,
    /// For each filter of the packet: its index in `reasons`, and the requested QoS.
    pub(crate) places: SmallVec<[(u32, QoS); 2]>,
    /// Why filters were refused: the reason string of the SUBACK.
    pub(crate) what: &'static str,
    pub(crate) replays: SmallVec<[Replay; 2]>,
    /// Whether the retained messages have their position in the session's queue already.
    pub(crate) holds: bool,
    /// Whether retained messages, or members of shared subscriptions, are read from the store.
    pub(crate) asks_store: bool,
    /// The session holds the other end: once the session has ended, no retained messages are read for it.
    pub(crate) asker: Weak<()>,
    /// Granted filters of a session that is not persistent, if the store has to answer for them.
    pub(crate) in_memory: Vec<(Box<str>, ClientSubscription)>,
    pub(crate) is_refused: bool,
    /// The server restores subscriptions that a refused SUBSCRIBE may have replaced; no client waits for an answer.
    pub(crate) goes_back: bool,
    /// The same, tried again after a refusal that the session knows.
    pub(crate) is_retry: bool,
    /// The SUBACK waits until other pods have confirmed this announcement of filters; 0: it waits for none.
    pub(crate) announced: u64,
}

impl PendingSubscribe {
    pub(crate) fn new(packet_id: Option<PacketId>) -> Self {
        Self {
            packet_id,
            number: 0,
            reasons: SmallVec::new(),
            what: "",
            requested_qos: SmallVec::new(),
            places: SmallVec::new(),
            replays: SmallVec::new(),
            holds: false,
            asks_store: false,
            asker: Weak::new(),
            in_memory: Vec::new(),
            is_refused: false,
            goes_back: false,
            is_retry: false,
            announced: 0,
        }
    }
}

pub(crate) struct UnsubscribeWrite {
    pub(crate) session: SessionKey,
    pub(crate) target: Target,
    pub(crate) filters: Vec<Box<str>>,
    /// `None`: the server ends the subscriptions.
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) reasons: SmallVec<[ReasonCode; 4]>,
    pub(crate) written: usize,
    pub(crate) until: usize,
}

impl UnsubscribeWrite {
    pub(crate) fn new(
        session: SessionKey,
        target: Target,
        filters: Vec<Box<str>>,
        packet_id: Option<PacketId>,
        reasons: SmallVec<[ReasonCode; 4]>,
    ) -> Self {
        let until = filters.len();
        Self { session, target, filters, packet_id, reasons, written: 0, until }
    }

    pub(crate) fn left(&self) -> usize {
        self.filters.len() - self.written
    }

    pub(crate) fn part(&self) -> &[Box<str>] {
        &self.filters[self.written..self.until]
    }
}
