//! A client for tests: its packets go through the state machine, and the answers come back as lines of text.

use std::sync::Arc;

use millrace_mqtt::{
    Ack, Connect, Disconnect, Packet, PacketId, PacketType, Properties, Property, Publish, QoS, ReasonCode,
    Version, decode, encode, frame,
};

use crate::{
    Accept, Budget, Closing, Connection, Delivered, Delivery, DropReason, Message, Out, PUMP_MAX, Session,
    SessionEffect, SessionSettings,
};

#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) bytes: Vec<u8>,
    /// How many of them were appended by reference.
    pub(crate) referred: usize,
    pub(crate) full: bool,
}

impl Out for Wire {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn body(&mut self, message: &Arc<Message>, with_properties: bool) {
        self.bytes.extend_from_slice(message.body(with_properties));
        self.referred += message.body(with_properties).len();
    }

    fn is_full(&self) -> bool {
        self.full
    }
}

pub(crate) struct Client {
    pub(crate) version: Version,
    pub(crate) settings: SessionSettings,
    pub(crate) properties: Vec<u8>,
    pub(crate) connection: Option<Connection>,
    pub(crate) session: Session,
    pub(crate) wire: Wire,
    pub(crate) now: u64,
    pub(crate) dropped: Vec<DropReason>,
    pub(crate) budget: Option<Arc<Budget>>,
}

pub(crate) fn id(id: u16) -> PacketId {
    PacketId::new(id).unwrap()
}

pub(crate) fn properties(all: &[Property<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for property in all {
        property.encode(&mut bytes);
    }
    bytes
}

pub(crate) fn qos(level: u8) -> QoS {
    QoS::from_bits(level).unwrap()
}

pub(crate) fn connect(version: Version) -> Connect<'static> {
    Connect {
        version,
        is_bridge: false,
        clean_start: false,
        keep_alive_s: 0,
        properties: Properties::EMPTY,
        client_id: "c",
        will: None,
        user_name: None,
        password: None,
    }
}

pub(crate) fn message(topic: &str, level: u8, properties: &[u8], payload: &str, now: u64) -> Arc<Message> {
    let properties = Properties::from_validated(properties);
    Arc::new(Message::new(topic.into(), qos(level), false, properties, payload.as_bytes(), now))
}

impl Client {
    /// Connected; the CONNACK is read.
    pub(crate) fn new(version: Version) -> Self {
        Self::with(version, &[], SessionSettings::default())
    }

    pub(crate) fn with(version: Version, asked: &[Property<'_>], settings: SessionSettings) -> Self {
        let mut client = Self {
            version,
            settings,
            properties: properties(asked),
            connection: None,
            session: Session::new("c".into()),
            wire: Wire::default(),
            now: 1,
            dropped: Vec::new(),
            budget: None,
        };
        client.reconnect();
        client
    }

    /// Cuts the connection and loses unread bytes.
    pub(crate) fn cut(&mut self) {
        self.connection = None;
        self.wire.bytes.clear();
        self.session.shrink();
    }

    /// Resumes the session on a new connection; only the CONNACK is read.
    pub(crate) fn reconnect(&mut self) {
        self.cut();
        let mut connection = Connection::new();
        let request =
            Connect { properties: Properties::from_validated(&self.properties), ..connect(self.version) };
        let effect = connection.input(Packet::Connect(request), None, &self.settings, &mut self.wire);
        assert!(matches!(effect, SessionEffect::Connect(_)), "{effect:?}");
        self.session.resume();
        let accept = Accept {
            session_present: true,
            assigned_client_id: None,
            requested_expiry_s: 0,
            authentication_data: None,
            granted_expiry_s: 0,
        };
        connection.accept(&accept, &self.settings, &mut self.wire);
        self.connection = Some(connection);
        let connack = self.read();
        assert!(connack.len() == 1 && connack[0].starts_with("CONNACK"), "{connack:?}");
        self.pump();
    }

    pub(crate) fn pump(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let dropped = &mut self.dropped;
        let mut note = |done, _: &Message| {
            if let Delivered::Dropped(reason) = done {
                dropped.push(reason);
            }
        };
        let (settings, budget) = (&self.settings, self.budget.as_ref());
        while self.session.pump(connection, settings, budget, self.now, &mut self.wire, &mut note) == PUMP_MAX
        {
        }
    }

    /// `level` is the QoS.
    pub(crate) fn deliver(&mut self, level: u8, payload: &str) -> Delivered {
        let message = message("a", level, &[], payload, self.now);
        self.deliver_as(&delivery(&message, level))
    }

    /// One message per character.
    pub(crate) fn deliver_all(&mut self, level: u8, payloads: &str) {
        for payload in payloads.chars() {
            self.deliver(level, &payload.to_string());
        }
    }

    pub(crate) fn replay(&mut self, level: u8, payload: &str) -> Delivered {
        let message = message("a", level, &[], payload, self.now);
        self.deliver_as(&Delivery { retain: true, replay: true, ..delivery(&message, level) })
    }

    pub(crate) fn deliver_as(&mut self, delivery: &Delivery<'_>) -> Delivered {
        let (connection, budget) = (self.connection.as_mut(), self.budget.as_ref());
        self.session.deliver(*delivery, connection, &self.settings, budget, self.now, &mut self.wire)
    }

    pub(crate) fn send(&mut self, packet: Packet<'_>) -> String {
        let connection = self.connection.as_mut().unwrap();
        let effect = connection.input(packet, Some(&mut self.session), &self.settings, &mut self.wire);
        match effect {
            SessionEffect::None => "nothing".into(),
            SessionEffect::Connect(_) => "connect".into(),
            SessionEffect::Publish(publication) => format!("publish {}", publication.topic.as_str()),
            SessionEffect::Subscribe(_) => "subscribe".into(),
            SessionEffect::Unsubscribe(_) => "unsubscribe".into(),
            SessionEffect::Authenticate(_) => "authenticate".into(),
            SessionEffect::Acknowledged => {
                self.pump();
                "acknowledged".into()
            }
            SessionEffect::Received(id) => format!("received {id}"),
            SessionEffect::Released(id) => format!("released {id}"),
            SessionEffect::Disconnect { with_will: false } => "disconnect".into(),
            SessionEffect::Disconnect { with_will: true } => "disconnect with will".into(),
            SessionEffect::Close(closing) => words(closing),
        }
    }

    pub(crate) fn ack(&mut self, kind: PacketType, packet_id: u16) -> String {
        self.refuse(kind, packet_id, ReasonCode::SUCCESS)
    }

    pub(crate) fn refuse(&mut self, kind: PacketType, packet_id: u16, reason: ReasonCode) -> String {
        let ack = Ack { packet_id: id(packet_id), reason, properties: Properties::EMPTY };
        self.send(match kind {
            PacketType::PubAck => Packet::PubAck(ack),
            PacketType::PubRec => Packet::PubRec(ack),
            PacketType::PubRel => Packet::PubRel(ack),
            _ => Packet::PubComp(ack),
        })
    }

    /// The client publishes to topic "t".
    pub(crate) fn publish(&mut self, level: u8, packet_id: u16) -> String {
        self.send(Packet::Publish(publish(level, packet_id)))
    }

    pub(crate) fn disconnect(&mut self, reason: ReasonCode, all: &[Property<'_>]) -> String {
        let all = properties(all);
        self.send(Packet::Disconnect(Disconnect { reason, properties: Properties::from_validated(&all) }))
    }

    /// Reports the router's result of a publication by this client.
    pub(crate) fn published(&mut self, level: u8, packet_id: u16, reason: ReasonCode, what: &str) {
        let connection = self.connection.as_mut().unwrap();
        connection.published(qos(level), id(packet_id), reason, what, &mut self.session, &mut self.wire);
    }

    /// The server's packets since the last call, one per line.
    pub(crate) fn read(&mut self) -> Vec<String> {
        lines(&std::mem::take(&mut self.wire.bytes), self.version)
    }
}

pub(crate) fn publish(level: u8, packet_id: u16) -> Publish<'static> {
    Publish {
        dup: false,
        qos: qos(level),
        retain: false,
        topic: "t",
        packet_id: PacketId::new(packet_id).filter(|_| level > 0),
        properties: Properties::EMPTY,
        payload: b"x",
    }
}

pub(crate) fn delivery(message: &Arc<Message>, level: u8) -> Delivery<'_> {
    Delivery {
        message,
        qos: qos(level),
        retain: false,
        replay: false,
        maybe_sent: false,
        shared: 0,
        identifiers: &[],
    }
}

