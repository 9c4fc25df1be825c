//! From the bytes of MQTT to packets and what they ask for.

use std::ops::Range;

use millrace_mqtt::{DecodeError, Packet, PacketType, ReasonCode, decode, frame};
use millrace_session::{Closing, Effect};

use super::connection::{NONE, State};
use super::input::Rest;
use super::publish::RunInProgress;
use super::{Core, Ended, OutboundSlot, parts};

impl Core {
    /// Carries out the whole packets in `bytes[mqtt]`. `raw` is what stands behind them and is kept as it is.
    pub(super) fn packets(
        &mut self,
        slot: u32,
        bytes: &[u8],
        mqtt: Range<usize>,
        raw: Range<usize>,
    ) -> Option<Rest> {
        let mut at = mqtt.start;
        let mut run: Option<RunInProgress> = None;
        let mut needed = 0;
        while at < mqtt.end {
            let rest = &bytes[at..mqtt.end];
            if let Some(run) = &mut run
                && let Some(size) = run.takes(rest)
            {
                run.add(size);
                at += size;
                continue;
            }
            let framed = match frame(rest, self.process.limits.packet_size_max) {
                Ok(Ok(framed)) => framed,
                Ok(Err(bytes)) => {
                    needed = bytes;
                    break;
                }
                Err(error) => {
                    self.finish_run(slot, bytes, run.take());
                    self.undecodable(slot, error, None);
                    return None;
                }
            };
            let packet = decode(
                framed.first,
                framed.body,
                self.connections[slot as usize].protocol.decoding_version(),
            );
            let packet = match packet {
                Ok(Packet::Publish(publish)) if self.may_run(slot, framed.first, &publish) => {
                    // A run ends where its topic does.
                    self.finish_run(slot, bytes, run.take());
                    run = self.begin_run(slot, &publish, at, framed.size);
                    at += framed.size;
                    continue;
                }
                Ok(Packet::Connect(connect)) if self.connections[slot as usize].session == NONE => {
                    if let Some(owner) = self.owned_elsewhere(slot, &connect) {
                        let mut moving = bytes[at..mqtt.end].to_vec();
                        moving.extend_from_slice(&bytes[raw.clone()]);
                        self.hand_over(slot, owner, moving, raw.len());
                        return None;
                    }
                    Packet::Connect(connect)
                }
                Ok(packet) => packet,
                Err(error) => {
                    self.finish_run(slot, bytes, run.take());
                    self.undecodable(slot, error, Some((framed.first, framed.body)));
                    return None;
                }
            };
            self.finish_run(slot, bytes, run.take());
            at += framed.size;
            self.packet(slot, packet);
            match self.connections.get(slot as usize) {
                Some(connection) if connection.state == State::Open => {
                    if !connection.is_reading() {
                        break;
                    }
                }
                _ => return None,
            }
        }
        self.finish_run(slot, bytes, run.take());
        match self.connections.get(slot as usize) {
            Some(connection) if connection.state == State::Open => {
                Some(Rest { mqtt: at..mqtt.end, raw, needed })
            }
            _ => None,
        }
    }

    /// One packet through the state machine, and what it asks for.
    fn packet(&mut self, slot: u32, packet: Packet<'_>) {
        let settings = &self.process.settings;
        let (protocol, mut out, session) = parts!(self, slot);
        let session = self.sessions.get_mut(session as usize).map(|homed| &mut homed.session);
        match protocol.input(packet, session, settings, &mut out) {
            Effect::None => {}
            Effect::Publish(publication) => self.publish(slot, &publication),
            Effect::Acknowledged => self.acknowledged(slot),
            Effect::Subscribe(subscribe) => self.subscribe(slot, &subscribe),
            Effect::Unsubscribe(unsubscribe) => self.unsubscribe(slot, &unsubscribe),
            Effect::Connect(connect) => self.connect(slot, &connect),
            Effect::Authenticate(_) => {}
            Effect::Disconnect { with_will } => self.end(slot, Ended::Client, with_will),
            Effect::Close(closing) => self.close(slot, closing),
        }
    }

    fn acknowledged(&mut self, slot: u32) {
        let session = self.connections[slot as usize].session;
        if self.sessions[session as usize].session.has_backlog() {
            self.pump(slot);
        }
    }

    fn undecodable(&mut self, slot: u32, error: DecodeError, framed: Option<(u8, &[u8])>) {
        if !self.connections.contains(slot as usize) {
            return;
        }
        let (protocol, mut out, _) = parts!(self, slot);
        let closing = protocol.undecodable(error, framed, &mut out);
        let connecting = framed.is_some_and(|(first, _)| first >> 4 == PacketType::Connect as u8);
        self.close_counted(slot, closing, connecting);
    }

    fn close(&mut self, slot: u32, closing: Closing) {
        self.close_counted(slot, closing, false);
    }

    /// Ends a connection for what its client did.
    fn close_counted(&mut self, slot: u32, closing: Closing, connecting: bool) {
        tracing::debug!(reason = %closing.reason, closing.what, "closing a connection");
        let connection = &self.connections[slot as usize];
        if connection.session == NONE {
            let counters = self.counters();
            let bad_connect = connecting || connection.protocol.decoding_version().is_some();
            let counter = if bad_connect { &counters.refused_connect } else { &counters.refused_first };
            counter.add(1);
        }
        self.end(slot, Ended::Error(closing.reason), true);
    }

    /// Tells a 5.0 client why, then closes.
    pub(super) fn say_and_close(&mut self, slot: u32, reason: ReasonCode, what: &'static str, ended: Ended) {
        let (protocol, mut out, _) = parts!(self, slot);
        protocol.disconnect(reason, what, &mut out);
        self.end(slot, ended, true);
    }
}
