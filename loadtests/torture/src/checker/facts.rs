//! Indexes of a history by message, session and connection. Positions are indexes of
//! [`History::events`].

use std::collections::{BTreeMap, HashMap};

use super::filter::matches;
use crate::history::{ClientId, ConnectionId, End, Event, History, MessageId, PublishAnswer};

/// A will has no such record, because no client sends a PUBLISH for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PublishFacts {
    pub(crate) first_sent: Option<usize>,
    pub(crate) last_sent: Option<usize>,
    pub(crate) sends: usize,
    /// Sends without DUP, each of which is a publication of its own.
    pub(crate) publications: usize,
    /// PUBACK (QoS 1) or PUBREC (QoS 2).
    pub(crate) acknowledged: Option<usize>,
    /// PUBACK (QoS 1) or PUBCOMP (QoS 2). The message is certainly forwarded only then, because a
    /// server may wait for PUBREL.
    pub(crate) completed: Option<usize>,
    pub(crate) refused: Option<usize>,
}

/// The time of one subscription, from its SUBSCRIBE on.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) filter: String,
    pub(crate) qos: u8,
    pub(crate) sent: usize,
    pub(crate) acknowledged: Option<usize>,
    pub(crate) unsubscribe_sent: Option<usize>,
    pub(crate) unsubscribed: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) at: usize,
    pub(crate) connection: ConnectionId,
    pub(crate) message: MessageId,
    pub(crate) qos: u8,
    /// True when a correct receiver passes the message to its application; false at QoS 2 while the
    /// packet id is still in use.
    pub(crate) is_first: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) spans: Vec<Span>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) by_message: HashMap<MessageId, Vec<usize>>,
}

/// A connection; all numbers but the pod's are indexes of events.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) client: ClientId,
    pub(crate) pod: usize,
    pub(crate) sent: usize,
    pub(crate) clean: bool,
    pub(crate) will: Option<MessageId>,
    /// The CONNACK, and its Session Present flag.
    pub(crate) connected: Option<(usize, bool)>,
    pub(crate) end: Option<(usize, End)>,
    /// The server closed its side after the client had ended the connection.
    pub(crate) hung_up: Option<usize>,
}

pub(crate) struct Facts<'a> {
    pub(crate) history: &'a History,
    pub(crate) publishes: Vec<PublishFacts>,
    pub(crate) sessions: BTreeMap<ClientId, Session>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) kills: Vec<usize>,
    killed_pods: Vec<usize>,
    /// Acknowledgements after which a state is stored.
    stored: Vec<usize>,
    /// A PUBLISH with a QoS 2 packet id of another message, and the event of the earlier one.
    pub(crate) reused_ids: Vec<(usize, usize)>,
    /// Deliveries of payloads that no client sent.
    pub(crate) unknown: Vec<usize>,
    /// QoS 2 packet ids that a client has not released, with their events. They survive reconnects.
    held_ids: HashMap<(ClientId, u16), usize>,
}

impl<'a> Facts<'a> {
    pub(crate) fn gather(history: &'a History) -> Self {
        let mut facts = Self {
            history,
            publishes: vec![PublishFacts::default(); history.messages.len()],
            sessions: BTreeMap::new(),
            connections: BTreeMap::new(),
            kills: Vec::new(),
            killed_pods: Vec::new(),
            stored: Vec::new(),
            reused_ids: Vec::new(),
            unknown: Vec::new(),
            held_ids: HashMap::new(),
        };
        for (at, stamped) in history.events.iter().enumerate() {
            facts.read(at, &stamped.event);
        }
        facts
    }

    pub(crate) fn publish(&self, id: MessageId) -> &PublishFacts {
        &self.publishes[id.0 as usize]
    }

    pub(crate) fn at_ms(&self, at: usize) -> u64 {
        self.history.events[at].at_ms
    }

    /// Milliseconds between two events in which the store answered: acknowledgements arrived
    /// without a gap over `apart_ms`.
    pub(crate) fn store_answers_ms(&self, after: usize, before: usize, apart_ms: u64) -> u64 {
        let first = self.stored.partition_point(|at| *at <= after);
        let (mut answers_ms, mut last_ms) = (0, self.at_ms(after));
        for at in self.stored[first..].iter().take_while(|at| **at < before) {
            let since_ms = self.at_ms(*at).saturating_sub(last_ms);
            answers_ms += if since_ms <= apart_ms { since_ms } else { 0 };
            last_ms = self.at_ms(*at);
        }
        answers_ms
    }

    pub(crate) fn kill_between(&self, after: usize, before: usize) -> Option<usize> {
        let next = self.kills.partition_point(|kill| *kill <= after);
        self.kills.get(next).copied().filter(|kill| *kill < before)
    }

    pub(crate) fn kill_of(&self, made: &Connection, after: usize, before: usize) -> Option<usize> {
        let next = self.kills.partition_point(|kill| *kill <= after);
        let kills = self.kills[next..].iter().zip(&self.killed_pods[next..]);
        let mut kills = kills.take_while(|(kill, _)| **kill < before);
        kills.find(|(_, pod)| **pod == made.pod).map(|(kill, _)| *kill)
    }

    pub(crate) fn persistent(&self) -> impl Iterator<Item = (ClientId, &Session)> {
        let sessions = self.sessions.iter().map(|(client, session)| (*client, session));
        sessions.filter(|(client, _)| self.history.who(*client).persistent)
    }

