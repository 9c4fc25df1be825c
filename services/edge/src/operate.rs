//! Operations on a running edge, for the control plane and the operator.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};

use millrace_access::rules::ClientIdentity;
use millrace_mqtt::{Properties, QoS, topic};
use millrace_session::Message;
use millrace_transport::addresses::Address;
use millrace_transport::socket::Socket;

use crate::client_traces::{ClientTrace, TraceReport};
use crate::clients::{ClientsAnswer, PodAnswer, Question};
use crate::handover::{Adopted, Transport};
use crate::jobs::{Job, PublishWrite, Purge, Write};
use crate::limits::MATCH;
use crate::mailbox::{self, Mail};
use crate::origin::Origin;
use crate::region::{AnswerSink, PodNetwork};
use crate::routes::Routes;
use crate::start::Edge;

/// A question to the pods of a region; dropping it ends the replies.
pub struct Asking {
    /// The name of this pod, if there are several.
    pub pod: Option<String>,
    elsewhere: Option<(Weak<PodNetwork>, u64)>,
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
    /// Asks this pod and all reachable ones for connected clients of a broker. `on_answer` is called once per reply, on threads that
    /// it must not block. This pod always replies, others may not, so the caller must bound its wait.
    pub fn ask_clients(
        &self,
        broker: u64,
        question: Question,
        on_answer: impl Fn(PodAnswer) + Send + Sync + 'static,
    ) -> Asking {
        let on_answer: AnswerSink = Arc::new(on_answer);
        let process = &self.process;
        let elsewhere = process.region.as_ref().and_then(|region| {
            let number = region.ask_clients(broker, &question, on_answer.clone())?;
            Some((Arc::downgrade(region), number))
        });
        let here = move |answer| on_answer(PodAnswer { pod: None, answer });
        match process.brokers.by_id(broker) {
            Some(broker) => mailbox::ask_clients(&process.mailboxes, broker, question, Box::new(here)),
            None => here(Some(ClientsAnswer::default())),
        }
        Asking { pod: process.config.pod.clone(), elsewhere }
    }

    /// [`Edge::ask_clients`] with [`Question::Trace`] begins the trace on connected clients and on other pods, which forget it unless they are
    /// asked again within 30 seconds. This pod forgets it unless [`Edge::renew_trace`] is called within two minutes. `on_report` is called
    /// on threads that it must not block; `None`: this pod has too many traces.
    pub fn trace_client(
        &self,
        broker: u64,
        client_id: &str,
        on_report: impl Fn(TraceReport) + Send + Sync + 'static,
    ) -> Option<ClientTrace> {
        let process = &self.process;
        let traces = process.brokers.traces.clone();
        let now_ms = process.clock.unix_now_ms();
        let tap = traces.begin(broker, client_id, now_ms, Box::new(on_report))?;
        let (number, region) = (tap.number(), process.region.as_ref().map(Arc::downgrade));
        let on_end = move || {
            traces.end(None, number);
            if let Some(region) = region.and_then(|region| region.upgrade()) {
                region.end_trace(number);
            }
        };
        Some(ClientTrace { tap, on_end: Some(Box::new(on_end)) })
    }

    /// Keeps a trace for two more minutes; returns false if it is over, because it was not renewed in time.
    #[must_use]
    pub fn renew_trace(&self, trace: &ClientTrace) -> bool {
        trace.tap.renew(self.process.clock.unix_now_ms())
    }

