//! A client's connections: it connects, disconnects and returns. Its role decides what it does in
//! between.

mod mortal;
mod probe;
mod publisher;
mod role;
mod subscriber;

pub(crate) use mortal::Mortal;
pub(crate) use probe::Probe;
pub(crate) use publisher::{Publisher, Target};
pub(crate) use role::{Identity, Io, Leave, Role, Start, Way};
pub(crate) use subscriber::{Habit, Subscriber, Wish};

use fastrand::Rng;
use mio::Registry;

use crate::link::{Link, Reading};
use crate::packet::{self, Connect, Packet, Will};
use crate::stage::{Phase, Stage};
use millrace_torture::history::{ConnectionId, End, Event};

/// The beginning of a SUBSCRIBE of 42 bytes.
const HALF_PACKET: [u8; 5] = [0x82, 40, 0, 1, 0];
/// Clients reconnect within this time after a kill, milliseconds.
const BACK_MS_MAX: u64 = 60;

pub(crate) struct Client {
    me: Identity,
    rng: Rng,
    role: Box<dyn Role>,
    link: Option<Link>,
    accepted: bool,
    away_until_ms: u64,
}

/// A connection that its client has ended and the server has not.
pub(crate) struct Ghost {
    pub(crate) link: Link,
    pub(crate) since_ms: u64,
    pub(crate) taken_over: bool,
}

impl Client {
    pub(crate) fn new(me: Identity, seed: u64, role: Box<dyn Role>) -> Self {
        Self { me, rng: Rng::with_seed(seed), role, link: None, accepted: false, away_until_ms: 0 }
    }

