//! A session: the state that survives a network connection (MQTT 5.0 section 4.1). `delivery.rs` queues and sends the session's
//! messages; this file has the subscriptions, the will, and what the caller stores, restores or gives to other sessions.

mod remains;
mod subscriptions;

use std::sync::Arc;

use millrace_mqtt::{PacketId, QoS, SubscribeOptions};

pub use self::remains::{NextFilter, Remains};
use self::subscriptions::Subscriptions;
use crate::inbound::{Inbound, Receipt};
use crate::outbox::{InFlight, Outbox, OutboxEntry};
use crate::{Budget, Delivered, Delivery, Message, Seconds, StoredPosition};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSubscription {
    pub options: SubscribeOptions,
    /// Subscription Identifier; 0 without one.
    pub identifier: u32,
}

#[derive(Clone, Debug)]
pub enum SessionWill {
    InMemory {
        message: Arc<Message>,
        /// Seconds from the end of the connection to the publication.
        delay_s: u32,
    },
    Stored {
        topic: Arc<str>,
        retain: bool,
        qos: QoS,
    },
}

#[derive(Debug)]
pub struct Session {
    client_id: Arc<str>,
    /// Seconds that the session survives its connection; [`Session::NO_EXPIRY`] means for ever.
    pub expiry_s: u32,
    pub will: Option<Box<SessionWill>>,
    subscriptions: Option<Box<Subscriptions>>,
    /// The store has the session, so a packet id must be stored before a QoS 2 message is sent with it, see
    /// [`Session::take_reserved`]. The queue's limits hold only for QoS 0, because the caller reads other messages from the store
    /// only as fast as the client takes them.
    pub is_stored: bool,
    pub(crate) inbound: Inbound,
    pub(crate) outbox: Option<Box<Outbox>>,
}

impl Session {
    pub const NO_EXPIRY: u32 = u32::MAX;

    pub fn new(client_id: Arc<str>) -> Self {
        Self {
            client_id,
            expiry_s: 0,
            will: None,
            subscriptions: None,
            is_stored: false,
            inbound: Inbound::default(),
            outbox: None,
        }
    }

    pub fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// Adds or replaces the subscription of a filter with its `$share/name/`; true when the filter is new to the session.
    pub fn subscribe(&mut self, filter: &str, subscription: ClientSubscription) -> bool {
        self.subscriptions.get_or_insert_default().insert(filter, subscription)
    }

    pub fn unsubscribe(&mut self, filter: &str) -> bool {
        let Some(all) = &mut self.subscriptions else { return false };
        let was_there = all.remove(filter);
        if all.len() == 0 {
            self.subscriptions = None;
        }
        was_there
    }

    pub fn subscription(&self, filter: &str) -> Option<&ClientSubscription> {
        self.subscriptions.as_ref()?.get(filter)
    }

    pub fn subscriptions(&self) -> impl Iterator<Item = (&str, &ClientSubscription)> {
        self.subscriptions.iter().flat_map(|all| all.iter())
    }

    pub fn subscriptions_len(&self) -> usize {
        self.subscriptions.as_ref().map_or(0, |all| all.len())
    }

    /// Number of queued messages, which have no packet id yet.
    pub fn waiting(&self) -> usize {
        self.outbox.as_ref().map_or(0, |outbox| outbox.queue_len())
    }

    /// Bytes that the queue moved because it had to grow for the last message: the queues of all receivers of a topic
    /// grow with the same message.
    pub fn moved_bytes(&self, outcome: Delivered) -> usize {
        let grown = self.outbox.as_ref().filter(|_| outcome == Delivered::Queued);
        grown.map_or(0, |outbox| outbox.moved_bytes())
    }

    /// Number of messages sent on the present connection that count against the client's Receive Maximum.
    pub fn unacknowledged(&self) -> usize {
        self.outbox.as_ref().map_or(0, |outbox| outbox.window())
    }

