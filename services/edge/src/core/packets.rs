//! Splits MQTT bytes into packets and processes them. Plain QoS 0 packets to one topic are forwarded as one *run* of bytes, see
//! [`super::publish`].

use std::ops::Range;

use millrace_mqtt::{
    Connect, DecodeError, Packet, PacketId, PacketType, QoS, ReasonCode, connect_version, frame,
};
use millrace_session::{Closing, SessionEffect};

use super::authenticate::ConnectAt;
use super::connection::{ConnectionState, NONE, Paused};
use super::input::Rest;
use super::publish::RunInProgress;
use super::{ConnectionEnd, Core, parts, work};
use crate::limits::TOPIC_ALIAS_BYTES_FREE;
use crate::quota::Limit;

/// First byte of a CONNECT; 3.1 clients may set flags in it.
const FIRST_OF_CONNECT: u8 = (PacketType::Connect as u8) << 4;

enum FirstConnect {
    Processed,
    /// Processed again once its broker is read, or it is admitted.
    Later,
    /// Another core owns the client, and has the connection now.
    Moved,
}

enum PacketTurn {
    Now,
    Later,
    /// The client has left its rate-limited packet, which is dropped.
    Missed,
    /// The connection is gone.
    Never,
}

impl Core {
    /// Processes the complete packets in `bytes[mqtt]`. `raw` are the bytes behind them, which stay as they are. A connection
    /// `is_limited` while rate limits of its tenant apply.
    pub(super) fn packets(
        &mut self,
        slot: u32,
        bytes: &[u8],
        mqtt: Range<usize>,
        raw: Range<usize>,
    ) -> Option<Rest> {
        self.note_read(mqtt.len());
        let mut at = mqtt.start;
        let mut run: Option<RunInProgress> = None;
        let (mut needed, mut run_end) = (0, mqtt.end);
        let mut is_limited = self.connections[slot as usize].is_limited;
        let mut packet_size_max = self.packet_size_max(slot);
        while at < mqtt.end {
            let rest = &bytes[at..mqtt.end];
            if let Some(run) = &mut run
                && let Some(sizes) = run.takes(&bytes[at..run_end])
            {
                run.add(sizes);
                at += sizes.0;
                continue;
            }
            let framed = match frame(rest, packet_size_max) {
                Ok(Err(bytes)) => {
                    if self.begins_wrongly(slot, rest) {
                        // Refused for its first byte, whatever follows.
                        let error = DecodeError::Protocol("the first packet is not CONNECT");
                        return self.undecodable(slot, error, None);
                    }
                    needed = bytes;
                    break;
                }
                other => other.map(Result::ok),
            };
            // Handing a run on may end any connection, this one too.
            if !self.finish_run(slot, bytes, run.take()) {
                return None;
            }
            // After that run its publisher may be paused.
            if !self.connections[slot as usize].is_reading() {
                break;
            }
            let framed = match framed {
                Ok(framed) => framed?,
                Err(error) => return self.unframed(slot, error),
            };
            let version = self.connections[slot as usize].protocol.decoding_version();
            let packet = match framed.decode(version) {
                Ok(packet) => packet,
                Err(error) => {
                    self.spend_checked(framed.size);
                    return self.undecodable(slot, error, Some((framed.first, framed.body)));
                }
            };
            self.spend_decoded(&packet, framed.size);
            match self.turn_of(slot, &packet, is_limited) {
                PacketTurn::Now => {}
                PacketTurn::Later => break,
                PacketTurn::Missed => {
                    at += framed.size;
                    continue;
                }
                PacketTurn::Never => return None,
            }
            match packet {
                Packet::Publish(publish)
                    if self.may_run(slot, &framed, &publish) && Self::fits_runs(packet_size_max) =>
                {
                    if is_limited {
                        run_end = self.run_end(slot, &publish, at, framed.size).min(mqtt.end);
                    }
                    run = self.begin_run(slot, &publish, at, framed.size);
                    if run.is_some() {
                        at += framed.size;
                        continue;
                    }
                }
                Packet::Connect(connect) if version.is_none() => {
                    match self.first_connect(slot, connect, rest, &bytes[raw.clone()], framed.size) {
                        FirstConnect::Processed => {}
                        FirstConnect::Later => break,
                        FirstConnect::Moved => return None,
                    }
                }
                packet => self.packet(slot, packet, framed.size),
            }
            at += framed.size;
            if !self.is_open(slot) {
                return None;
            }
            if version.is_none() {
                // The CONNECT may have been accepted.
                is_limited = self.connections[slot as usize].is_limited;
                packet_size_max = self.packet_size_max(slot);
            }
            self.spend(work::PACKET);
            self.spend_bytes(framed.size);
            if !self.connections[slot as usize].is_reading() {
                break;
            }
            if self.is_share_used() && at < mqtt.end {
                self.pause_for_work(slot);
                break;
            }
        }
        if !self.finish_run(slot, bytes, run) {
            return None;
        }
        if at > mqtt.start {
            //= [MQTT-3.1.2-22] v5
            //= [MQTT-3.1.2-24] v3.1.1
            self.connections[slot as usize].last_input = self.tick();
        }
        Some(Rest { mqtt: at..mqtt.end, raw, needed })
    }

