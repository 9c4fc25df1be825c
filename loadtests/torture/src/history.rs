//! The record of a run: all packets and events of its clients, in one order.

use std::fmt::Write;
use std::sync::Arc;

pub use crate::event::{ClientId, ConnectionId, End, Event, MessageId, PublishAnswer};

/// Payloads are padded up to this length, so that messages differ in length.
const PADDING_BYTES_MAX: u32 = 400;
/// One message in this many is padded with [`LARGE_PADDING_BYTES`] instead.
const LARGE_EVERY: u32 = 97;
/// Bytes of a large payload: more than one read, or one value of a small page, holds.
const LARGE_PADDING_BYTES: u32 = 9_000;

#[derive(Clone, Debug)]
pub struct ClientInfo {
    pub name: String,
    pub v5: bool,
    /// Its session outlives its connections: clean session 0 (3.1.1), a long session expiry (5.0).
    pub persistent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Plain,
    Retained,
    /// A will, with its Will Delay Interval; 0 in 3.1.1.
    Will {
        delay_ms: u64,
    },
}

#[derive(Clone, Debug)]
pub struct SentMessage {
    pub id: MessageId,
    /// The client that publishes the message or leaves it as a will.
    pub publisher: ClientId,
    pub topic: Arc<str>,
    pub qos: u8,
    /// Number among the messages of this publisher to this topic.
    pub sequence: u32,
    pub kind: MessageKind,
}

impl SentMessage {
    /// Publisher, topic and sequence for people, and the unique number.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let (id, publisher) = (self.id.0, self.publisher.0);
        let padding = if id % LARGE_EVERY == LARGE_EVERY - 1 {
            LARGE_PADDING_BYTES
        } else {
            id.wrapping_mul(31) % PADDING_BYTES_MAX
        };
        let mut text = format!("m{id} p{publisher} {} s{} ", self.topic, self.sequence);
        text.extend(std::iter::repeat_n('.', padding as usize));
        text.into_bytes()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    pub at_ms: u64,
    pub event: Event,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    /// By [`ClientId`].
    pub clients: Vec<ClientInfo>,
    /// By [`MessageId`].
    pub messages: Vec<SentMessage>,
    /// The client of each connection, by [`ConnectionId`].
    pub connections: Vec<ClientId>,
    pub events: Vec<Stamped>,
}

impl History {
    pub fn client(&mut self, info: ClientInfo) -> ClientId {
        self.clients.push(info);
        ClientId(number(self.clients.len() - 1))
    }

    /// Must be called before the connection is made.
    pub fn connection(&mut self, client: ClientId) -> ConnectionId {
        self.connections.push(client);
        ConnectionId(number(self.connections.len() - 1))
    }

    /// Must be called before the message is published.
    pub fn message(
        &mut self,
        publisher: ClientId,
        topic: &Arc<str>,
        qos: u8,
        sequence: u32,
        kind: MessageKind,
    ) -> &SentMessage {
        let id = MessageId(number(self.messages.len()));
        self.messages.push(SentMessage { id, publisher, topic: topic.clone(), qos, sequence, kind });
        self.about(id)
    }

    pub fn record(&mut self, at_ms: u64, event: Event) {
        self.events.push(Stamped { at_ms, event });
    }

    #[must_use]
    pub fn about(&self, id: MessageId) -> &SentMessage {
        &self.messages[id.0 as usize]
    }

    #[must_use]
    pub fn who(&self, id: ClientId) -> &ClientInfo {
        &self.clients[id.0 as usize]
    }

    #[must_use]
    pub fn owner(&self, connection: ConnectionId) -> ClientId {
        self.connections[connection.0 as usize]
    }

    /// `None` unless the topic and every byte are as they were sent.
    #[must_use]
    pub fn identify(&self, topic: &[u8], payload: &[u8]) -> Option<MessageId> {
        let digits = payload.strip_prefix(b"m")?.split(|byte| *byte == b' ').next()?;
        let id: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let message = self.messages.get(id as usize)?;
        (message.topic.as_bytes() == topic && message.payload() == payload).then_some(message.id)
    }

