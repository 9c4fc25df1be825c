//! Any sequence of deliveries, acknowledgements in any order, cuts and reconnects, against a client that keeps the
//! receiver's side of the protocol and remembers everything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millrace_mqtt::{Ack, Packet, PacketType, Property, Publish, QoS, ReasonCode, Version, decode, frame};
use proptest::prelude::*;

use crate::outbox::Outbox;
use crate::test_client::Client;
use crate::{Delivered, SessionSettings};

#[derive(Clone, Debug)]
enum Step {
    /// Messages of one QoS come for the client.
    Deliver {
        level: u8,
        count: u8,
    },
    /// The client reads packets that the server sent.
    Read(u8),
    /// The client sends one of the acknowledgements that it owes.
    Acknowledge(u8),
    /// The client sends an acknowledgement again.
    Repeat(u8),
    /// The socket takes no more, or takes more again.
    Busy(bool),
    /// The event loop lets the session send what it held back.
    Pump,
    /// The connection is lost with everything that is on its way.
    Cut,
    Reconnect,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..=2_u8, 1..5_u8).prop_map(|(level, count)| Step::Deliver { level, count }),
        4 => (1..8_u8).prop_map(Step::Read),
        6 => any::<u8>().prop_map(Step::Acknowledge),
        1 => any::<u8>().prop_map(Step::Repeat),
        2 => any::<bool>().prop_map(Step::Busy),
        2 => Just(Step::Pump),
        1 => Just(Step::Cut),
        2 => Just(Step::Reconnect),
    ]
}

struct Model {
    server: Client,
    receive_maximum: usize,
    next: [u32; 3],
    /// On the wire of the present connection, not yet read.
    wire: VecDeque<Sent>,
    /// QoS 2 packet ids that the client has between PUBLISH and PUBREL.
    receiving: BTreeSet<u16>,
    owed: Vec<(PacketType, u16)>,
    repeatable: Vec<(PacketType, u16)>,
    /// Sent on the present connection and not acknowledged.
    under_way: BTreeSet<u16>,
    /// Packet ids that hold a message, over all connections.
    taken: BTreeMap<u16, (u8, u32)>,
    first_sent: [u32; 3],
    got: [Vec<u32>; 3],
}

#[derive(Clone, Copy, Debug)]
enum Sent {
    Publish { dup: bool, level: u8, id: u16, number: u32 },
    Release(u16),
}

impl Model {
    fn new(version: Version, receive_maximum: u16, first_id: u16) -> Self {
        let asked = [Property::ReceiveMaximum(receive_maximum)];
        let (asked, inflight_max) =
            if version == Version::V5 { (&asked[..], 1024) } else { (&[][..], receive_maximum) };
        let mut server =
            Client::with(version, asked, SessionSettings { inflight_max, ..SessionSettings::default() });
        server.session.outbox = Some(Box::new(Outbox::beginning_at(first_id)));
        Self {
            server,
            receive_maximum: usize::from(receive_maximum),
            next: [0; 3],
            wire: VecDeque::new(),
            receiving: BTreeSet::new(),
            owed: Vec::new(),
            repeatable: Vec::new(),
            under_way: BTreeSet::new(),
            taken: BTreeMap::new(),
            first_sent: [0; 3],
            got: Default::default(),
        }
    }

    fn carry_out(&mut self, step: &Step) {
        match *step {
            Step::Deliver { level, count } => (0..count).for_each(|_| self.deliver(level)),
            Step::Read(count) => (0..count).for_each(|_| self.read()),
            Step::Acknowledge(which) if !self.owed.is_empty() => {
                let (kind, id) = self.owed.remove(usize::from(which) % self.owed.len());
                self.acknowledge(kind, id);
            }
            Step::Repeat(which) if !self.repeatable.is_empty() => {
                let (kind, id) = self.repeatable[usize::from(which) % self.repeatable.len()];
                // Else it would acknowledge a new message.
                if !self.taken.contains_key(&id) {
                    self.acknowledge(kind, id);
                }
            }
            Step::Busy(busy) => self.server.wire.full = busy,
            Step::Pump => self.server.pump(),
            Step::Cut => self.cut(),
            Step::Reconnect => self.reconnect(),
            Step::Acknowledge(_) | Step::Repeat(_) => {}
        }
        self.collect();
    }

    fn deliver(&mut self, level: u8) {
        let number = &mut self.next[usize::from(level)];
        let outcome = self.server.deliver(level, &number.to_string());
        if level > 0 {
            assert!(matches!(outcome, Delivered::Sent | Delivered::Queued), "{outcome:?}");
        }
        *number += 1;
    }

    fn acknowledge(&mut self, kind: PacketType, number: u16) {
        if self.server.connection.is_none() {
            return;
        }
        let effect = self.server.ack(kind, number);
        assert!(!effect.starts_with("close"), "{kind:?} #{number}: {effect}");
        self.repeatable.push((kind, number));
        if kind != PacketType::PubRec {
            self.under_way.remove(&number);
            self.taken.remove(&number);
        }
    }

    fn cut(&mut self) {
        self.server.cut();
        self.wire.clear();
        self.owed.clear();
        self.repeatable.clear();
        self.under_way.clear();
        self.server.wire.full = false;
    }

    fn reconnect(&mut self) {
        self.cut();
        self.server.reconnect();
    }