    #[inline]
    fn spend_decoded(&mut self, packet: &Packet<'_>, size: usize) {
        self.spend_checked(match packet {
            Packet::Publish(publish) => publish.properties.as_bytes().len(),
            _ => size,
        });
    }

    #[inline]
    fn turn_of(&mut self, slot: u32, packet: &Packet<'_>, is_limited: bool) -> PacketTurn {
        let is_change = matches!(packet, Packet::Subscribe(_) | Packet::Unsubscribe(_));
        if is_change && !self.may_change_filters(slot, packet) {
            let waits = self.connections[slot as usize].paused == Paused::ForRate;
            return if waits { PacketTurn::Later } else { PacketTurn::Missed };
        }
        // A message belongs also to those whose SUBSCRIBE came before it.
        let is_after_changes =
            matches!(packet, Packet::Publish(_)) && !self.unfinished.filter_changes.is_empty();
        if !is_change && (is_after_changes || self.connections[slot as usize].changes_filters) {
            self.change_filters_of_broker(slot);
            if !self.is_open(slot) {
                return PacketTurn::Never;
            }
        }
        match packet {
            Packet::Publish(_) if is_limited && self.misses_its_turn(slot) => PacketTurn::Missed,
            Packet::Publish(publish) if is_limited && !self.is_its_turn(slot, publish) => {
                if self.is_open(slot) { PacketTurn::Later } else { PacketTurn::Never }
            }
            _ => PacketTurn::Now,
        }
    }

    //= [MQTT-3.1.0-1] v5 v3.1.1
    #[inline]
    fn begins_wrongly(&self, slot: u32, bytes: &[u8]) -> bool {
        let is_first = self.connections[slot as usize].protocol.decoding_version().is_none();
        is_first && bytes.first().is_some_and(|first| first >> 4 != PacketType::Connect as u8)
    }

    /// Ends a connection whose bytes are no packet, or one that is too large.
    fn unframed(&mut self, slot: u32, error: DecodeError) -> Option<Rest> {
        let is_client = self.connections[slot as usize].session != NONE;
        if is_client && matches!(error, DecodeError::TooLarge { .. }) {
            self.reached(slot, Limit::ClientPacket);
        }
        self.undecodable(slot, error, None)
    }

    /// `mqtt` begins with the CONNECT, which has `size` bytes; `raw` are the bytes behind `mqtt`.
    #[inline]
    fn first_connect(
        &mut self,
        slot: u32,
        connect: Connect<'_>,
        mqtt: &[u8],
        raw: &[u8],
        size: usize,
    ) -> FirstConnect {
        match self.connect_at(slot, &connect, mqtt.len()) {
            ConnectAt::Elsewhere(owner, arrival) => {
                self.hand_over(slot, owner, arrival, [mqtt, raw].concat(), raw.len());
                FirstConnect::Moved
            }
            ConnectAt::Later => FirstConnect::Later,
            ConnectAt::Here(broker) => {
                if let Some(broker) = &broker {
                    self.tap(slot, broker.id, connect.client_id);
                }
                self.connects.broker = broker;
                self.packet(slot, Packet::Connect(connect), size);
                FirstConnect::Processed
            }
        }
    }

    pub(super) fn is_open(&self, slot: u32) -> bool {
        self.connections
            .get(slot as usize)
            .is_some_and(|connection| connection.state == ConnectionState::Open)
    }

    fn packet(&mut self, slot: u32, packet: Packet<'_>, size: usize) {
        if self.connections[slot as usize].is_traced() {
            self.trace_input(slot, &packet, size);
        }
        let settings = &self.process.settings;
        let (protocol, mut out, session) = parts!(self, slot);
        let session = self.sessions.get_mut(session as usize).map(|local| &mut local.session);
        let (before, aliases) = (out.len(), protocol.alias_bytes());
        let qos2 = match &packet {
            Packet::Publish(publish) if publish.qos == QoS::ExactlyOnce => publish.packet_id,
            _ => None,
        };
        let effect = protocol.input(packet, session, settings, &mut out);
        out.note_answers(before);
        let more_aliases = protocol.alias_bytes();
        if more_aliases != aliases && !self.take_aliases(slot, aliases, more_aliases, qos2) {
            return;
        }
        match effect {
            SessionEffect::None => {}
            SessionEffect::Publish(publication) => self.publish(slot, &publication),
            SessionEffect::Acknowledged => self.acknowledged(slot),
            SessionEffect::Subscribe(subscribe) => self.subscribe(slot, &subscribe),
            SessionEffect::Unsubscribe(unsubscribe) => self.unsubscribe(slot, &unsubscribe),
            SessionEffect::Connect(connect) => self.connect(slot, &connect),
            SessionEffect::Received(id) => self.pubrec_received(slot, id),
            SessionEffect::Released(id) => self.pubrel_received(slot, id),
            SessionEffect::Authenticate(auth) => self.authenticate(slot, &auth),
            SessionEffect::Disconnect { with_will } => self.end(slot, ConnectionEnd::Client, with_will),
            SessionEffect::Close(closing) => self.close(slot, closing),
        }
    }