    /// Opens an in-process MQTT connection to a broker, without a port. The client still sends a CONNECT and is authenticated.
    /// Fails when the process can open no more files.
    pub fn connect_inside(&self, broker: &str) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        // Event loops know one kind of socket. TCP options fail on this one and are not needed.
        let stream = std::net::TcpStream::from(OwnedFd::from(theirs));
        let origin = Origin::in_process(broker);
        let adopted = Adopted {
            stream: Socket::plain(mio::net::TcpStream::from_std(stream)),
            transport: Transport::Tcp,
            bytes: Vec::new(),
            raw: 0,
            outbound: None,
            origin: Some(Box::new(origin)),
            read_closed: false,
            counted_for: Address::NONE,
            arrival: None,
            times: None,
        };
        let mailboxes = &self.process.mailboxes;
        let core = usize::try_from(self.process.open_connections()).unwrap_or(0) % mailboxes.len();
        mailboxes[core].post(Mail::Adopt(Box::new(adopted)));
        Ok(ours)
    }

    /// The QoS that this server's settings grant a client of an unmanaged broker for a publish (with `retain`), or for a
    /// subscription (`retain` is `None`).
    #[must_use]
    pub fn allowed_by_settings(
        &self,
        client_id: &str,
        user: Option<&str>,
        topic: &str,
        qos: u8,
        retain: Option<bool>,
    ) -> Option<u8> {
        let (client, qos) = (ClientIdentity { user, id: client_id }, QoS::from_bits(qos)?);
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

    #[must_use]
    pub fn has_peers(&self) -> bool {
        self.process.is_shared()
    }

    /// The number of this pod's subscribers that a message on the topic has; `None`: too many to count.
    #[must_use]
    pub fn matching(&self, broker: &str, topic: &str) -> Option<u64> {
        let Some(broker) = self.process.brokers.get(broker) else { return Some(0) };
        let matched = broker.router.snapshot().matches(topic, MATCH)?;
        Some((matched.receivers.len() + matched.groups.len()) as u64)
    }

    /// Removes the retained message of a topic without notifying subscribers. The store deletes it in the order of its jobs. If
    /// there are no other pods, clients no longer get it when this returns.
    ///
    /// # Errors
    /// A sentence, when the broker does not exist or cannot be read.
    pub fn clear_retained(&self, broker: &str, topic: &str) -> Result<bool, String> {
        let broker = &self.process.open(broker)?;
        let was_there = match self.has_peers() {
            true => broker.retained.get(topic).is_some(),
            false => broker.remove_retained(topic),
        };
        if let Some(store) = &self.process.store {
            let qos = QoS::AtMostOnce;
            let message = Message::new(topic.into(), qos, true, Properties::EMPTY, b"", 0);
            let publish = PublishWrite {
                message: Arc::new(message),
                routes: Arc::new(Routes::new(broker.clone(), topic.into())),
                from: None,
                publisher: 0,
                retains: true,
                reserved: None,
                waits_for_commit: false,
                fence: None,
                skip_if: None,
                queued_us: 0,
            };
            store.submit(&mut vec![Job { write: Write::Publish(publish), ack: None }]);
        }
        Ok(was_there)
    }

    /// Ends a session: closes its connection, publishes its will, deletes its state. The reply comes once that is durable: true
    /// when the session existed, or a sentence that explains the failure.
    ///
    /// # Errors
    /// A sentence, when the broker does not exist or cannot be read.
    pub fn purge_session(
        &self,
        broker: &str,
        client_id: &str,
    ) -> Result<Receiver<Result<bool, String>>, String> {
        let (done, answer) = sync_channel(1);
        let (broker, client) = (self.process.open(broker)?, Arc::from(client_id));
        let owner = self.process.owner(&broker, client_id);
        let core = usize::from(owner.core());
        let purge = Purge { broker, client, was_online: false, done };
        let mail = Mail::Purge(Box::new(purge), owner.into_claim());
        self.process.mailboxes[core].post(mail);
        Ok(answer)
    }

    /// Spreads a broker over all event loops, for tests.
    #[doc(hidden)]
    pub fn spread(&self, broker: &str) {
        if let Some(broker) = self.process.brokers.get(broker) {
            broker.home.spread();
        }
    }

    /// For tests: client ids of a broker that belong to its home loop.
    #[doc(hidden)]
    #[must_use]
    pub fn clients_at_home(&self, broker: &str) -> usize {
        self.process.brokers.get(broker).map_or(0, |broker| broker.home.claimed())
    }
}
