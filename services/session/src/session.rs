//! A session: the state that survives a network connection (MQTT 5.0 section 4.1).

use std::sync::Arc;

use hashbrown::HashMap;
use millrace_mqtt::{PacketId, SubscribeOptions};

use crate::inbound::{Inbound, Receipt};
use crate::outbox::{Entry, InFlight, Outbox};
use crate::{Delivery, Message, Place, Seconds};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSubscription {
    pub options: SubscribeOptions,
    /// 0 for none.
    pub identifier: u32,
}

#[derive(Clone, Debug)]
pub struct SessionWill {
    pub message: Arc<Message>,
    /// Seconds from the end of the connection to the publication.
    pub delay_s: u32,
}

#[derive(Debug)]
pub struct Session {
    client_id: Arc<str>,
    /// Seconds that the session survives its connection; [`Session::NO_EXPIRY`] means for ever.
    pub expiry_s: u32,
    pub will: Option<Box<SessionWill>>,
    subscriptions: Option<Box<Subscriptions>>,
    /// The store has the session and its messages, so a QoS 2 packet id must be stored before it is used, see
    /// [`Session::take_reserved`]. The queue is not limited here, because the caller reads the store only as fast as the client
    /// takes messages.
    pub is_stored: bool,
    pub(crate) inbound: Inbound,
    pub(crate) outbox: Option<Box<Outbox>>,
}

/// The hash is seeded, because clients choose filters.
type Subscriptions = HashMap<Box<str>, ClientSubscription, foldhash::fast::RandomState>;

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

    /// The key is the whole filter, share name included. True when it is new.
    pub fn subscribe(&mut self, filter: &str, subscription: ClientSubscription) -> bool {
        self.subscriptions.get_or_insert_default().insert(filter.into(), subscription).is_none()
    }

    pub fn unsubscribe(&mut self, filter: &str) -> bool {
        self.subscriptions.as_mut().is_some_and(|all| all.remove(filter).is_some())
    }

    pub fn subscription(&self, filter: &str) -> Option<&ClientSubscription> {
        self.subscriptions.as_ref()?.get(filter)
    }

    /// Filters include share names; the order is arbitrary.
    pub fn subscriptions(&self) -> impl Iterator<Item = (&str, &ClientSubscription)> {
        self.subscriptions
            .iter()
            .flat_map(|all| all.iter())
            .map(|(filter, subscription)| (&**filter, subscription))
    }

    pub fn subscriptions_len(&self) -> usize {
        self.subscriptions.as_ref().map_or(0, |all| all.len())
    }

    /// Excludes unacknowledged messages.
    pub fn waiting(&self) -> usize {
        self.outbox.as_ref().map_or(0, |outbox| outbox.queue_len())
    }

    /// Messages sent and not acknowledged on the present connection.
    pub fn unacknowledged(&self) -> usize {
        self.outbox.as_ref().map_or(0, |outbox| outbox.window())
    }

    /// Retained messages wait to be sent; live messages are queued after them.
    pub fn is_replaying(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.replays() > 0)
    }

    /// Opens a replay point for retained messages after the present queue. Later messages wait until [`Session::end_replay`]. The
    /// caller looks up the retained messages only as the client takes them, because they can be many.
    pub fn begin_replay(&mut self) {
        self.outbox().open_replay();
    }

    /// [`Session::pump`] has reached a replay point: call [`Session::replay`] next.
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

    pub fn has_backlog(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| !outbox.is_caught_up())
    }

    /// The QoS 2 id is between PUBLISH and PUBREL.
    pub fn is_receiving(&self, id: PacketId) -> bool {
        self.inbound.get(id).is_some()
    }

    /// [`Session::pump`] then sends unacknowledged messages again.
    //= [MQTT-3.1.2-5] v5
    //= [MQTT-3.1.2-4] v3.1.1
    pub fn resume(&mut self) {
        if let Some(outbox) = &mut self.outbox {
            outbox.rewind();
        }
    }

    /// The messages in flight must be in the order of their packet ids; the received ids are of QoS 2.
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

    /// QoS 2 packet ids that the caller of a stored session must store; then [`Session::confirm`] lets [`Session::pump`] send the
    /// messages.
    //= [MQTT-4.3.3-2] v5
    pub fn take_reserved(&mut self) -> Vec<(PacketId, Entry)> {
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

    pub fn is_sending(&self, id: PacketId) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_in_use(id))
    }

    pub fn place_of(&self, id: PacketId) -> Option<Place> {
        self.outbox.as_ref().and_then(|outbox| outbox.place_of(id))
    }

    /// Removes messages from the end of the queue until `unwanted` returns false.
    pub fn cut_queue(&mut self, unwanted: impl Fn(&Entry) -> bool) {
        if let Some(outbox) = &mut self.outbox {
            outbox.cut_queue(unwanted);
        }
    }

    pub fn waiting_bytes(&self) -> u64 {
        self.outbox.as_ref().map_or(0, |outbox| outbox.queue_bytes())
    }

    /// QoS 2 packet ids of received messages that the store does not have.
    pub fn received_unkept(&self) -> impl Iterator<Item = PacketId> {
        self.inbound.not_stored()
    }

    /// Records that a QoS 2 message of the client and its packet id are stored. False when the client has abandoned the id
    /// meanwhile.
    pub fn keep_received(&mut self, id: PacketId) -> bool {
        self.inbound.receive(id, true)
    }

    /// Records, without a connection, that a QoS 2 message of the client was stored or refused.
    pub fn received(&mut self, id: PacketId, stored: bool) {
        if stored {
            self.inbound.receive(id, false);
        } else {
            self.inbound.remove(id);
        }
    }

    /// The messages are for other members of the groups.
    pub fn take_shared(&mut self) -> Vec<Entry> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_waiting(|entry| entry.shared != 0))
    }

    /// Returns the messages for other members of its shared subscriptions, in order, and the settled ones as
    /// [`Session::take_settled`] does.
    pub fn into_legacy(self) -> (Vec<Entry>, Vec<(u64, Place)>) {
        self.outbox.map_or_else(Default::default, |outbox| outbox.into_legacy())
    }

    /// Subscription and position of shared messages that the client has acknowledged since the last call.
    pub fn take_settled(&mut self) -> Vec<(u64, Place)> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| outbox.take_settled())
    }

    pub fn will_due(&self, ended: Seconds) -> Option<Seconds> {
        let will = self.will.as_ref()?;
        //= [MQTT-3.1.3-9] v5
        Some(ended.saturating_add(will.delay_s.min(self.expiry_s)))
    }

    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        self.outbox.get_or_insert_default()
    }

    /// Frees memory that an idle session does not need. Call it occasionally, not for every message.
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
