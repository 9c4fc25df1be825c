//! What an operator does to a running edge.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};

use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use crate::broker::Routes;
use crate::clients::{self, Answer, Question, Said};
use crate::mailbox::Mail;
use crate::region::{Region, Tell};
use crate::start::Edge;
use crate::store::{Job, Publish, Purge, Write};

/// A question to the pods of a region. Who drops it hears no more answers.
pub struct Asking {
    /// The name of this pod, where there are several.
    pub pod: Option<String>,
    elsewhere: Option<(Weak<Region>, u64)>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some((region, number)) = &self.elsewhere else { return };
        if let Some(region) = region.upgrade() {
            region.forget_inquiry(*number);
        }
    }
}

impl Edge {
    /// Asks this pod and those that it hears for connected clients of a broker. `tell` is called once for each that answers, on
    /// threads that must not wait: this one always does, others may not.
    pub fn ask_clients(
        &self,
        broker: u64,
        question: Question,
        tell: impl Fn(Said) + Send + Sync + 'static,
    ) -> Asking {
        let tell: Tell = Arc::new(tell);
        let process = &self.process;
        let elsewhere = process.region.as_ref().and_then(|region| {
            let number = region.ask_clients(broker, &question, tell.clone())?;
            Some((Arc::downgrade(region), number))
        });
        let here = move |answer| tell(Said { pod: None, answer });
        match process.brokers.by_id(broker) {
            Some(broker) => clients::ask(&process.mailboxes, broker, question, Box::new(here)),
            None => here(Some(Answer::default())),
        }
        Asking { pod: process.config.pod.clone(), elsewhere }
    }

    /// Removes the retained message of a topic: subscribers are told nothing. Returns whether there was one. It is gone for
    /// clients when this returns, and from the store once the store's thread came to it; jobs keep their order.
    ///
    /// # Errors
    /// A sentence, when the broker is not there or cannot be read.
    pub fn clear_retained(&self, broker: &str, topic: &str) -> Result<bool, String> {
        let broker = &self.process.open(broker)?;
        let gate = broker.retained_gate();
        let was_there = broker.remove_retained(topic);
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
