//! A role that publishes at QoS 1 and 2 with several messages in flight, and resends as the
//! standard requires.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::role::{Io, Leave, Role, Way, any_way};
use crate::packet::{self, Ack, Packet, Publish};
use crate::stage::{Phase, Stage};
use millrace_torture::history::{Event, MessageId, MessageKind, PublishAnswer};

const BURST_EVERY_MS: Range<u64> = 20..150;
const STAYS_MS: Range<u64> = 400..4_000;
const AWAY_MS: Range<u64> = 0..250;
const WAYS: [Way; 6] = [Way::Cut, Way::Cut, Way::HalfPacket, Way::Disconnect, Way::TakeOver, Way::TakeOver];

/// A topic that no other client publishes to.
pub(crate) struct Target {
    pub(crate) topic: Arc<str>,
    pub(crate) qos: u8,
    pub(crate) sequence: u32,
}

struct Flight {
    message: MessageId,
    packet_id: u16,
    qos: u8,
    /// PUBREC has arrived: PUBREL is resent instead of PUBLISH.
    received: bool,
}

pub(crate) struct Publisher {
    targets: Vec<Target>,
    retain: bool,
    window: usize,
    /// Packet ids run from 1 to this one, so that a small number is reused soon.
    packet_ids: u16,
    last_packet_id: u16,
    /// In the order in which they were first sent.
    flights: VecDeque<Flight>,
    next_burst_ms: u64,
    leave_at_ms: Option<u64>,
}

impl Publisher {
    /// `window` is the most messages in flight, and smaller than `packet_ids`.
    pub(crate) fn new(targets: Vec<Target>, retain: bool, window: usize, packet_ids: u16) -> Self {
        assert!(window < usize::from(packet_ids), "every message in flight needs a packet id");
        Self {
            targets,
            retain,
            window,
            packet_ids,
            last_packet_id: 0,
            flights: VecDeque::new(),
            next_burst_ms: 0,
            leave_at_ms: None,
        }
    }

    /// Sends some new messages, as many as the window allows at most.
    fn burst(&mut self, io: &mut Io<'_>) {
        let room = self.window - self.flights.len();
        for _ in 0..io.rng.usize(0..=room) {
            let at = io.rng.usize(0..self.targets.len());
            let packet_id = self.free_packet_id();
            let target = &mut self.targets[at];
            let kind = if self.retain { MessageKind::Retained } else { MessageKind::Plain };
            let (topic, qos, sequence) = (target.topic.clone(), target.qos, target.sequence);
            target.sequence += 1;
            let message = io.stage.history.message(io.me.id, &topic, qos, sequence, kind).id;
            self.flights.push_back(Flight { message, packet_id, qos, received: false });
            self.send(io, self.flights.len() - 1, false);
        }
    }

    fn free_packet_id(&mut self) -> u16 {
        loop {
            self.last_packet_id = self.last_packet_id % self.packet_ids + 1;
            if self.flights.iter().all(|flight| flight.packet_id != self.last_packet_id) {
                return self.last_packet_id;
            }
        }
    }

    fn send(&self, io: &mut Io<'_>, at: usize, dup: bool) {
        let Flight { message, packet_id, qos, .. } = self.flights[at];
        let connection = io.link.connection;
        io.stage.record(Event::PublishSent { connection, message, packet_id, dup });
        let message = io.stage.history.about(message);
        let payload = message.payload();
        let publish =
            Publish { topic: &message.topic, payload: &payload, qos, dup, retain: self.retain, packet_id };
        io.link.send(&packet::publish(io.me.v5, publish));
    }

    fn answered(&mut self, io: &mut Io<'_>, kind: Ack, packet_id: u16, reason: u8) {
        let Some(at) = self.flights.iter().position(|flight| flight.packet_id == packet_id) else {
            return;
        };
        let Flight { message, qos, received, .. } = self.flights[at];
        let answer = match (kind, qos, received) {
            (Ack::PubAck | Ack::PubRec, _, false) if reason >= 0x80 => PublishAnswer::Refused(reason),
            (Ack::PubAck, 1, _) => PublishAnswer::PubAck,
            (Ack::PubRec, 2, false) => PublishAnswer::PubRec,
            (Ack::PubComp, 2, true) => PublishAnswer::PubComp,
            // An unexpected answer is ignored; without the expected one the message counts as
            // unanswered at the end.
            _ => return,
        };
        io.stage.record(Event::Answered { connection: io.link.connection, message, answer });
        if answer == PublishAnswer::PubRec {
            self.flights[at].received = true;
            io.link.send(&packet::ack(Ack::PubRel, packet_id));
        } else {
            self.flights.remove(at);
        }
        if self.retain && matches!(answer, PublishAnswer::PubAck | PublishAnswer::PubComp) {
            let topic = io.stage.history.about(message).topic.clone();
            io.stage.retained.insert(topic);
        }
    }
}

impl Role for Publisher {
    /// With session present, the client resends all unanswered messages in order (4.4). Without it,
    /// the client's own state is void [MQTT-3.2.2-5], and it publishes unacknowledged messages
    /// again.
    fn connected(&mut self, io: &mut Io<'_>, session_present: bool) {
        if !session_present {
            self.flights.retain(|flight| !flight.received);
        }
        for at in 0..self.flights.len() {
            let Flight { packet_id, received, .. } = self.flights[at];
            if received {
                io.link.send(&packet::ack(Ack::PubRel, packet_id));
            } else {
                self.send(io, at, session_present);
            }
        }
        self.leave_at_ms = Some(io.stage.now_ms + io.rng.u64(STAYS_MS));
    }

    fn packet(&mut self, io: &mut Io<'_>, packet: Packet<'_>) {
        if let Packet::Ack { kind, packet_id, reason } = packet {
            self.answered(io, kind, packet_id, reason);
        }
    }

    fn tick(&mut self, io: &mut Io<'_>) -> Option<Leave> {
        if io.stage.phase > Phase::Storm {
            return None;
        }
        if io.stage.now_ms >= self.next_burst_ms {
            self.next_burst_ms = io.stage.now_ms + io.rng.u64(BURST_EVERY_MS);
            self.burst(io);
        }
        if io.stage.awaits_store || self.leave_at_ms.is_none_or(|at| io.stage.now_ms < at) {
            return None;
        }
        let way = any_way(io.rng, &WAYS);
        let away_ms = if way == Way::TakeOver { 0 } else { io.rng.u64(AWAY_MS) };
        Some(Leave { way, away_ms })
    }

    fn left(&mut self) {
        self.leave_at_ms = None;
    }

    fn is_settled(&self, _stage: &Stage) -> bool {
        self.flights.is_empty()
    }
}