    fn read(&mut self, at: usize, event: &Event) {
        match event {
            Event::ConnectSent { client, connection, pod, clean, will } => {
                let made = Connection {
                    client: *client,
                    pod: *pod,
                    sent: at,
                    clean: *clean,
                    will: *will,
                    connected: None,
                    end: None,
                    hung_up: None,
                };
                self.connections.insert(*connection, made);
            }
            Event::Connected { connection, session_present } => {
                let client = self.history.owner(*connection);
                if !session_present {
                    self.held_ids.retain(|(holder, _), _| *holder != client);
                }
                self.connection(*connection, |made| made.connected = Some((at, *session_present)));
            }
            Event::Ended { connection, end } => {
                self.connection(*connection, |made| made.end = Some((at, *end)));
            }
            Event::HungUp { connection } => self.connection(*connection, |made| made.hung_up = Some(at)),
            Event::PublishSent { message, dup, .. } => {
                let publish = &mut self.publishes[message.0 as usize];
                publish.first_sent.get_or_insert(at);
                publish.last_sent = Some(at);
                publish.sends += 1;
                publish.publications += usize::from(!dup);
            }
            Event::Answered { message, answer, .. } => {
                let publish = &mut self.publishes[message.0 as usize];
                if matches!(answer, PublishAnswer::PubAck | PublishAnswer::PubRec) {
                    self.stored.push(at);
                }
                match answer {
                    PublishAnswer::Refused(_) => publish.refused = Some(at),
                    PublishAnswer::PubComp => publish.completed = Some(at),
                    PublishAnswer::PubRec => publish.acknowledged = publish.acknowledged.or(Some(at)),
                    PublishAnswer::PubAck => {
                        publish.acknowledged = publish.acknowledged.or(Some(at));
                        publish.completed = publish.acknowledged;
                    }
                }
            }
            Event::Received { connection, message, qos, packet_id, .. } => {
                self.received(at, *connection, message.as_ref().ok().copied(), (*qos, *packet_id));
            }
            Event::Released { connection, packet_id } => {
                self.held_ids.remove(&(self.history.owner(*connection), *packet_id));
            }
            Event::Kill { pod } => {
                self.kills.push(at);
                self.killed_pods.push(*pod);
            }
            Event::SubscribeSent { .. }
            | Event::Subscribed { .. }
            | Event::UnsubscribeSent { .. }
            | Event::Unsubscribed { .. } => self.subscription(at, event),
            Event::Lingers { .. } | Event::Probed { .. } | Event::Up | Event::Finale => {}
        }
    }

    fn connection(&mut self, id: ConnectionId, change: impl FnOnce(&mut Connection)) {
        if let Some(made) = self.connections.get_mut(&id) {
            change(made);
        }
    }

    fn received(
        &mut self,
        at: usize,
        connection: ConnectionId,
        message: Option<MessageId>,
        (qos, packet_id): (u8, u16),
    ) {
        let client = self.history.owner(connection);
        let earlier = if qos == 2 { self.held_ids.get(&(client, packet_id)).copied() } else { None };
        if qos == 2 && earlier.is_none() {
            self.held_ids.insert((client, packet_id), at);
        }
        if let Some(earlier) = earlier
            && !self.same_message(earlier, at)
        {
            self.reused_ids.push((at, earlier));
        }
        let Some(message) = message else {
            self.unknown.push(at);
            return;
        };
        let session = self.sessions.entry(client).or_default();
        session.by_message.entry(message).or_default().push(session.deliveries.len());
        let is_first = earlier.is_none();
        session.deliveries.push(Delivery { at, connection, message, qos, is_first });
    }

    fn same_message(&self, one: usize, other: usize) -> bool {
        let message = |at: usize| match &self.history.events[at].event {
            Event::Received { message, .. } => Some(message),
            _ => None,
        };
        message(one) == message(other)
    }

    fn subscription(&mut self, at: usize, event: &Event) {
        let Some(connection) = event.connection() else { return };
        let session = self.sessions.entry(self.history.owner(connection)).or_default();
        let spans = session.spans.iter_mut();
        match event {
            Event::SubscribeSent { filter, qos, .. } => session.spans.push(Span {
                filter: filter.clone(),
                qos: *qos,
                sent: at,
                acknowledged: None,
                unsubscribe_sent: None,
                unsubscribed: None,
            }),
            Event::Subscribed { filter, .. } => {
                if let Some(span) = spans.rev().find(|span| span.filter == *filter) {
                    span.acknowledged = span.acknowledged.or(Some(at));
                }
            }
            Event::UnsubscribeSent { filter, .. } => spans
                .filter(|span| span.filter == *filter)
                .for_each(|span| span.unsubscribe_sent = span.unsubscribe_sent.or(Some(at))),
            Event::Unsubscribed { filter, .. } => spans
                .filter(|span| span.filter == *filter)
                .for_each(|span| span.unsubscribed = span.unsubscribed.or(Some(at))),
            _ => {}
        }
    }
}

impl Session {
    pub(crate) fn spans_for(&self, topic: &str) -> Vec<&Span> {
        self.spans.iter().filter(|span| matches(&span.filter, topic)).collect()
    }

    pub(crate) fn deliveries_of(&self, id: MessageId) -> impl Iterator<Item = &Delivery> {
        self.by_message.get(&id).into_iter().flatten().map(|at| &self.deliveries[*at])
    }
}
