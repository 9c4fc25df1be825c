//! What an operator does to a running edge.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use crate::broker::Routes;
use crate::mailbox::Mail;
use crate::start::Edge;
use crate::store::{Job, Publish, Purge, Write};

impl Edge {
    /// Removes the retained message of a topic: subscribers are told nothing. Returns whether there was one. It is gone for
    /// clients when this returns, and from the store once the store's thread came to it; jobs keep their order.
    ///
    /// # Errors
    /// A sentence, when the broker is not there or cannot be read.
    pub fn clear_retained(&self, broker: &str, topic: &str) -> Result<bool, String> {
        let broker = &self.process.open(broker)?;
        let gate = broker.retained_gate();
        let was_there = broker.retained.remove(topic).is_some();
        drop(gate);
        if let Some(store) = &self.process.store {
            // With QoS 0 no stream keeps it.
            let qos = QoS::AtMostOnce;
            let message = Message::new(topic.into(), qos, true, Properties::EMPTY, b"", 0);
            let publish = Publish {
                message: Arc::new(message),
                routes: Arc::new(Routes::new(broker.clone(), topic.into())),
                from: None,
                publisher: 0,
                retains: true,
                deliver: false,
                inbound: None,
                wanted: None,
            };
            store.submit(&mut vec![Job { write: Write::Publish(publish), ack: None }]);
        }
        Ok(was_there)
    }

    /// Ends a session: closes its connection, publishes its will, removes all that it has. The answer comes once that is
    /// durable: whether there was one, or a sentence that says why it cannot be done.
    ///
    /// # Errors
    /// A sentence, when the broker is not there or cannot be read.
    pub fn purge_session(
        &self,
        broker: &str,
        client_id: &str,
    ) -> Result<Receiver<Result<bool, String>>, String> {
        let (done, answer) = sync_channel(1);
        let (broker, client) = (self.process.open(broker)?, Arc::from(client_id));
        let core = self.process.owner(&broker, client_id);
        let purge = Purge { broker, client, was_online: false, done };
        self.process.mailboxes[usize::from(core)].deliver(&mut vec![Mail::Purge(Box::new(purge))], 0);
        Ok(answer)
    }
}
