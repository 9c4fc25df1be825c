//! A client may send any packets in any order: nothing panics, what it gets back is well formed, and it never has more
//! unacknowledged messages than Receive Maximum.
#![no_main]

use std::collections::VecDeque;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use millrace_mqtt::{PacketId, Properties, QoS, ReasonCode, Version, decode, frame};
use millrace_session::{
    Accept, Connection, Delivery, Message, PUMP_MAX, Session, SessionEffect, SessionSettings,
};

/// Small, so that it is reached often.
const RECEIVE_MAXIMUM: u16 = 4;

fuzz_target!(|input: (&[u8], &[u8])| {
    let (events, stream) = input;
    Client::new().run(events, stream);
});

struct Client {
    settings: SessionSettings,
    session: Session,
    connection: Connection,
    sent: Vec<u8>,
    /// Publications that are not answered yet.
    unanswered: VecDeque<(QoS, PacketId)>,
    now: u32,
}

impl Client {
    fn new() -> Self {
        Self {
            settings: SessionSettings {
                receive_maximum: RECEIVE_MAXIMUM,
                inflight_max: 4,
                ..SessionSettings::default()
            },
            session: Session::new("c".into()),
            connection: Connection::new(),
            sent: Vec::new(),
            unanswered: VecDeque::new(),
            now: 1,
        }
    }

    /// `stream` is what the client sends; an event of the server comes before each of its packets.
    fn run(&mut self, events: &[u8], mut stream: &[u8]) {
        let mut events = events.iter();
        while !stream.is_empty() {
            self.event(events.next().copied().unwrap_or_default());
            let Ok(Ok(framed)) = frame(stream, 4_096) else { return };
            stream = &stream[framed.size..];
            match decode(framed.first, framed.body, self.connection.decoding_version()) {
                Ok(packet) => {
                    let session = self.connection.is_open().then_some(&mut self.session);
                    let effect = self.connection.input(packet, session, &self.settings, &mut self.sent);
                    let effect = Self::owned(effect);
                    self.carry_out(effect);
                }
                Err(error) => {
                    let framed = Some((framed.first, framed.body));
                    self.connection.undecodable(error, framed, &mut self.sent);
                    self.reconnect();
                }
            }
            self.check_sent();
        }
    }

    /// An event on the server's side: it answers a publish, delivers a message, sends queued ones, or loses the connection.
    fn event(&mut self, event: u8) {
        self.now += u32::from(event >> 7);
        match event & 0x07 {
            1 => {
                let reason = if event & 0x08 == 0 { ReasonCode::SUCCESS } else { ReasonCode::NOT_AUTHORIZED };
                self.answer_one(reason);
            }
            2 if self.connection.is_open() => self.deliver(event >> 3),
            3 if self.connection.is_open() => self.pump(),
            4 => self.reconnect(),
            _ => {}
        }
        self.check_sent();
    }

    fn answer_one(&mut self, reason: ReasonCode) {
        let Some((qos, id)) = self.unanswered.pop_front() else { return };
        if self.connection.is_open() {
            self.connection.published(qos, id, reason, "why", &mut self.session, &mut self.sent);
        }
    }

    fn deliver(&mut self, bits: u8) {
        let qos = QoS::from_bits(bits & 0x03).unwrap_or_default();
        let message = Message::new("t".into(), qos, false, Properties::EMPTY, b"x", self.now);
        let message = &Arc::new(message);
        let replay = bits & 0x04 != 0;
        let delivery = Delivery {
            message,
            qos,
            retain: replay,
            replay,
            maybe_sent: false,
            shared: 0,
            identifiers: &[1],
        };
        let connection = Some(&mut self.connection);
        self.session.deliver(delivery, connection, &self.settings, None, self.now, &mut self.sent);
    }

    fn pump(&mut self) {
        let (connection, sent) = (&mut self.connection, &mut self.sent);
        while self.session.pump(connection, &self.settings, None, self.now, sent, &mut |_, _| {}) == PUMP_MAX {}
    }

