//! Connections whose client is traced: their packets and the server's decisions become events, see
//! [`crate::client_traces`].
//!
//! The bytes that a connection sends are looked at when they are flushed, so the trace shows what was sent, whichever
//! path it took. Ended traces are forgotten at the connection's next event.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use millrace_mqtt::{Packet, Property, ReasonCode};
use millrace_session::{Connection, DropReason};

use super::connection::NONE;
use super::limits;
use super::notes::drop_reason;
use super::webhook_events::reason;
use super::{ConnectionEnd, Core};
use crate::client_traces::{ClientTraceEvent, ClientTraceFilter, PacketDirection, Scanner, Tap, cut};
use crate::outbound::Outbound;

pub(super) struct Tapped {
    taps: Vec<Arc<Tap>>,
    scanner: Scanner,
    /// Bytes at the front of the outbound buffer that the scanner has seen, or that were there before the trace.
    seen: usize,
    requests: VecDeque<(u16, Vec<ClientTraceFilter>)>,
    /// The reason for the end of the connection, once it is known.
    why: Option<Cow<'static, str>>,
}

impl Tapped {
    fn has_room(&self, now_ms: u64) -> bool {
        self.taps.iter().any(|tap| tap.has_room(now_ms))
    }

    fn offer(&self, event: &ClientTraceEvent) {
        self.taps.iter().for_each(|tap| tap.offer(event));
    }

    fn leave_out(&self, events: u64) {
        self.taps.iter().for_each(|tap| tap.leave_out(events));
    }

    pub(super) fn look(&mut self, outbound: &Outbound, protocol: &Connection, now_ms: u64) {
        self.taps.retain(|tap| !tap.is_over(now_ms));
        let version = protocol.version();
        let Self { taps, scanner, seen, requests, .. } = self;
        outbound.each_after(*seen, |bytes| {
            scanner.feed(bytes, |head, size| {
                if !taps.iter().any(|tap| tap.has_room(now_ms)) {
                    return taps.iter().for_each(|tap| tap.leave_out(1));
                }
                let event = ClientTraceEvent::beginning(head, version, PacketDirection::Out, size, now_ms);
                let Some(mut event) = event else { return };
                if matches!(&*event.kind, "SUBACK" | "UNSUBACK")
                    && let Some(found) = requests.iter().position(|(id, _)| Some(*id) == event.packet_id)
                    && let Some((_, filters)) = requests.remove(found)
                {
                    event.name_filters(filters);
                }
                if event.topic.is_none() && event.kind == "PUBLISH" {
                    event.topic = topic_of_outbound_alias(head, protocol).map(|topic| cut(&topic));
                }
                taps.iter().for_each(|tap| tap.offer(&event));
            });
        });
    }

    pub(super) fn note_waiting(&mut self, bytes: usize) {
        self.seen = bytes;
    }

    pub(super) fn dropped(&self, topic: &str, reason: DropReason, messages: usize, now_ms: u64) {
        if self.has_room(now_ms) {
            self.offer(&ClientTraceEvent::dropped(now_ms, topic, messages as u64, drop_reason(reason)));
        } else {
            self.leave_out(1);
        }
    }
}

fn topic_of_outbound_alias(head: &[u8], protocol: &Connection) -> Option<Arc<str>> {
    let lengths = head.iter().skip(1).position(|byte| byte & 0x80 == 0)? + 2;
    let packet = millrace_mqtt::decode(*head.first()?, &head[lengths..], Some(protocol.version())).ok()?;
    let Packet::Publish(publish) = packet else { return None };
    publish.properties.iter().find_map(|property| match property {
        Property::TopicAlias(alias) => protocol.topic_of_outbound_alias(alias),
        _ => None,
    })
}

impl Core {
    /// Marks a connection if its client is traced: at its CONNECT, and when a trace begins.
    #[inline]
    pub(super) fn tap(&mut self, slot: u32, broker: u64, client_id: &str) {
        if self.process.brokers.traces.any() {
            self.tap_now(slot, broker, client_id);
        }
    }

    fn tap_now(&mut self, slot: u32, broker: u64, client_id: &str) {
        let now_ms = self.process.clock.unix_now_ms();
        let taps = self.process.brokers.traces.of(broker, client_id, now_ms);
        if taps.is_empty() {
            return self.untap(slot);
        }
        let connection = &mut self.connections[slot as usize];
        connection.activity.get_or_insert_default().is_traced = true;
        // All that waits is whole packets, and only their beginning may have been sent.
        let seen = connection.outbound.as_ref().map_or(0, |outbound| outbound.len_without_control());
        let tapped = self.tracing.tapped.entry(slot).or_insert_with(|| {
            let (scanner, requests) = (Scanner::default(), VecDeque::new());
            Box::new(Tapped { taps: Vec::new(), scanner, seen, requests, why: None })
        });
        tapped.taps = taps;
    }