    pub(crate) fn name(&self) -> &str {
        &self.me.name
    }

    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        self.link.as_ref().map(|link| link.connection)
    }

    pub(crate) fn is_at(&self, pod: usize) -> bool {
        self.link.as_ref().is_some_and(|link| link.pod == pod)
    }

    /// The client has its CONNACK, or is offline on purpose.
    pub(crate) fn is_where_it_wants(&self, stage: &Stage) -> bool {
        (self.link.is_some() && self.accepted) || (self.link.is_none() && !self.wants_to_connect(stage))
    }

    pub(crate) fn is_settled(&self, stage: &Stage) -> bool {
        self.is_where_it_wants(stage) && self.role.is_settled(stage)
    }

    pub(crate) fn wake(&mut self) {
        if let Some(link) = &mut self.link {
            link.readable = true;
        }
    }

    /// Reads, lets the role act, connects if there is no connection, and writes.
    pub(crate) fn turn(&mut self, stage: &mut Stage, registry: &Registry, ghosts: &mut Vec<Ghost>) {
        if self.link.is_some() {
            self.read(stage);
        }
        if self.accepted
            && let Some(link) = &mut self.link
        {
            let io = &mut Io { me: &self.me, stage, link, rng: &mut self.rng };
            if let Some(leave) = self.role.tick(io) {
                self.leave(stage, leave, ghosts);
            }
        }
        if self.link.is_none() && self.wants_to_connect(stage) {
            self.connect(stage, registry);
        }
        if let Some(link) = &mut self.link {
            link.flush();
        }
    }

    fn wants_to_connect(&self, stage: &Stage) -> bool {
        let waited = stage.now_ms >= self.away_until_ms || stage.phase > Phase::Storm;
        waited && self.role.wants_to_connect(stage)
    }

    fn connect(&mut self, stage: &mut Stage, registry: &Registry) {
        // A single pod is chosen without a random number, so that the clients of a seed do not
        // depend on pods.
        let chosen = if stage.up.len() > 1 { self.rng.usize(..stage.up.len()) } else { 0 };
        let Some((pod, address)) = stage.up.get(chosen).copied() else { return };
        let Start { clean, will } = self.role.begin(stage, &mut self.me, &mut self.rng);
        let me = &self.me;
        let connection = stage.history.connection(me.id);
        let will_id = will.map(|will| will.0);
        stage.record(Event::ConnectSent { client: me.id, connection, pod, clean, will: will_id });
        let Ok(mut link) = Link::open((pod, address), connection, registry) else {
            return self.lost(stage, connection, End::ByServer(None));
        };
        let message = will.map(|(id, delay_s)| (stage.history.about(id), delay_s));
        let payload = message.map(|(message, _)| message.payload()).unwrap_or_default();
        let will = message.map(|(message, delay_s)| Will {
            topic: &message.topic,
            payload: &payload,
            qos: message.qos,
            delay_s,
        });
        let ask = Connect { client_id: &me.name, v5: me.v5, persistent: me.persistent, clean, will };
        link.send(&packet::connect(ask));
        self.link = Some(link);
        self.accepted = false;
    }

    fn read(&mut self, stage: &mut Stage) {
        let Some(link) = &mut self.link else { return };
        // Without a running server, a paused client reads what the killed one has sent.
        let paused = stage.now_ms < link.paused_until_ms && !stage.up.is_empty();
        if !link.readable || paused {
            return;
        }
        let connection = link.connection;
        let reading = link.read();
        let mut inbox = std::mem::take(&mut link.inbox);
        let mut at = 0;
        let mut reason = None;
        let whole = loop {
            match packet::next(self.me.v5, &inbox[at..]) {
                Ok(Some((packet, length))) => {
                    at += length;
                    reason = reason.or(self.packet(stage, packet));
                }
                Ok(None) => break true,
                Err(packet::Malformed) => break false,
            }
        };
        inbox.drain(..at);
        if let Some(link) = &mut self.link {
            link.inbox = inbox;
        }
        // The client leaves a server that breaks the stream, and the record says that the server
        // closed the connection.
        if reading == Reading::Ended || !whole || reason.is_some() {
            self.link = None;
            self.lost(stage, connection, End::ByServer(reason));
        }
    }

    /// Returns the reason if the server ends the connection.
    fn packet(&mut self, stage: &mut Stage, packet: Packet<'_>) -> Option<u8> {
        let link = self.link.as_mut()?;
        let connection = link.connection;
        let io = &mut Io { me: &self.me, stage, link, rng: &mut self.rng };
        match packet {
            Packet::ConnAck { session_present, reason: 0 } => {
                io.stage.record(Event::Connected { connection, session_present });
                self.accepted = true;
                self.role.connected(io, session_present);
            }
            Packet::ConnAck { reason, .. } | Packet::Disconnect { reason } => return Some(reason),
            packet => self.role.packet(io, packet),
        }
        None
    }

    fn lost(&mut self, stage: &mut Stage, connection: ConnectionId, end: End) {
        stage.record(Event::Ended { connection, end });
        self.accepted = false;
        let away_ms = self.role.lost(&mut self.rng).unwrap_or_else(|| self.rng.u64(0..BACK_MS_MAX));
        self.away_until_ms = stage.now_ms + away_ms;
    }

    /// Ends the connection. After a DISCONNECT or a takeover its socket stays open as a ghost, until the
    /// server closes it.
    fn leave(&mut self, stage: &mut Stage, leave: Leave, ghosts: &mut Vec<Ghost>) {
        let Some(mut link) = self.link.take() else { return };
        let connection = link.connection;
        let end = match leave.way {
            Way::Cut | Way::HalfPacket => End::Cut,
            Way::Disconnect => End::Disconnect,
            Way::DisconnectWithWill => End::DisconnectWithWill,
            Way::TakeOver => End::TakenOver,
        };
        stage.record(Event::Ended { connection, end });
        self.accepted = false;
        self.role.left();
        self.away_until_ms = stage.now_ms + leave.away_ms;
        match leave.way {
            Way::Cut => return,
            Way::HalfPacket => {
                link.send(&HALF_PACKET);
                return link.flush();
            }
            Way::Disconnect => link.send(&packet::disconnect(self.me.v5, 0)),
            Way::DisconnectWithWill => link.send(&packet::disconnect(self.me.v5, packet::WITH_WILL)),
            Way::TakeOver => {}
        }
        link.flush();
        ghosts.push(Ghost { link, since_ms: stage.now_ms, taken_over: leave.way == Way::TakeOver });
    }
}