    #[must_use]
    pub fn line(&self, at: usize) -> String {
        let Stamped { at_ms, event } = &self.events[at];
        let mut line = format!("#{at} {:.3} s ", *at_ms as f64 / 1000.0);
        if let Some(connection) = event.connection() {
            let name = &self.who(self.owner(connection)).name;
            // Writing to a string does not fail.
            let _ = write!(line, "{name} (connection {}): ", connection.0);
        }
        line + &self.words(event)
    }

    #[must_use]
    pub fn name(&self, id: MessageId) -> String {
        let SentMessage { publisher, topic, qos, sequence, kind, .. } = self.about(id);
        let publisher = &self.who(*publisher).name;
        let kind = match kind {
            MessageKind::Plain => String::new(),
            MessageKind::Retained => ", retained".to_owned(),
            MessageKind::Will { delay_ms } => format!(", will with delay {delay_ms} ms"),
        };
        format!("m{} ({publisher} to {topic}, number {sequence}, QoS {qos}{kind})", id.0)
    }

    fn words(&self, event: &Event) -> String {
        match event {
            Event::ConnectSent { clean, will, .. } => {
                let will = will.map_or(String::new(), |will| format!(", will {}", self.name(will)));
                format!("CONNECT sent, clean {}{will}", u8::from(*clean))
            }
            Event::Connected { session_present, .. } => {
                format!("CONNACK, session present {}", u8::from(*session_present))
            }
            Event::Ended { end, .. } => end.to_string(),
            Event::HungUp { .. } => "the server closed its side".to_owned(),
            Event::Lingers { .. } => "the server still keeps the old connection".to_owned(),
            Event::PublishSent { message, packet_id, dup, .. } => {
                format!("PUBLISH {} sent, dup {}, packet id {packet_id}", self.name(*message), u8::from(*dup))
            }
            Event::Answered { message, answer, .. } => format!("{answer} for {}", self.name(*message)),
            Event::SubscribeSent { filter, qos, .. } => format!("SUBSCRIBE {filter} QoS {qos} sent"),
            Event::Subscribed { filter, .. } => format!("SUBACK {filter}"),
            Event::UnsubscribeSent { filter, .. } => format!("UNSUBSCRIBE {filter} sent"),
            Event::Unsubscribed { filter, .. } => format!("UNSUBACK {filter}"),
            Event::Received { message, qos, dup, retained, packet_id, .. } => {
                let what = message.as_ref().map_or_else(ToString::to_string, |id| self.name(*id));
                let (dup, retain) = (u8::from(*dup), u8::from(*retained));
                format!("received {what} at QoS {qos}, dup {dup}, retain {retain}, packet id {packet_id}")
            }
            Event::Released { packet_id, .. } => format!("PUBREL, packet id {packet_id}"),
            Event::Probed { .. } => "has waited for all retained messages".to_owned(),
            Event::Kill { pod: 0 } => "SIGKILL".to_owned(),
            Event::Kill { pod } => format!("SIGKILL to pod {pod}"),
            Event::Up => "the server is up".to_owned(),
            Event::Finale => "no new messages from here on".to_owned(),
        }
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_again_only_with_its_topic_and_every_byte() {
        let mut history = History::default();
        let ann = history.client(ClientInfo { name: "ann".into(), v5: true, persistent: true });
        let topic = Arc::from("a/b");
        for sequence in 0..200 {
            let message = history.message(ann, &topic, 1, sequence, MessageKind::Plain);
            let (id, mut payload) = (message.id, message.payload());
            assert_eq!(history.identify(b"a/b", &payload), Some(id));
            assert_eq!(history.identify(b"a/c", &payload), None);
            payload.push(b'.');
            assert_eq!(history.identify(b"a/b", &payload), None);
        }
        for strange in [&b""[..], b"m", b"m999999 p0", b"hello", b"m-1 "] {
            assert_eq!(history.identify(b"a/b", strange), None);
        }
    }
}
