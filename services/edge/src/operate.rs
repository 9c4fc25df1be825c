//! What an operator does to a running edge.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};

use millrace_access::rules::Client;
use millrace_mqtt::{Properties, QoS, topic};
use millrace_session::Message;
use millrace_transport::addresses::Address;
use millrace_transport::socket::Socket;

use crate::broker::Routes;
use crate::clients::{self, Answer, Question, Said};
use crate::core::connection::{Adopted, Transport};
use crate::limits::MATCH;
use crate::mailbox::Mail;
use crate::origin::Origin;
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

    /// Opens a connection of a client within this process: MQTT to a broker, without a port. The client still has to send a CONNECT
    /// that lets it in.
    ///
    /// # Errors
    /// When the process may have no more open files.
    pub fn connect_inside(&self, broker: &str) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        // Event loops know one kind of socket. What only TCP has fails on this one, and is not needed.
        let stream = std::net::TcpStream::from(OwnedFd::from(theirs));
        let server_name = Some(format!("{broker}.inside").into());
        let origin = Origin { address: None, server_name, certificate: None };
        let adopted = Adopted {
            stream: Socket::plain(mio::net::TcpStream::from_std(stream)),
            transport: Transport::Tcp,
            bytes: Vec::new(),
            raw: 0,
            outbound: None,
            origin: Some(Box::new(origin)),
            read_closed: false,
            counted_for: Address::NONE,
        };
        let mailboxes = &self.process.mailboxes;
        let core = usize::try_from(self.process.open_connections()).unwrap_or(0) % mailboxes.len();
        mailboxes[core].deliver(&mut vec![Mail::Adopt(Box::new(adopted))], 0);
        Ok(ours)
    }

    /// The QoS with which the settings of this server allow a client of a broker that is not managed to publish (`retain` says how), or
    /// to subscribe (`retain` is `None`).
    #[must_use]
    pub fn allowed_by_settings(
        &self,
        client_id: &str,
        user: Option<&str>,
        topic: &str,
        qos: u8,
        retain: Option<bool>,
    ) -> Option<u8> {
        let (client, qos) = (Client { user, id: client_id }, QoS::from_bits(qos)?);
        let authenticator = &self.process.authenticator;
        let granted = match retain {
            Some(retain) => authenticator.may_publish(client, topic, retain, qos).then_some(qos),
            None => {
                let filter = topic::Filter::parse(topic).map_or(topic, |filter| filter.filter);
                authenticator.may_subscribe(client, filter, qos)
            }
        };
        granted.map(|qos| qos as u8)
    }

    /// Whether other pods work with the same store.
    #[must_use]
    pub fn has_peers(&self) -> bool {
        self.process.is_shared()
    }

    /// How many subscribers of this pod a message on a topic is for; `None`: more than are counted.
    #[must_use]
    pub fn matching(&self, broker: &str, topic: &str) -> Option<u64> {
        let Some(broker) = self.process.brokers.get(broker) else { return Some(0) };
        let matched = broker.router.snapshot().matches(topic, MATCH)?;
        Some((matched.receivers.len() + matched.groups.len()) as u64)
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
                queued_us: 0,
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