    /// True while retained messages wait to be sent; live messages are queued after them.
    pub fn is_replaying(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.replays() > 0)
    }

    /// Whether QoS 0 messages wait in the queue, or have to: earlier ones that waited for retained messages go first.
    pub fn delays_qos_0(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.replays() > 0 || outbox.has_queued_qos_0())
    }

    /// Adds a replay point at the end of the queue: [`Session::pump`] stops there until [`Session::end_replay`]. Meanwhile the caller
    /// inserts retained messages, which can be many, so it looks them up only as the client takes them.
    pub fn begin_replay(&mut self) {
        self.outbox().open_replay();
    }

    pub fn withdraw_replay(&mut self) {
        self.outbox().withdraw_replay();
    }

    /// True when [`Session::pump`] has reached a replay point: call [`Session::replay`] or [`Session::end_replay`] next.
    pub fn wants_replay(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_at_replay())
    }

    /// Inserts a retained message at the replay point that `pump` has reached.
    pub fn replay(&mut self, delivery: Delivery<'_>) {
        self.outbox().supply(delivery.to_entry());
    }

    pub fn end_replay(&mut self) {
        self.outbox().close_replay();
    }

    /// A new QoS 1 or 2 message must be queued, because earlier messages are not sent yet.
    pub fn has_backlog(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| !outbox.is_caught_up())
    }

    /// True from the client's QoS 2 PUBLISH with this packet id until the server's PUBCOMP.
    pub fn is_receiving(&self, id: PacketId) -> bool {
        self.inbound.get(id).is_some()
    }

    /// Begins a new connection, on which [`Session::pump`] sends the unacknowledged messages again.
    //= [MQTT-3.1.2-5] v5
    //= [MQTT-3.1.2-4] v3.1.1
    pub fn resume(&mut self) {
        if let Some(outbox) = &mut self.outbox {
            outbox.rewind();
        }
    }

    /// Makes a session from stored state: `in_flight` in the order of sending, and in `received` the ids
    /// of the client's QoS 2 messages without PUBREL.
    pub fn restored(
        client_id: Arc<str>,
        in_flight: Vec<(PacketId, InFlight)>,
        received: impl IntoIterator<Item = PacketId>,
    ) -> Self {
        let mut session = Self::new(client_id);
        if !in_flight.is_empty() {
            session.outbox = Some(Box::new(Outbox::restored(in_flight)));
        }
        for id in received {
            session.inbound.set(id, Receipt::Received { kept: true });
        }
        session
    }

    /// Returns new QoS 2 packet ids and their messages, which [`Session::pump`] sends after the caller has stored the ids and called
    /// [`Session::confirm`] for each.
    //= [MQTT-4.3.3-2] v5
    pub fn take_reserved(&mut self) -> Vec<(PacketId, OutboxEntry)> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_reserved())
    }

    pub fn has_reserved(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.has_reserved())
    }

    pub fn confirm(&mut self, id: PacketId) {
        if let Some(outbox) = &mut self.outbox {
            outbox.confirm(id);
        }
    }

    /// Returns the unacknowledged messages in the order of sending, and apart from them the messages that were never sent: first
    /// those with a reserved packet id, then the queue.
    pub fn in_flight(&self) -> (Vec<(PacketId, InFlight)>, Vec<&OutboxEntry>) {
        let Some(outbox) = &self.outbox else { return (Vec::new(), Vec::new()) };
        let (sent, mut unsent) = outbox.in_flight();
        unsent.extend(outbox.queue());
        (sent, unsent)
    }

    /// Packet ids for messages that the caller stores unsent (`InFlight::Unsent`), in order; they follow the ids in use.
    pub fn unused_ids(&self) -> impl Iterator<Item = PacketId> + use<> {
        self.outbox.as_ref().map_or_else(|| Outbox::default().unused_ids(), |outbox| outbox.unused_ids())
    }

    /// Messages that the client has not acknowledged by PUBACK or PUBREC: first those with a packet id, then the queue.
    pub fn entries(&self) -> impl Iterator<Item = &OutboxEntry> {
        self.outbox.iter().flat_map(|outbox| outbox.entries())
    }

    /// Whether the order of the packet ids in use may not be the order of sending.
    pub fn has_unordered_ids(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.has_unordered_ids())
    }

    pub fn is_sending(&self, id: PacketId) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_in_use(id))
    }

    pub fn position_of(&self, id: PacketId) -> Option<StoredPosition> {
        self.outbox.as_ref().and_then(|outbox| outbox.position_of(id))
    }

    /// Removes messages from the end of the queue while `unwanted` returns true.
    pub fn cut_queue(&mut self, unwanted: impl Fn(&OutboxEntry) -> bool) {
        if let Some(outbox) = &mut self.outbox {
            outbox.cut_queue(unwanted);
        }
    }

    pub fn waiting_bytes(&self) -> u64 {
        self.outbox.as_ref().map_or(0, |outbox| outbox.queue_bytes())
    }

    /// Whether a stored message must wait in the store: a session always gets the first one, and small ones.
    pub fn lacks_memory(&self, bytes: usize, budget: Option<&Arc<Budget>>) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.len() > 0)
            && Budget::is_short_of(budget, self.waiting_bytes(), bytes)
    }

    /// Packet ids of the client's QoS 2 messages that await PUBREL, without the ids that the store has already.
    pub fn received_unstored(&self) -> impl Iterator<Item = PacketId> {
        self.inbound.not_stored()
    }

    /// Records that the store has a QoS 2 message of the client and also its packet id. False when the client has released the id
    /// meanwhile, so that the caller must delete the id from the store.
    pub fn keep_received(&mut self, id: PacketId) -> bool {
        self.inbound.receive(id, true)
    }

    /// Records, without an answer to the client, that the store has a QoS 2 message, but not its packet id.
    pub fn mark_received(&mut self, id: PacketId) {
        self.inbound.receive(id, false);
    }

    /// Forgets the packet id of a refused QoS 2 message, without an answer: the client may send the message again.
    pub fn forget_received(&mut self, id: PacketId) {
        self.inbound.remove(id);
    }

    /// Removes and returns the queued messages of shared subscriptions, which other members get while this client is offline.
    pub fn take_shared(&mut self) -> Vec<OutboxEntry> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_waiting(|entry| entry.shared != 0))
    }

    /// Removes and returns, with their packet ids, the messages that were never sent although [`Session::take_reserved`] has
    /// returned them.
    pub fn take_begun(&mut self, wanted: impl Fn(&OutboxEntry) -> bool) -> Vec<(PacketId, OutboxEntry)> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_begun(wanted))
    }

    pub fn into_remains(self) -> Remains {
        Remains::new(self.subscriptions, self.outbox)
    }

    /// Returns subscription and position of each shared message that no other member must get: acknowledged, sent with QoS 0,
    /// expired or too large since the last call.
    pub fn take_settled(&mut self) -> Vec<(u64, StoredPosition)> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_settled())
    }

    /// When to publish the will of a connection that ended at `ended`: after its delay, but not later than the session's end.
    pub fn will_due(&self, ended: Seconds) -> Option<Seconds> {
        let Some(SessionWill::InMemory { delay_s, .. }) = self.will.as_deref() else { return None };
        //= [MQTT-3.1.3-9] v5
        Some(ended.saturating_add((*delay_s).min(self.expiry_s)))
    }

    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        self.outbox.get_or_insert_default()
    }

    /// Frees the outbox of an idle session; not for every message, because the next message allocates a new outbox.
    pub fn shrink(&mut self) {
        // The outbox holds the next packet id, which can restart at 1 once no message is unacknowledged.
        if self.outbox.as_ref().is_some_and(|outbox| outbox.is_idle()) {
            self.outbox = None;
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
