//! The `$SYS` topics that a broker's clients can read, under the names that other brokers use too.

use std::sync::Arc;

use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use super::Core;
use crate::broker::Broker;
use crate::metrics::{BrokerCounters, Count};

impl Core {
    /// One core publishes the topics for all cores.
    pub(super) fn publish_sys_of(&mut self, broker: &Arc<Broker>) {
        for (topic, value) in self.sys_values(broker) {
            let topic = format!("$SYS/broker/{topic}");
            let (qos, empty) = (QoS::AtMostOnce, Properties::EMPTY);
            let message = Message::new(topic.into(), qos, true, empty, value.as_bytes(), self.now_ms);
            let message = Arc::new(message);
            broker.sys.insert(message.topic(), message.clone());
            let routes = self.routes_to(broker, message.topic());
            self.route(&routes, &message, None);
        }
    }

    fn sys_values(&self, broker: &Broker) -> Vec<(&'static str, String)> {
        let sum = |of: fn(&BrokerCounters) -> &Count| Count::sum(broker.counters.iter().map(of));
        let connected = sum(|counters| &counters.connected);
        let sessions = sum(|counters| &counters.sessions);
        let received = sum(|counters| &counters.received_qos0)
            .wrapping_add(sum(|counters| &counters.received_qos1))
            .wrapping_add(sum(|counters| &counters.received_qos2));
        let dropped: u64 = broker.counters.iter().map(BrokerCounters::dropped).sum();
        vec![
            ("version", concat!("Millrace ", env!("CARGO_PKG_VERSION")).to_owned()),
            ("uptime", format!("{} seconds", self.now_ms / 1000)),
            ("clients/connected", connected.to_string()),
            ("clients/disconnected", sessions.saturating_sub(connected).to_string()),
            ("clients/total", sessions.to_string()),
            ("messages/received", received.to_string()),
            ("messages/sent", sum(|counters| &counters.sent).to_string()),
            ("messages/dropped", dropped.to_string()),
            ("subscriptions/count", broker.router.subscriptions().to_string()),
            ("retained messages/count", broker.retained.len().to_string()),
        ]
    }
}