    /// Returns false when the client's topic aliases are too large and the connection was ended.
    fn take_aliases(&mut self, slot: u32, before: usize, after: usize, qos2: Option<PacketId>) -> bool {
        let session = self.connections[slot as usize].session;
        let all = self.sessions[session as usize].broker.change_alias_bytes(before, after);
        let limits = &self.process.limits;
        let reached = match () {
            () if after > limits.topic_alias_bytes_max as usize => Limit::ClientAliases,
            () if after > before.max(TOPIC_ALIAS_BYTES_FREE)
                && all > limits.topic_alias_bytes_per_broker_max =>
            {
                Limit::BrokerAliases
            }
            () => return true,
        };
        self.reached(slot, reached);
        // The message was not published, so the client may send its packet id again after a reconnect.
        if let (Some(id), Some(local)) = (qos2, self.sessions.get_mut(session as usize)) {
            local.session.forget_received(id);
        }
        let what = "the topic aliases exceed their limit of bytes";
        self.say_and_close(
            slot,
            ReasonCode::QUOTA_EXCEEDED,
            what,
            ConnectionEnd::Error(ReasonCode::QUOTA_EXCEEDED),
        );
        false
    }

    fn acknowledged(&mut self, slot: u32) {
        let session = self.connections[slot as usize].session;
        self.note_acknowledged(session);
        let local = &mut self.sessions[session as usize];
        let (broker, settled) = (local.broker.id, local.session.take_settled());
        self.note_settled(broker, settled);
        if self.sessions[session as usize].session.has_backlog() {
            return self.pump(slot);
        }
        self.read_on_with_memory(session);
    }

    fn undecodable(&mut self, slot: u32, error: DecodeError, framed: Option<(u8, &[u8])>) -> Option<Rest> {
        // Before the DISCONNECT, because a SUBACK cannot follow it.
        self.change_filters_now(slot);
        if !self.is_open(slot) {
            return None;
        }
        if error == DecodeError::TooManyProperties {
            self.reached(slot, Limit::PacketProperties);
        }
        let (protocol, mut out, _) = parts!(self, slot);
        let closing = protocol.undecodable(error, framed, &mut out);
        // The flags of a CONNECT are not checked in 3.1. Other clients that send such a byte speak TLS or something
        // else.
        let connecting = framed.is_some_and(|(first, body)| {
            first == FIRST_OF_CONNECT
                || first >> 4 == PacketType::Connect as u8 && connect_version(body).is_some()
        });
        self.close_counted(slot, closing, connecting);
        None
    }

    fn close(&mut self, slot: u32, closing: Closing) {
        self.close_counted(slot, closing, false);
    }

    fn close_counted(&mut self, slot: u32, closing: Closing, connecting: bool) {
        tracing::debug!(reason = %closing.reason, closing.what, "closing a connection");
        let connection = &self.connections[slot as usize];
        if connection.session == NONE {
            let counters = self.counters();
            let bad_connect = connecting || connection.protocol.decoding_version().is_some();
            let counter = if bad_connect { &counters.refused_connect } else { &counters.refused_first };
            counter.add(1);
        }
        self.explain_end(slot, closing.what);
        self.end(slot, ConnectionEnd::Error(closing.reason), true);
    }

    /// Only a 5.0 client gets the reason.
    pub(super) fn say_and_close(
        &mut self,
        slot: u32,
        reason: ReasonCode,
        what: &'static str,
        ended: ConnectionEnd,
    ) {
        self.disconnect(slot, reason, what, (ended, true));
    }

    /// For a client that has lost its rights: the store deletes its will, as after a DISCONNECT with 0x00.
    pub(super) fn close_without_will(
        &mut self,
        slot: u32,
        reason: ReasonCode,
        what: &'static str,
        ended: ConnectionEnd,
    ) {
        self.disconnect(slot, reason, what, (ended, false));
    }

    fn disconnect(
        &mut self,
        slot: u32,
        reason: ReasonCode,
        what: &'static str,
        (ended, with_will): (ConnectionEnd, bool),
    ) {
        self.change_filters_now(slot);
        if !self.connections.contains(slot as usize) {
            return;
        }
        let (protocol, mut out, _) = parts!(self, slot);
        protocol.disconnect(reason, what, &mut out);
        self.explain_end(slot, what);
        self.end(slot, ended, with_will);
    }
}