    pub(super) fn untap(&mut self, slot: u32) {
        self.tracing.tapped.remove(&slot);
        if let Some(connection) = self.connections.get_mut(slot as usize)
            && let Some(activity) = &mut connection.activity
        {
            activity.is_traced = false;
        }
    }

    /// The traces of a connection, if any has not ended.
    fn tapped(&mut self, slot: u32) -> Option<(&mut Tapped, u64)> {
        let tapped = self.tracing.tapped.get_mut(&slot)?;
        let now_ms = self.process.clock.unix_now_ms();
        tapped.taps.retain(|tap| !tap.is_over(now_ms));
        if tapped.taps.is_empty() {
            self.untap(slot);
            return None;
        }
        Some((self.tracing.tapped.get_mut(&slot)?, now_ms))
    }

    pub(super) fn trace_input(&mut self, slot: u32, packet: &Packet<'_>, size: usize) {
        let Some((tapped, now_ms)) = self.tapped(slot) else { return };
        if !tapped.has_room(now_ms) {
            return tapped.leave_out(1);
        }
        let connection = &self.connections[slot as usize];
        let protocol = &connection.protocol;
        let mut event =
            ClientTraceEvent::packet(packet, protocol.version(), PacketDirection::In, size, now_ms);
        if let Some(connect) = &mut event.connect {
            connect.address = connection.address().map(|address| address.to_string());
        }
        if let Packet::Publish(publish) = packet
            && publish.topic.is_empty()
        {
            let alias = publish.properties.iter().find_map(|property| match property {
                Property::TopicAlias(alias) => protocol.topic_of_inbound_alias(alias),
                _ => None,
            });
            event.topic = alias.map(|topic| cut(&topic));
        }
        let Some(tapped) = self.tracing.tapped.get_mut(&slot) else { return };
        if let (Packet::Subscribe(_) | Packet::Unsubscribe(_), Some(id)) = (packet, event.packet_id) {
            // The id is used again, so the trace has missed the SUBACK or UNSUBACK of the earlier packet.
            tapped.requests.retain(|(other, _)| *other != id);
            if tapped.requests.len() >= limits::TRACED_REQUESTS_MAX {
                tapped.requests.pop_front();
            }
            tapped.requests.push_back((id, event.filters.clone()));
        }
        tapped.offer(&event);
    }

    /// True while every trace of this client has its events of the present second. Its messages then take the fast path
    /// again, so that a trace slows a fast publisher only a little.
    pub(super) fn is_trace_full(&mut self, slot: u32) -> bool {
        self.tapped(slot).is_none_or(|(tapped, now_ms)| !tapped.has_room(now_ms))
    }

    pub(super) fn leave_out_of_trace(&mut self, slot: u32, messages: usize) {
        if let Some(tapped) = self.tracing.tapped.get(&slot) {
            tapped.leave_out(messages as u64);
        }
    }

    pub(super) fn trace_refused_publish(&mut self, slot: u32, topic: &str, reason: ReasonCode, what: &str) {
        let Some((tapped, now_ms)) = self.tapped(slot) else { return };
        if !tapped.has_room(now_ms) {
            return tapped.leave_out(1);
        }
        let mut event = ClientTraceEvent::dropped(now_ms, topic, 1, what);
        event.reason_code = Some(reason.0);
        tapped.offer(&event);
    }

    /// Keeps the reason for the end that follows; the first one counts, because it is the most precise.
    pub(super) fn explain_end(&mut self, slot: u32, what: impl Into<Cow<'static, str>>) {
        if let Some(tapped) = self.tracing.tapped.get_mut(&slot)
            && tapped.why.is_none()
        {
            tapped.why = Some(what.into());
        }
    }

    pub(super) fn trace_end(&mut self, slot: u32, ended: ConnectionEnd) {
        let is_client = self.connections[slot as usize].session != NONE;
        let Some((tapped, now_ms)) = self.tapped(slot) else { return };
        let code = match ended {
            ConnectionEnd::Error(code) => Some(code),
            _ => None,
        };
        let kind = if code.is_some() && !is_client { "refused" } else { "closed" };
        let why = tapped.why.take().unwrap_or_else(|| match code {
            Some(code) => code.name().into(),
            None => reason(ended).into(),
        });
        let event = ClientTraceEvent {
            reason_code: code.map(|code| code.0),
            ..ClientTraceEvent::decided(kind, now_ms, &why)
        };
        tapped.offer(&event);
    }
}