    /// Takes what the server wrote, and checks the sender's rules.
    fn collect(&mut self) {
        let bytes = std::mem::take(&mut self.server.wire.bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let framed = frame(rest, u32::MAX).unwrap().unwrap();
            let sent = match decode(framed.first, framed.body, Some(self.server.version)).unwrap() {
                Packet::Publish(publish) => self.check_publish(&publish),
                // One for what is not under way answers a repeated PUBREC.
                Packet::PubRel(Ack { packet_id, reason: ReasonCode::SUCCESS, .. })
                    if self.taken.contains_key(&packet_id.get()) =>
                {
                    self.under_way.insert(packet_id.get());
                    Sent::Release(packet_id.get())
                }
                Packet::PubRel(ack) => Sent::Release(ack.packet_id.get()),
                other => panic!("{other:?}"),
            };
            self.wire.push_back(sent);
            rest = &rest[framed.size..];
        }
        let under_way = self.under_way.len();
        assert!(under_way <= self.receive_maximum, "{under_way} messages under way");
        if self.server.connection.is_some() {
            assert_eq!(self.server.session.unacknowledged(), under_way);
        }
    }

    fn check_publish(&mut self, publish: &Publish<'_>) -> Sent {
        let level = publish.qos as u8;
        let number: u32 = std::str::from_utf8(publish.payload).unwrap().parse().unwrap();
        let id = publish.packet_id.map_or(0, std::num::NonZero::get);
        if publish.qos != QoS::AtMostOnce {
            assert!(self.under_way.insert(id), "#{id} is under way already");
            if publish.dup {
                assert_eq!(self.taken.get(&id), Some(&(level, number)), "#{id} was another message");
            } else {
                assert_eq!(self.taken.insert(id, (level, number)), None, "#{id} is in use");
            }
        }
        if !publish.dup {
            let next = &mut self.first_sent[usize::from(level)];
            assert!(
                if level == 0 { number >= *next } else { number == *next },
                "q{level} {number}, not {next}"
            );
            *next = number + 1;
        }
        Sent::Publish { dup: publish.dup, level, id, number }
    }

    /// The client reads one packet and keeps the receiver's rules.
    fn read(&mut self) {
        match self.wire.pop_front() {
            Some(Sent::Publish { level: 2, id, number, dup }) => {
                if self.receiving.insert(id) {
                    self.got[2].push(number);
                } else {
                    assert!(dup, "#{id} came again without DUP");
                }
                self.owed.push((PacketType::PubRec, id));
            }
            Some(Sent::Publish { level, id, number, .. }) => {
                self.got[usize::from(level)].push(number);
                if level == 1 {
                    self.owed.push((PacketType::PubAck, id));
                }
            }
            Some(Sent::Release(id)) => {
                self.receiving.remove(&id);
                self.owed.push((PacketType::PubComp, id));
            }
            None => {}
        }
    }

    /// Lets everything come to rest.
    fn settle(&mut self) {
        self.reconnect();
        self.collect();
        while !self.wire.is_empty() || !self.owed.is_empty() {
            while !self.wire.is_empty() {
                self.read();
            }
            for (kind, id) in std::mem::take(&mut self.owed) {
                self.acknowledge(kind, id);
            }
            self.collect();
        }
        assert!(self.taken.is_empty(), "never completed: {:?}", self.taken);
        assert_eq!((self.server.session.waiting(), self.server.session.unacknowledged()), (0, 0));
        assert_eq!(self.server.dropped, []);
    }

    fn check_received(&self) {
        let [qos0, qos1, qos2] = &self.got;
        assert!(qos0.is_sorted_by(|a, b| a < b), "QoS 0 out of order or twice: {qos0:?}");
        let once: BTreeSet<_> = qos1.iter().copied().collect();
        assert!(once.into_iter().eq(0..self.next[1]), "QoS 1 lost: {qos1:?}");
        assert!(qos2.iter().copied().eq(0..self.next[2]), "QoS 2 lost, out of order or twice: {qos2:?}");
        assert!(self.receiving.is_empty(), "never released: {:?}", self.receiving);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_message_is_lost_doubled_or_overtaken_whatever_happens(
        version in prop::sample::select(vec![Version::V31, Version::V311, Version::V5]),
        receive_maximum in 1..12_u16,
        first_id in prop_oneof![Just(1), 65_500..=65_535_u16],
        steps in prop::collection::vec(step(), 0..120),
    ) {
        //= [MQTT-4.4.0-1] [MQTT-4.3.2-1] [MQTT-4.3.3-1] [MQTT-2.3.1-4] v3.1.1
        //= [MQTT-4.4.0-1] [MQTT-4.3.2-1] [MQTT-4.3.2-3] [MQTT-4.3.3-1] [MQTT-4.3.3-3] [MQTT-4.3.3-5] v5
        //= [MQTT-3.3.4-9] [MQTT-4.9.0-1] v5
        let mut model = Model::new(version, receive_maximum, first_id);
        for step in &steps {
            model.carry_out(step);
        }
        model.settle();
        model.check_received();
    }
}

#[test]
fn the_model_sees_a_message_that_is_not_there() {
    let mut model = Model::new(Version::V5, 2, 1);
    model.carry_out(&Step::Deliver { level: 1, count: 3 });
    model.server.session.outbox = None;
    let lost = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        model.settle();
        model.check_received();
    }));
    assert!(lost.is_err());
}
