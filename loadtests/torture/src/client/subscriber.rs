//! A role with a persistent session: it subscribes, receives, and acknowledges at its own speed.
//!
//! It answers a repeated PUBLISH like a new one. The checker finds out from the history which
//! deliveries an application would get.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::role::{Io, Leave, Role, Way, any_way};
use crate::packet::{self, Ack, Packet, Publication};
use crate::stage::{Phase, Stage};
use fastrand::Rng;
use millrace_torture::history::Event;

const TOGGLE_MS: Range<u64> = 300..2_500;
const WAYS: [Way; 8] = [
    Way::Cut,
    Way::Cut,
    Way::Cut,
    Way::HalfPacket,
    Way::HalfPacket,
    Way::Disconnect,
    Way::TakeOver,
    Way::TakeOver,
];

#[derive(Clone, Debug)]
pub(crate) struct Habit {
    pub(crate) online_ms: Range<u64>,
    pub(crate) away_ms: Range<u64>,
    pub(crate) ack_delay_ms: Range<u64>,
    /// The client reads nothing during a pause.
    pub(crate) pause_ms: Range<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) filter: String,
    pub(crate) qos: u8,
    pub(crate) from_ms: u64,
    /// The client subscribes and unsubscribes again and again.
    pub(crate) toggles: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    No,
    Asked,
    Yes,
    Leaving,
}

pub(crate) struct Subscriber {
    /// The subscriptions that the client wants, and what the server has answered.
    wishes: Vec<(Wish, Held)>,
    habit: Habit,
    /// By packet id of SUBSCRIBE and UNSUBSCRIBE on this connection.
    asked: HashMap<u16, usize>,
    last_packet_id: u16,
    /// Due time and bytes; lost with the connection.
    acks: VecDeque<(u64, Vec<u8>)>,
    leave_at_ms: u64,
    pause_at_ms: u64,
}

impl Subscriber {
    pub(crate) fn new(wishes: Vec<Wish>, habit: Habit) -> Self {
        Self {
            wishes: wishes.into_iter().map(|wish| (wish, Held::No)).collect(),
            habit,
            asked: HashMap::new(),
            last_packet_id: 0,
            acks: VecDeque::new(),
            leave_at_ms: 0,
            pause_at_ms: 0,
        }
    }

    fn ask(&mut self, io: &mut Io<'_>, at: usize, held: Held) {
        self.last_packet_id = self.last_packet_id % u16::MAX + 1;
        let packet_id = self.last_packet_id;
        let (wish, state) = &mut self.wishes[at];
        *state = held;
        let (connection, filter) = (io.link.connection, wish.filter.clone());
        if held == Held::Asked {
            io.link.send(&packet::subscribe(io.me.v5, packet_id, &filter, wish.qos));
            io.stage.record(Event::SubscribeSent { connection, filter, qos: wish.qos });
        } else {
            io.link.send(&packet::unsubscribe(io.me.v5, packet_id, &filter));
            io.stage.record(Event::UnsubscribeSent { connection, filter });
        }
        self.asked.insert(packet_id, at);
    }

    fn granted(&mut self, io: &mut Io<'_>, packet_id: u16, reason: u8) {
        let Some((wish, held)) = self.asked.remove(&packet_id).map(|at| &mut self.wishes[at]) else { return };
        let (connection, filter) = (io.link.connection, wish.filter.clone());
        // Any other answer counts as none.
        if *held == Held::Asked && reason == wish.qos {
            *held = Held::Yes;
            io.stage.record(Event::Subscribed { connection, filter });
        } else if *held == Held::Leaving && reason < 0x80 {
            *held = Held::No;
            wish.from_ms = io.stage.now_ms + io.rng.u64(TOGGLE_MS);
            io.stage.record(Event::Unsubscribed { connection, filter });
        }
    }

    fn received(&mut self, io: &mut Io<'_>, publication: Publication<'_>) {
        record_publication(io, publication);
        let Publication { qos, packet_id, .. } = publication;
        match qos {
            1 => self.answer(io, Ack::PubAck, packet_id),
            2 => self.answer(io, Ack::PubRec, packet_id),
            _ => {}
        }
    }

    /// Queues an acknowledgement, to be sent after the client's delay.
    fn answer(&mut self, io: &mut Io<'_>, kind: Ack, packet_id: u16) {
        let habit_ms = &self.habit.ack_delay_ms;
        let delay_ms = if io.stage.phase == Phase::Storm { some(io.rng, habit_ms) } else { 0 };
        // In the required order [MQTT-4.6.0-2] [MQTT-4.6.0-3].
        let after_ms = self.acks.back().map_or(0, |(due_ms, _)| *due_ms);
        self.acks.push_back((after_ms.max(io.stage.now_ms + delay_ms), packet::ack(kind, packet_id)));
    }

