//! Retained messages: setting them, and sending them to new subscriptions.

use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_mqtt::QoS;
use millrace_router::TreeSnapshot;
use millrace_session::{Delivery, Message};

use super::connection::ConnectionId;
use super::{Core, OutboundSlot, parts};
use crate::broker::Broker;

/// A subscription that is to get retained messages.
pub(super) struct Replay {
    pub(super) filter: Box<str>,
    pub(super) qos: QoS,
    pub(super) identifier: u32,
}

impl Core {
    /// Keeps a message as its topic's retained one and hands it to its receivers. False when the broker's limit is
    /// reached: then nothing happened.
    pub(super) fn publish_retained(
        &mut self,
        broker: &Arc<Broker>,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
    ) -> bool {
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
                return false;
            }
            //= [MQTT-3.3.1-5] v5 v3.1.1
            broker.retained.insert(&topic, message.clone());
        }
        let routes = self.routes.get(broker, &topic);
        drop(gate);
        self.route(&routes, message, from);
        true
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
