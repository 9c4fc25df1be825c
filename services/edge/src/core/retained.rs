//! Retained messages: setting them, and sending them to new subscriptions.

use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_mqtt::QoS;
use millrace_router::TreeSnapshot;
use millrace_session::{Delivered, Delivery, DropReason, Message};

use super::{Core, OutboundSlot, parts};
use crate::broker::{Broker, Routes};
use crate::quota::Limit;

/// A subscription that is to get retained messages.
pub(crate) struct Replay {
    pub(crate) filter: Box<str>,
    pub(crate) qos: QoS,
    pub(crate) identifier: u32,
}

impl Core {
    /// Whether the broker's limit lets it keep this message.
    pub(super) fn may_retain(&mut self, broker: &Arc<Broker>, message: &Message) -> bool {
        let limit = broker.quota.retained_max(self.process.limits.retained_messages_max);
        let may = message.payload().is_empty()
            || (broker.retained.len() as u64) < limit
            || broker.retained.get(message.topic()).is_some();
        if !may {
            self.broker_counters(broker).publish_quota.add(1);
            self.reached_by(broker, Limit::BrokerRetained, None, None);
        }
        may
    }

    /// Makes a message its topic's retained one. Its receivers are those from before or after, as the gate has it.
    pub(super) fn retain(&mut self, broker: &Arc<Broker>, message: &Arc<Message>) -> Arc<Routes> {
        let _gate = broker.retained_gate();
        broker.retain(message);
        self.routes.get(broker, message.topic())
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
        if outcome == Delivered::Sent {
            homed.broker.meters[usize::from(self.index)].delivered(delivery.message);
        }
    }
}