    fn reconnect(&mut self) {
        self.check_sent();
        self.connection = Connection::new();
        self.unanswered.clear();
        self.session.shrink();
    }

    /// Copies the request out of an effect, which borrows the packet.
    fn owned(effect: SessionEffect<'_>) -> Asked {
        match effect {
            SessionEffect::Connect(connect) => Asked::Connect { is_new: connect.clean_start },
            SessionEffect::Publish(publication) => {
                assert!(!publication.topic.as_str().is_empty());
                Asked::Publish(publication.publish.qos, publication.publish.packet_id)
            }
            SessionEffect::Subscribe(subscribe) => {
                Asked::Subscribe(subscribe.packet_id, subscribe.filters.count())
            }
            SessionEffect::Unsubscribe(packet) => {
                Asked::Unsubscribe(packet.packet_id, packet.filters.count())
            }
            SessionEffect::Acknowledged => Asked::Pump,
            SessionEffect::Received(id) => Asked::Release(id),
            SessionEffect::Released(id) => Asked::Complete(id),
            SessionEffect::Authenticate(_) | SessionEffect::Disconnect { .. } | SessionEffect::Close(_) => {
                Asked::End
            }
            SessionEffect::None => Asked::Nothing,
        }
    }

    fn carry_out(&mut self, asked: Asked) {
        match asked {
            Asked::Nothing => {}
            Asked::Connect { is_new } => {
                if is_new {
                    self.session = Session::new("c".into());
                }
                self.session.resume();
                let accept = Accept {
                    session_present: !is_new,
                    assigned_client_id: None,
                    requested_expiry_s: 0,
                    granted_expiry_s: 0,
                    authentication_data: None,
                };
                if self.connection.takes_accept(&accept, &self.settings) {
                    self.connection.accept(&accept, &self.settings, &mut self.sent);
                    self.pump();
                } else {
                    self.reconnect();
                }
            }
            Asked::Publish(QoS::AtMostOnce, _) => {}
            Asked::Publish(qos, id) => {
                self.unanswered.push_back((qos, id.expect("a packet id above QoS 0")));
                let is_v5 = self.connection.version() == Version::V5;
                assert!(!is_v5 || self.unanswered.len() <= usize::from(RECEIVE_MAXIMUM), "Receive Maximum");
            }
            Asked::Subscribe(id, count) => {
                let reasons = vec![ReasonCode::NOT_AUTHORIZED; count];
                self.connection.subscribed(id, &reasons, "why", &mut self.sent);
            }
            Asked::Unsubscribe(id, count) => {
                let reasons = vec![ReasonCode::SUCCESS; count];
                self.connection.unsubscribed(id, &reasons, &mut self.sent);
            }
            Asked::Pump => self.pump(),
            Asked::Release(id) => self.connection.release(id, &mut self.session, &mut self.sent),
            Asked::Complete(id) => self.connection.complete(id, &mut self.session, &mut self.sent),
            Asked::End => self.reconnect(),
        }
    }

    /// Checks that the server has sent whole packets of the client's version.
    fn check_sent(&mut self) {
        let mut bytes = &self.sent[..];
        while !bytes.is_empty() {
            let framed = frame(bytes, u32::MAX).expect("a packet").expect("a whole packet");
            // Before CONNECT is accepted the version of an answer is that of the CONNECT, which may not be known.
            let versions = [self.connection.version(), Version::V5, Version::V311];
            let reads = |version| decode(framed.first, framed.body, Some(version)).is_ok();
            let known = if self.connection.is_open() { &versions[..1] } else { &versions };
            assert!(known.iter().copied().any(reads), "{:02X?}", &bytes[..framed.size]);
            bytes = &bytes[framed.size..];
        }
        self.sent.clear();
    }
}

enum Asked {
    Nothing,
    Connect { is_new: bool },
    Publish(QoS, Option<PacketId>),
    Subscribe(PacketId, usize),
    Unsubscribe(PacketId, usize),
    Pump,
    Release(PacketId),
    Complete(PacketId),
    End,
}
