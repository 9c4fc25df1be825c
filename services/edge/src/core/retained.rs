//! Retained messages: setting them, and sending them to new subscriptions.

use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_mqtt::QoS;
use millrace_router::TreeSnapshot;
use millrace_session::{Delivered, Delivery, DropReason, Message};

use super::connection::ConnectionId;
use super::{Core, OutboundSlot, parts};
use crate::broker::Broker;
use crate::store::{Ack, Job, Write};

/// What became of a message that was to be retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is kept.
    Now,
    /// It is on its way to the store, which will acknowledge it.
    WhenStored,
    /// The broker's limit is reached; nothing happened.
    Not,
}

/// A subscription that is to get retained messages.
pub(super) struct Replay {
    pub(super) filter: Box<str>,
    pub(super) qos: QoS,
    pub(super) identifier: u32,
}

impl Core {
    /// Keeps a message as its topic's retained one and hands it to its receivers. `ack` is for the store to send, where
    /// there is one.
    pub(super) fn publish_retained(
        &mut self,
        broker: &Arc<Broker>,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
        ack: Option<Ack>,
    ) -> Kept {
        let topic = message.topic().clone();
        let gate = broker.retained_gate();
        if message.payload().is_empty() {
            //= [MQTT-3.3.1-6] [MQTT-3.3.1-7] v5
            //= [MQTT-3.3.1-10] [MQTT-3.3.1-11] v3.1.1
            broker.retained.remove(&topic);
        } else {
            let limit = self.process.limits.retained_messages_max as usize;
            if broker.retained.len() >= limit && broker.retained.get(&topic).is_none() {
                drop(gate);
                self.broker_counters(broker).publish_quota.add(1);
                return Kept::Not;
            }
            //= [MQTT-3.3.1-5] v5 v3.1.1
            broker.retained.insert(&topic, message.clone());
        }
        // Under the gate, so that the store has the same last writer as we do.
        let kept = match &self.process.store {
            Some(store) => {
                let message = (!message.payload().is_empty()).then(|| message.clone());
                let write = Write::Retained { broker: broker.id, topic: topic.clone(), message };
                store.submit(Job { write, ack });
                Kept::WhenStored
            }
            None => Kept::Now,
        };
        let routes = self.routes.get(broker, &topic);
        drop(gate);
        self.route(&routes, message, from);
        kept
    }

    /// Sends the retained messages of new subscriptions, as of the moment the subscriptions were made.
    pub(super) fn replay(&mut self, slot: u32, snapshot: &TreeSnapshot<Arc<Message>>, replays: &[Replay]) {
        let session = self.connections[slot as usize].session;
        let sys = self.sessions[session as usize].broker.sys.snapshot();
        for replay in replays {
            let snapshot = if replay.filter.starts_with("$SYS/") { &*sys } else { snapshot };
            //= [MQTT-3.3.1-9] v5
            let _ = snapshot.for_each(&replay.filter, |message| {
                self.replay_one(slot, replay, message);
                ControlFlow::Continue(())
            });
        }
    }

    fn replay_one(&mut self, slot: u32, replay: &Replay, message: &Arc<Message>) {
        if message.is_expired(self.now) {
            return;
        }
        let session = self.connections[slot as usize].session;
        let homed = &self.sessions[session as usize];
        // A client that subscribes again and again without reading has all of them waiting already.
        let waiting_max = self.process.limits.queue_messages_max as usize + homed.broker.retained.len();
        if homed.session.waiting() >= waiting_max {
            let full = Delivered::Dropped(DropReason::QueueFull);
            return super::deliver::count(&homed.broker.counters[usize::from(self.index)], full);
        }
        let identifiers: &[u32] = if replay.identifier == 0 { &[] } else { &[replay.identifier] };
        let delivery = Delivery {
            message,
            qos: message.qos().min(replay.qos),
            //= [MQTT-3.3.1-8] v5
            //= [MQTT-3.3.1-8] v3.1.1
            retain: true,
            replay: true,
            shared: 0,
            identifiers,
        };
        let (protocol, mut out, session) = parts!(self, slot);
        let homed = &mut self.sessions[session as usize];
        let outcome =
            homed.session.deliver(delivery, Some(protocol), &self.process.settings, self.now, &mut out);
        super::deliver::count(&homed.broker.counters[usize::from(self.index)], outcome);
    }
}
