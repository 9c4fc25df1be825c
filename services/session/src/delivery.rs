//! Sends messages of the server to one client, or queues them.

use std::sync::Arc;

use millrace_mqtt::encode::{self, PublishHead};
use millrace_mqtt::{PacketId, PacketType, Properties, Property, QoS, Version};
use smallvec::SmallVec;

use crate::aliases::OutboundAlias;
use crate::budget::Hold;
use crate::outbox::{NoRoom, OutboxEntry, SlotState};
use crate::settings::{STORED_INFLIGHT_MAX, UNCOUNTED_BYTES_MAX};
use crate::{Budget, Connection, Message, Out, Session, SessionSettings};

pub const PUMP_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug)]
pub struct Delivery<'m> {
    pub message: &'m Arc<Message>,
    pub qos: QoS,
    pub retain: bool,
    /// A retained message: live messages are queued until it is sent.
    pub replay: bool,
    pub maybe_sent: bool,
    /// Number of the matching shared subscription in the caller's table; 0 for none.
    pub shared: u64,
    pub identifiers: &'m [u32],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    Sent,
    Queued,
    /// The caller must count it.
    Dropped(DropReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// QoS 0 without a connection. This is no loss, because QoS 0 messages are not stored.
    Offline,
    /// QoS 0 while the socket's buffer exceeds the soft limit.
    Busy,
    QueueFull,
    Expired,
    Memory,
    TooLarge,
}

impl DropReason {
    /// Another member of the shared subscription can still get the message.
    pub fn is_for_lack_of_room(self) -> bool {
        matches!(self, Self::Offline | Self::Busy | Self::QueueFull | Self::Memory)
    }
}

impl Session {
    /// `connection` is the session's connection, if it has one. A queued message counts against `budget`, unless it is retained, or
    /// stored and one of few that wait: those count when they are sent.
    #[inline]
    pub fn deliver(
        &mut self,
        delivery: Delivery<'_>,
        connection: Option<&mut Connection>,
        settings: &SessionSettings,
        budget: Option<&Arc<Budget>>,
        now_ms: u64,
        out: &mut impl Out,
    ) -> Delivered {
        let can_wait = delivery.qos != QoS::AtMostOnce || delivery.replay;
        if let Some(connection) = connection
            && !(if can_wait { out.is_enough() } else { out.is_full() })
            && self.may_send(&delivery, connection, settings)
        {
            match self.hold_to_send(&delivery, budget) {
                Ok(hold) => return self.send(delivery.to_entry(), hold, connection, now_ms, out),
                Err(NoRoom) if self.counts_when_sent(&delivery) => {}
                Err(NoRoom) => return Delivered::Dropped(DropReason::Memory),
            }
        } else if !can_wait && !self.is_replaying() {
            // A queue of QoS 0 would make the messages of a slow consumer late as well as lost.
            return Delivered::Dropped(if out.is_full() { DropReason::Busy } else { DropReason::Offline });
        }
        self.keep(&delivery, settings, budget)
    }

    fn hold(&self, delivery: &Delivery<'_>, budget: Option<&Arc<Budget>>) -> Result<Option<Hold>, NoRoom> {
        let Some(budget) = budget.filter(|_| !self.counts_when_sent(delivery)) else {
            return Ok(None);
        };
        let held = self.outbox.as_ref().map_or(0, |outbox| outbox.len());
        Hold::new(delivery.message, budget, held, delivery.identifiers.len()).map(Some).ok_or(NoRoom)
    }

    fn hold_to_send(
        &mut self,
        delivery: &Delivery<'_>,
        budget: Option<&Arc<Budget>>,
    ) -> Result<Option<Hold>, NoRoom> {
        if delivery.qos == QoS::AtMostOnce {
            return Ok(None);
        }
        if self.counts_when_sent(delivery) {
            return self.outbox().hold_to_send(delivery.message, delivery.identifiers.len(), budget);
        }
        self.hold(delivery, budget)
    }

    /// While it waits, the caller ([`Session::lacks_memory`]) or the retained messages bound it.
    fn counts_when_sent(&self, delivery: &Delivery<'_>) -> bool {
        self.is_stored(delivery) || delivery.replay
    }

    /// The store bounds such a message. QoS 0 is never stored, and waits in memory while retained messages are sent.
    fn is_stored(&self, delivery: &Delivery<'_>) -> bool {
        self.is_stored && delivery.qos != QoS::AtMostOnce
    }

