//! The messages of a client over all its connections, checked as they come: each message once, in order, without a gap.
//!
//! A payload has two numbers: which of all messages of its publisher it is, and its number among those that wait for offline sessions, or
//! among those with QoS 0, which do not wait. QoS 0 may overtake the others on the way to a client whose messages are stored.

use std::collections::{HashMap, HashSet};

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, PacketId, Publish, QoS};

use crate::common::{Client, Server, ack, publish, publish_qos};
use crate::tools::{Packets, encoded, number_of, numbered, send_anyway};

/// Stands behind the topic of messages with QoS 0, where they are looked at by themselves.
const UNSTORED: &str = " with QoS 0";

/// The numbered messages of some topics, each with one publisher.
#[derive(Default)]
pub(crate) struct History {
    /// The number that comes next, by topic.
    next: HashMap<String, u64>,
    /// Acknowledged messages of QoS 1.
    acknowledged: HashSet<(String, u64)>,
    /// Packet ids between PUBREC and PUBREL, with their messages.
    receiving: HashMap<PacketId, (String, u64)>,
    /// Acknowledgements may be lost with their connection: what they were for may come again.
    pub(crate) forgives: bool,
    /// A topic's first message may have any number.
    pub(crate) begins_anywhere: bool,
    /// Nothing overtakes anything, whatever its quality of service.
    pub(crate) is_strict: bool,
    /// Messages with QoS 0 that are missing.
    pub(crate) missing: u64,
}

impl History {
    /// Messages of all topics.
    pub(crate) fn total(&self) -> u64 {
        self.next.values().sum()
    }

    /// The number that comes next of a topic, when it has one.
    pub(crate) fn next_of(&self, topic: &str) -> Option<u64> {
        self.next.get(topic).copied()
    }

    /// Takes messages until `count` came on this connection, new or again, or it ends, or nothing comes for its time-out. False
    /// for the latter two. All are acknowledged.
    pub(crate) fn take(&mut self, packets: &mut Packets<'_>, client: &Client, count: usize) -> bool {
        let mut taken = 0;
        while taken < count {
            let answer = match packets.next() {
                None => return false,
                Some(Packet::Publish(message)) => {
                    taken += 1;
                    self.message(&message);
                    match (message.qos, message.packet_id) {
                        (QoS::AtLeastOnce, Some(id)) => Packet::PubAck(ack(id)),
                        (QoS::ExactlyOnce, Some(id)) => Packet::PubRec(ack(id)),
                        _ => continue,
                    }
                }
                Some(Packet::PubRel(released)) => {
                    self.receiving.remove(&released.packet_id);
                    Packet::PubComp(ack(released.packet_id))
                }
                Some(Packet::SubAck(_) | Packet::UnsubAck(_)) => continue,
                Some(Packet::Disconnect(_)) => return false,
                Some(other) => panic!("{other:?}"),
            };
            send_anyway(client.stream(), &encoded(&answer, client.version));
        }
        true
    }

    fn message(&mut self, message: &Publish<'_>) {
        let (mut topic, mut number) = (message.topic.to_owned(), number_of(message.payload));
        if !self.is_strict {
            number = number_of(&message.payload[8..]);
            topic.push_str(if message.qos == QoS::AtMostOnce { UNSTORED } else { "" });
        }
        let known = message.packet_id.and_then(|id| self.receiving.get(&id));
        if message.qos == QoS::ExactlyOnce
            && let Some(known) = known
        {
            assert_eq!(known, &(topic, number), "{message:?} under a packet id that is in use");
            assert!(message.dup, "{message:?}");
            return;
        }
        let is_unstored = message.qos == QoS::AtMostOnce && !self.is_strict;
        let next = self.next.entry(topic.clone()).or_insert(if self.begins_anywhere { number } else { 0 });
        let what = format!("{topic} {number} with {:?}, DUP {}, {next} comes next", message.qos, message.dup);
        if is_unstored && number > *next {
            self.missing += number - *next;
            *next = number;
        }
        if number == *next {
            *next += 1;
        } else {
            assert!(number < *next, "a gap: {what}");
            assert_eq!(message.qos, QoS::AtLeastOnce, "again: {what}");
            let is_over = self.acknowledged.contains(&(topic.clone(), number));
            assert!(!is_over || self.forgives, "again, though acknowledged: {what}");
            assert!(message.dup, "again without DUP: {what}");
        }
        match (message.qos, message.packet_id) {
            (QoS::AtLeastOnce, _) => drop(self.acknowledged.insert((topic, number))),
            (QoS::ExactlyOnce, Some(id)) => drop(self.receiving.insert(id, (topic, number))),
            _ => {}
        }
    }
}

/// Publishes `count` numbered messages with these qualities of service in turn, a hundred on their way at most. `each` gets the
/// number of each before it is sent.
pub(crate) fn publish_mixed(
    server: &Server,
    topic: &str,
    count: u64,
    qualities: &[QoS],
    mut each: impl FnMut(u64),
) {
    let mut client = Client::connect(server, V5, &format!("publisher of {topic}"));
    let (mut open, mut number, mut of_kind) = (0, 0, [0, 0]);
    while number < count || open > 0 {
        if number < count && open < 100 {
            each(number);
            let qos = qualities[usize::try_from(number).unwrap() % qualities.len()];
            let of_kind = &mut of_kind[usize::from(qos == QoS::AtMostOnce)];
            let payload = [numbered(number, 8), numbered(*of_kind, 20)].concat();
            *of_kind += 1;
            if qos == QoS::AtMostOnce {
                client.send(&Packet::Publish(publish(topic, &payload)));
            } else {
                let id = u16::try_from(number % 60_000 + 1).unwrap();
                client.send(&Packet::Publish(publish_qos(qos, id, topic, &payload)));
                open += 1;
            }
            number += 1;
            continue;
        }
        match client.recv() {
            Packet::PubRec(received) => {
                assert!(!received.reason.is_error(), "{received:?}");
                client.send(&Packet::PubRel(ack(received.packet_id)));
            }
            Packet::PubAck(acknowledged) => {
                assert!(!acknowledged.reason.is_error(), "{acknowledged:?}");
                open -= 1;
            }
            Packet::PubComp(_) => open -= 1,
            other => panic!("{other:?}"),
        }
    }
    client.disconnect();
}