    fn send_acks(&mut self, io: &mut Io<'_>) {
        while let Some((due_ms, bytes)) = self.acks.front()
            && *due_ms <= io.stage.now_ms
        {
            io.link.send(bytes);
            self.acks.pop_front();
        }
    }

    fn next_ask(&self, stage: &Stage) -> Option<(usize, Held)> {
        let storm = stage.phase == Phase::Storm;
        self.wishes.iter().enumerate().find_map(|(at, (wish, held))| match held {
            Held::No if storm && stage.now_ms >= wish.from_ms => Some((at, Held::Asked)),
            Held::Yes if storm && wish.toggles && stage.now_ms >= wish.from_ms => Some((at, Held::Leaving)),
            _ => None,
        })
    }
}

impl Role for Subscriber {
    fn connected(&mut self, io: &mut Io<'_>, session_present: bool) {
        if !session_present {
            for (_, held) in &mut self.wishes {
                *held = if matches!(held, Held::Yes | Held::Asked) { Held::Asked } else { Held::No };
            }
        }
        // Repeats unanswered requests, and all requests if the session is gone.
        for at in 0..self.wishes.len() {
            let held = self.wishes[at].1;
            let again = held == Held::Leaving || held == Held::Asked;
            if again {
                self.ask(io, at, held);
            }
        }
        self.leave_at_ms = io.stage.now_ms + io.rng.u64(self.habit.online_ms.clone());
        self.pause_at_ms = io.stage.now_ms + some(io.rng, &self.habit.online_ms) / 2;
    }

    fn packet(&mut self, io: &mut Io<'_>, packet: Packet<'_>) {
        match packet {
            Packet::Publish(publication) => self.received(io, publication),
            Packet::Ack { kind: Ack::PubRel, packet_id, .. } => {
                io.stage.record(Event::Released { connection: io.link.connection, packet_id });
                self.answer(io, Ack::PubComp, packet_id);
            }
            Packet::SubAck { packet_id, reason } | Packet::UnsubAck { packet_id, reason } => {
                self.granted(io, packet_id, reason);
            }
            _ => {}
        }
    }

    fn tick(&mut self, io: &mut Io<'_>) -> Option<Leave> {
        if let Some((at, held)) = self.next_ask(io.stage) {
            self.wishes[at].0.from_ms = io.stage.now_ms + io.rng.u64(TOGGLE_MS);
            self.ask(io, at, held);
        }
        self.send_acks(io);
        if io.stage.phase > Phase::Storm {
            io.link.paused_until_ms = 0;
            return None;
        }
        if !self.habit.pause_ms.is_empty() && io.stage.now_ms >= self.pause_at_ms {
            io.link.paused_until_ms = io.stage.now_ms + io.rng.u64(self.habit.pause_ms.clone());
            self.pause_at_ms = io.link.paused_until_ms + io.rng.u64(self.habit.pause_ms.clone());
        }
        if io.stage.now_ms < self.leave_at_ms {
            return None;
        }
        let way = any_way(io.rng, &WAYS);
        let away_ms = if way == Way::TakeOver { 0 } else { some(io.rng, &self.habit.away_ms) };
        Some(Leave { way, away_ms })
    }

    fn left(&mut self) {
        self.acks.clear();
        self.asked.clear();
    }

    fn is_settled(&self, stage: &Stage) -> bool {
        let asked = self.wishes.iter().any(|(_, held)| matches!(held, Held::Asked | Held::Leaving));
        stage.phase > Phase::Storm && !asked && self.acks.is_empty()
    }
}

pub(super) fn record_publication(io: &mut Io<'_>, publication: Publication<'_>) {
    let Publication { topic, payload, qos, dup, retain, packet_id } = publication;
    let strange = || {
        let text = |bytes| String::from_utf8_lossy(bytes).chars().take(60).collect::<String>();
        format!("\"{}\" on {}", text(payload), text(topic)).into_boxed_str()
    };
    let message = io.stage.history.identify(topic, payload).ok_or_else(strange);
    let connection = io.link.connection;
    io.stage.record(Event::Received { connection, message, qos, dup, retained: retain, packet_id });
}

fn some(rng: &mut Rng, range_ms: &Range<u64>) -> u64 {
    if range_ms.is_empty() { range_ms.start } else { rng.u64(range_ms.clone()) }
}