pub(crate) fn words(closing: Closing) -> String {
    format!("close 0x{:02X}: {}", closing.reason.0, closing.what)
}

/// Packets as text, such as `PUBLISH dup q1 #7 a=x`, `PUBACK #7 0x97`.
pub(crate) fn lines(mut bytes: &[u8], version: Version) -> Vec<String> {
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        let framed = frame(bytes, u32::MAX).unwrap().unwrap();
        let packet = decode(framed.first, framed.body, Some(version)).unwrap();
        let mut again = Vec::new();
        encode::packet(&packet, version, &mut again);
        assert_eq!(again, &bytes[..framed.size], "{packet:?} is not written in the one way we write it");
        lines.push(line(&packet));
        bytes = &bytes[framed.size..];
    }
    lines
}

fn line(packet: &Packet<'_>) -> String {
    match packet {
        Packet::ConnAck(p) => {
            let present = if p.session_present { " present" } else { "" };
            format!("CONNACK{present} 0x{:02X}{}", p.reason.0, listed(p.properties))
        }
        Packet::Publish(p) => {
            let dup = if p.dup { " dup" } else { "" };
            let retain = if p.retain { " retain" } else { "" };
            let id = p.packet_id.map_or(String::new(), |id| format!(" #{id}"));
            let payload = String::from_utf8_lossy(p.payload);
            format!("PUBLISH{dup}{retain} q{}{id} {}={payload}{}", p.qos as u8, p.topic, listed(p.properties))
        }
        Packet::PubAck(p) => acknowledgement("PUBACK", p),
        Packet::PubRec(p) => acknowledgement("PUBREC", p),
        Packet::PubRel(p) => acknowledgement("PUBREL", p),
        Packet::PubComp(p) => acknowledgement("PUBCOMP", p),
        Packet::SubAck(p) => format!("SUBACK #{} {:02x?}", p.packet_id, p.reasons),
        Packet::UnsubAck(p) => format!("UNSUBACK #{} {:02x?}", p.packet_id, p.reasons),
        Packet::PingResp => "PINGRESP".into(),
        Packet::Disconnect(p) => format!("DISCONNECT 0x{:02X}{}", p.reason.0, listed(p.properties)),
        other => format!("{other:?}"),
    }
}

fn acknowledgement(name: &str, ack: &Ack<'_>) -> String {
    match (ack.reason, listed(ack.properties)) {
        (ReasonCode::SUCCESS, more) => format!("{name} #{}{more}", ack.packet_id),
        (reason, more) => format!("{name} #{} 0x{:02X}{more}", ack.packet_id, reason.0),
    }
}

fn listed(properties: Properties<'_>) -> String {
    properties.iter().map(|property| format!(" {property:?}")).collect()
}
