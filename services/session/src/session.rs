//! A session: the state that survives a network connection (MQTT 5.0 section 4.1).

use std::sync::Arc;

use hashbrown::HashMap;
use millrace_mqtt::{PacketId, SubscribeOptions};

use crate::inbound::{Inbound, Receipt};
use crate::outbox::{Entry, InFlight, Outbox};
use crate::{Delivery, Message, Place, Seconds};

/// One subscription of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The granted options.
    pub options: SubscribeOptions,
    /// Subscription identifier, 0 for none.
    pub identifier: u32,
}

/// A will that was accepted with the CONNECT.
#[derive(Clone, Debug)]
pub struct SessionWill {
    /// The message to publish.
    pub message: Arc<Message>,
    /// Seconds between the end of the connection and the publication.
    pub delay_s: u32,
}

/// The server's state for a client id (MQTT 5.0 section 4.1): subscriptions, messages in flight both ways, the will.
#[derive(Debug)]
pub struct Session {
    client_id: Arc<str>,
    /// Seconds that the session survives its connection; [`Session::NO_EXPIRY`] means for ever.
    pub expiry_s: u32,
    /// The will of the present or last connection.
    pub will: Option<Box<SessionWill>>,
    subscriptions: Option<Box<Subscriptions>>,
    /// The store has the session and its messages. A packet id of a QoS 2 message must be stored before it is used, see
    /// [`Session::take_reserved`]. The queue is not limited here, because the store is read only as fast as the client
    /// takes messages.
    pub is_stored: bool,
    pub(crate) inbound: Inbound,
    pub(crate) outbox: Option<Box<Outbox>>,
}

/// The hash is seeded, because clients choose filters.
type Subscriptions = HashMap<Box<str>, Subscription, foldhash::fast::RandomState>;

impl Session {
    /// Session expiry of a session that never expires.
    pub const NO_EXPIRY: u32 = u32::MAX;

    /// Makes an empty session.
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

    /// The client identifier.
    pub fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// Adds or replaces a subscription, keyed by the whole filter (share name included). True when it is new.
    pub fn subscribe(&mut self, filter: &str, subscription: Subscription) -> bool {
        self.subscriptions.get_or_insert_default().insert(filter.into(), subscription).is_none()
    }

    /// Removes a subscription; false when there was none.
    pub fn unsubscribe(&mut self, filter: &str) -> bool {
        self.subscriptions.as_mut().is_some_and(|all| all.remove(filter).is_some())
    }

    /// The subscription with this filter.
    pub fn subscription(&self, filter: &str) -> Option<&Subscription> {
        self.subscriptions.as_ref()?.get(filter)
    }

    /// Filters (share names included) and subscriptions, in no order.
    pub fn subscriptions(&self) -> impl Iterator<Item = (&str, &Subscription)> {
        self.subscriptions
            .iter()
            .flat_map(|all| all.iter())
            .map(|(filter, subscription)| (&**filter, subscription))
    }

    /// Number of subscriptions.
    pub fn subscriptions_len(&self) -> usize {
        self.subscriptions.as_ref().map_or(0, |all| all.len())
    }

    /// Queued messages, without the sent and unacknowledged ones.
    pub fn waiting(&self) -> usize {
        self.outbox.as_ref().map_or(0, |outbox| outbox.queue_len())
    }

    /// Messages sent and not acknowledged on the present connection.
    pub fn unacknowledged(&self) -> usize {
        self.outbox.as_ref().map_or(0, |outbox| outbox.window())
    }