    fn may_send(&self, delivery: &Delivery<'_>, connection: &Connection, settings: &SessionSettings) -> bool {
        // Its packet id must be in the store first, see [`Self::pump`].
        if delivery.qos == QoS::ExactlyOnce && self.is_stored {
            return false;
        }
        if delivery.qos == QoS::AtMostOnce {
            //= [MQTT-4.6.0-6] v5
            return !self.delays_qos_0();
        }
        let Some(outbox) = &self.outbox else { return true };
        outbox.is_caught_up() && outbox.has_room(self.window_max(connection, settings))
    }

    /// Whether Receive Maximum and the memory have room for a new message beside all that the session has for its client; a
    /// shared subscription picks such a member.
    pub fn has_room(&self, connection: &Connection, settings: &SessionSettings) -> bool {
        let Some(outbox) = &self.outbox else { return true };
        // Messages that wait for memory are sent when the client acknowledges others.
        let is_short = outbox.window() > 0 && outbox.queue_bytes() > UNCOUNTED_BYTES_MAX;
        let all = outbox.window() + outbox.unsent() + outbox.queue_len();
        !is_short && all < self.window_max(connection, settings)
    }

    fn window_max(&self, connection: &Connection, settings: &SessionSettings) -> usize {
        let window_max = connection.window_max(settings);
        if self.is_stored { window_max.min(STORED_INFLIGHT_MAX) } else { window_max }
    }

    fn keep(
        &mut self,
        delivery: &Delivery<'_>,
        settings: &SessionSettings,
        budget: Option<&Arc<Budget>>,
    ) -> Delivered {
        let is_stored = self.is_stored(delivery);
        let outbox = self.outbox();
        let full = outbox.queue_len() >= settings.queue_messages_max as usize
            || outbox.queue_bytes() + delivery.message.size() as u64 > settings.queue_bytes_max;
        // A retained message is in memory anyway and only a reference is queued, so it does not count.
        if full && !delivery.replay && !is_stored {
            return Delivered::Dropped(DropReason::QueueFull);
        }
        let hold = if is_stored && !delivery.replay {
            let waiting = self.waiting_bytes();
            Hold::of_waiting(delivery.message, delivery.identifiers.len(), waiting, budget)
        } else {
            let Ok(hold) = self.hold(delivery, budget) else {
                return Delivered::Dropped(DropReason::Memory);
            };
            hold
        };
        self.outbox().enqueue(delivery.to_entry(), hold);
        Delivered::Queued
    }

    /// Sends queued messages as far as Receive Maximum, the socket and `budget` allow. `done` gets the result of each first
    /// transmission. QoS 2 of a stored session only reserves a packet id, and a later call sends it once the id is stored.
    /// Returns the number of messages, at most [`PUMP_MAX`]: then more may follow at once.
    //= [MQTT-4.4.0-1] v5 v3.1.1
    //= [MQTT-4.6.0-6] v5
    pub fn pump(
        &mut self,
        connection: &mut Connection,
        settings: &SessionSettings,
        budget: Option<&Arc<Budget>>,
        now_ms: u64,
        out: &mut impl Out,
        done: &mut impl FnMut(Delivered, &Message),
    ) -> usize {
        let window_max = self.window_max(connection, settings);
        let mut count = 0;
        while !out.is_enough() && count < PUMP_MAX {
            let Some(outbox) = self.outbox.as_mut().filter(|outbox| !outbox.is_caught_up()) else { break };
            count += 1;
            // `again`: sent on an earlier connection.
            if let Some((id, state, again)) = outbox.next_resend(window_max) {
                match state {
                    //= [MQTT-3.3.1-1] v5 v3.1.1
                    SlotState::Published(entry) => {
                        let entry = entry.clone();
                        //= [MQTT-3.3.2-5] v5
                        if !again && entry.message.is_expired(now_ms) {
                            outbox.complete(id);
                            done(Delivered::Dropped(DropReason::Expired), &entry.message);
                        } else if !encode(&entry, Some(id), again || entry.is_dup(), connection, now_ms, out)
                        {
                            outbox.complete(id);
                            done(Delivered::Dropped(DropReason::TooLarge), &entry.message);
                        } else if !again {
                            done(Delivered::Sent, &entry.message);
                        }
                    }
                    _ => encode::plain_ack(PacketType::PubRel, id, out.buffer()),
                }
                continue;
            }
            let is_behind = outbox.unsent() > 0;
            match outbox.next_in_queue() {
                // No message overtakes one whose packet id is reserved (`unsent`).
                Some(entry) if entry.qos == QoS::AtMostOnce && is_behind => return count - 1,
                Some(entry) if entry.qos == QoS::AtMostOnce || outbox.has_room(window_max) => {}
                _ => return count - 1,
            }
            let Some((entry, hold)) = outbox.dequeue_to_send(budget) else { return count - 1 };
            let message = entry.message.clone();
            let reserves = entry.qos == QoS::ExactlyOnce && self.is_stored;
            if reserves || is_behind {
                if entry.message.is_expired(now_ms) {
                    self.settle(&entry.message, entry.shared);
                    done(Delivered::Dropped(DropReason::Expired), &message);
                } else {
                    outbox.append(entry, hold, reserves);
                }
                continue;
            }
            done(self.send(entry, hold, connection, now_ms, out), &message);
        }
        count
    }