    /// True while retained messages wait to be sent; live messages are queued after them.
    pub fn is_replaying(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.replays() > 0)
    }

    /// Opens a replay point for retained messages after the present queue. Later messages wait until
    /// [`Session::end_replay`]. Retained messages can be many, so the caller looks them up as the client takes them.
    pub fn begin_replay(&mut self) {
        self.outbox().open_mark();
    }

    /// True when [`Session::pump`] has reached a replay point: call [`Session::replay`] next.
    pub fn wants_replay(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_at_mark())
    }

    /// Inserts the next retained message at the replay point that `pump` has reached.
    pub fn replay(&mut self, delivery: Delivery<'_>) {
        self.outbox().supply(delivery.to_entry());
    }

    /// Closes the replay point that `pump` has reached.
    pub fn end_replay(&mut self) {
        self.outbox().close_mark();
    }

    /// True when [`Session::pump`] has something to send.
    pub fn has_backlog(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| !outbox.is_caught_up())
    }

    /// True when the QoS 2 id is between PUBLISH and PUBREL.
    pub fn is_receiving(&self, id: PacketId) -> bool {
        self.inbound.get(id).is_some()
    }

    /// Attaches a new connection: [`Session::pump`] sends unacknowledged messages again.
    //= [MQTT-3.1.2-5] v5
    //= [MQTT-3.1.2-4] v3.1.1
    pub fn resume(&mut self) {
        if let Some(outbox) = &mut self.outbox {
            outbox.rewind();
        }
    }

    /// Restores a stored session: the messages in flight in the order of their packet ids, and the received QoS 2
    /// packet ids.
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

    /// Packet ids of QoS 2 messages that the caller must store. [`Session::pump`] sends the messages after
    /// [`Session::confirm`]. Only for stored sessions.
    //= [MQTT-4.3.3-2] v5
    pub fn take_reserved(&mut self) -> Vec<(PacketId, Entry)> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_reserved())
    }

    /// True when [`Session::take_reserved`] has something.
    pub fn has_reserved(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.has_reserved())
    }

    /// Records that the store has a packet id.
    pub fn confirm(&mut self, id: PacketId) {
        if let Some(outbox) = &mut self.outbox {
            outbox.confirm(id);
        }
    }

    /// Unacknowledged messages in the order of sending, then messages that were never sent.
    pub fn in_flight(&self) -> (Vec<(PacketId, InFlight)>, Vec<&Entry>) {
        let Some(outbox) = &self.outbox else { return (Vec::new(), Vec::new()) };
        let (sent, mut unsent) = outbox.in_flight();
        unsent.extend(outbox.queue());
        (sent, unsent)
    }

    /// Unacknowledged messages, sent or queued.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.outbox.iter().flat_map(|outbox| outbox.entries())
    }

    /// True when the packet id belongs to a message in flight to the client.
    pub fn is_sending(&self, id: PacketId) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_in_use(id))
    }

    /// The position of the message in flight under this packet id.
    pub fn place_of(&self, id: PacketId) -> Option<Place> {
        self.outbox.as_ref().and_then(|outbox| outbox.place_of(id))
    }

    /// Removes messages from the end of the queue until `unwanted` returns false.
    pub fn cut_queue(&mut self, unwanted: impl Fn(&Entry) -> bool) {
        if let Some(outbox) = &mut self.outbox {
            outbox.cut_queue(unwanted);
        }
    }

    /// Bytes of the queued messages.
    pub fn waiting_bytes(&self) -> u64 {
        self.outbox.as_ref().map_or(0, |outbox| outbox.queue_bytes())
    }

    /// QoS 2 packet ids of received messages that the store does not have.
    pub fn received_unkept(&self) -> impl Iterator<Item = PacketId> {
        self.inbound.unkept()
    }

    /// Records that a QoS 2 message of the client and its packet id are stored. Returns false when the client has
    /// abandoned the id in the meantime.
    pub fn keep_received(&mut self, id: PacketId) -> bool {
        self.inbound.receive(id, true)
    }

    /// Records, without a connection, that a QoS 2 message of the client is stored or was refused.
    pub fn received(&mut self, id: PacketId, stored: bool) {
        if stored {
            self.inbound.receive(id, false);
        } else {
            self.inbound.remove(id);
        }
    }

    /// Removes and returns the queued messages of shared subscriptions, for another member of the group.
    pub fn take_shared(&mut self) -> Vec<Entry> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_waiting(|entry| entry.shared != 0))
    }

    /// Ends the session. Returns the messages that other members of its shared subscriptions may get, in order, and the
    /// settled ones as [`Session::take_settled`] does.
    pub fn into_legacy(self) -> (Vec<Entry>, Vec<(u64, Place)>) {
        self.outbox.map_or_else(Default::default, |outbox| outbox.into_legacy())
    }

    /// Messages of shared subscriptions that the client has taken since the last call: the subscription, and the
    /// position if there is one.
    pub fn take_settled(&mut self) -> Vec<(u64, Place)> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_settled())
    }

    /// The time at which the will is to be published, after the connection ended.
    pub fn will_due(&self, ended: Seconds) -> Option<Seconds> {
        let will = self.will.as_ref()?;
        //= [MQTT-3.1.3-9] v5
        Some(ended.saturating_add(will.delay_s.min(self.expiry_s)))
    }

    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        self.outbox.get_or_insert_default()
    }

    /// Frees memory that an idle session does not need. Call it now and then, not for every message.
    pub fn shrink(&mut self) {
        // The next packet id is in the outbox: it may restart at 1 once no message is unacknowledged.
        if self.outbox.as_ref().is_some_and(|outbox| outbox.is_idle()) {
            self.outbox = None;
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