    fn send(
        &mut self,
        entry: OutboxEntry,
        hold: Option<Hold>,
        connection: &mut Connection,
        now_ms: u64,
        out: &mut impl Out,
    ) -> Delivered {
        //= [MQTT-3.3.2-5] v5
        if entry.message.is_expired(now_ms) {
            self.settle(&entry.message, entry.shared);
            return Delivered::Dropped(DropReason::Expired);
        }
        let id = (entry.qos != QoS::AtMostOnce).then(|| self.outbox().next_id());
        if !encode(&entry, id, entry.is_dup(), connection, now_ms, out) {
            self.settle(&entry.message, entry.shared);
            return Delivered::Dropped(DropReason::TooLarge);
        }
        if id.is_some() {
            self.outbox().push(entry, hold);
        } else {
            self.settle(&entry.message, entry.shared);
        }
        Delivered::Sent
    }

    /// Reports a message that no client will acknowledge to its shared subscription.
    fn settle(&mut self, message: &Message, shared: u64) {
        if shared != 0
            && let Some(position) = message.position()
        {
            self.outbox().settle(shared, position);
        }
    }
}

impl Delivery<'_> {
    pub(crate) fn to_entry(self) -> OutboxEntry {
        OutboxEntry {
            message: self.message.clone(),
            qos: self.qos,
            retain: self.retain,
            replay: self.replay,
            maybe_sent: self.maybe_sent,
            shared: self.shared,
            identifiers: SmallVec::from_slice(self.identifiers),
        }
    }
}

/// The properties of a 5.0 PUBLISH that differ between its receivers, without the topic alias.
#[inline]
fn properties_of(entry: &OutboxEntry, now_ms: u64) -> Vec<u8> {
    let mut properties = Vec::new();
    //= [MQTT-3.3.2-6] v5
    if let Some(seconds) = entry.message.expiry_left(now_ms) {
        Property::MessageExpiryInterval(seconds).encode(&mut properties);
    }
    //= [MQTT-3.3.4-3] [MQTT-3.3.4-4] v5
    for identifier in &entry.identifiers {
        Property::SubscriptionIdentifier(*identifier).encode(&mut properties);
    }
    properties
}

/// False, with nothing appended, when the PUBLISH exceeds the client's Maximum Packet Size.
fn encode(
    entry: &OutboxEntry,
    packet_id: Option<PacketId>,
    dup: bool,
    connection: &mut Connection,
    now_ms: u64,
    out: &mut impl Out,
) -> bool {
    let message = &entry.message;
    let version = connection.version();
    let mut more = Vec::new();
    let mut more_without_alias = 0;
    let mut topic: &str = message.topic();
    let mut alias = OutboundAlias::Plain;
    if version == Version::V5 {
        more = properties_of(entry, now_ms);
        more_without_alias = more.len();
        alias = connection.outbound_alias(message.topic());
        match alias {
            OutboundAlias::Known(alias) => {
                topic = "";
                Property::TopicAlias(alias).encode(&mut more);
            }
            OutboundAlias::Set(alias) => Property::TopicAlias(alias).encode(&mut more),
            OutboundAlias::Plain => {}
        }
    }
    let mut head = PublishHead {
        dup,
        qos: entry.qos,
        retain: entry.retain,
        topic,
        packet_id,
        properties: message.properties(),
        more: Properties::from_validated(&more),
        payload_len: message.payload().len(),
    };
    let fits = |head: &PublishHead<'_>, connection: &Connection| {
        !connection.has_packet_size_max() || head.packet_size(version) <= connection.packet_size_max()
    };
    //= [MQTT-3.1.2-24] [MQTT-3.1.2-25] v5
    if !fits(&head, connection) {
        if let OutboundAlias::Set(_) = alias {
            connection.unset_alias(message.topic());
        }
        // Leaving out the alias may make room; it comes on top of the name, or is longer than a very short name.
        head.topic = message.topic();
        head.more = Properties::from_validated(&more[..more_without_alias]);
        if !fits(&head, connection) {
            return false;
        }
    }
    head.encode_up_to_properties(version, out.buffer());
    out.body(message, version == Version::V5);
    true
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
